//! What fibers do while the driver misbehaves.

mod closed;
mod counters;
mod ends;
mod files;
mod interrupted;
mod messages;
mod streams;

use std::time::Duration;

use carefree::JoinHandle;

/// A program for a fiber. All fibers that it spawns have ended when it returns.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Whether it neither cancels nor limits a wait, nor closes a file that is waited for. Then the driver may
    /// refuse its operations: a thread makes them, and nothing ends them there.
    pub(crate) calm: bool,
    pub(crate) run: fn(fastrand::Rng),
}

pub(crate) const ALL: &[Program] = &[
    Program { name: "pipe", calm: true, run: streams::pipe },
    Program { name: "socketpair", calm: true, run: streams::socketpair },
    Program { name: "tcp", calm: true, run: streams::tcp },
    Program { name: "messages", calm: true, run: messages::messages },
    Program { name: "counter", calm: true, run: counters::counter },
    Program { name: "timers", calm: true, run: counters::timers },
    Program { name: "poll", calm: true, run: streams::poll },
    Program { name: "files", calm: true, run: files::files },
    Program { name: "splice", calm: true, run: streams::splice },
    Program { name: "child", calm: true, run: child },
    Program { name: "timeouts", calm: false, run: interrupted::timeouts },
    Program { name: "cancels", calm: false, run: interrupted::cancels },
    Program { name: "closes", calm: false, run: closed::closes },
    Program { name: "accepts", calm: false, run: interrupted::accepts },
    Program { name: "late messages", calm: false, run: messages::late_messages },
    Program { name: "late counter", calm: false, run: counters::late_counter },
    Program { name: "sleeps", calm: false, run: interrupted::sleeps },
];

/// Joins fibers; a panic of one of them is passed on.
fn finish<T>(fibers: impl IntoIterator<Item = JoinHandle<T>>) {
    for fiber in fibers {
        if let Err(panic) = fiber.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn micros(random: &mut fastrand::Rng, most: u64) -> Duration {
    Duration::from_micros(random.u64(0..most))
}

fn child(mut random: fastrand::Rng) {
    // Not every time: it takes longer than the other programs.
    if random.u8(0..4) == 0 {
        assert!(std::process::Command::new("true").status().unwrap().success());
    }
}
