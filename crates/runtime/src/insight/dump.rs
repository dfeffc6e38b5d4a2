//! Which fibers and threads wait for what, in words.

use std::fmt::{self, Write as _};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use crate::carrier::runtimes;
use crate::fiber::bed;
use crate::fiber::header::{ALIVE, FINISHED, FiberRef, Kind};
use crate::fiber::registry;
use crate::insight::mapped::Text;
use crate::protocol::reason::Reason;

/// Lines at most.
const NAMED: usize = 100;

/// What the carriers and the fibers of this process do just now, for people: a line for each
/// runtime, then one for each fiber (the first hundred), which says what it waits for, or that it has
/// ended and was not joined yet. Plain threads are listed while they wait for fibers.
///
/// For a program that seems to hang: call it from a plain thread, say one that waits for a signal.
/// Nothing is stopped meanwhile, so the lines are of slightly different moments.
///
/// ```
/// let sleeper = carefree_runtime::Builder::new()
///     .name("sleeper".into())
///     .spawn(|| carefree_runtime::park())?;
/// while !carefree_runtime::dump().contains("'sleeper' is parked") {
///     std::thread::yield_now();
/// }
/// sleeper.thread().unpark();
/// # sleeper.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dump() -> String {
    written().as_str().to_owned()
}

/// Writes a [`dump`] to `file`, say to standard error, without asking the program's allocator: it
/// comes even when that is what the program hangs in.
///
/// ```
/// carefree_runtime::dump_to(std::io::stderr())?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// What the kernel says to the write.
pub fn dump_to(file: impl AsFd) -> io::Result<()> {
    let written = written().write_to(file.as_fd().as_raw_fd());
    written.map_err(io::Error::from_raw_os_error)
}

fn written() -> Text {
    let mut text = Text::new();
    runtimes::for_each(|runtime| {
        if runtime.has_threads() {
            let alive = runtime.alive();
            return text.say(format_args!("runtime: {alive} threads in place of fibers\n"));
        }
        let (carriers, asleep) = (runtime.carriers.len(), runtime.sleepers.sleeping());
        text.say(format_args!(
            "runtime: {carriers} carriers, {asleep} of them asleep; {} fibers\n",
            runtime.alive()
        ));
        for carrier in &runtime.carriers {
            let state =
                if runtime.sleepers.is_sleeping(carrier.index()) { "sleeps" } else { "is up" };
            let (thread, switches) = (carrier.thread(), carrier.switches());
            text.say(format_args!(
                "  carrier {} (thread {thread}) {state}, {switches} switches, {}, {}\n",
                carrier.index(),
                if carrier.is_empty() { "nothing queued" } else { "fibers queued" },
                if carrier.has_operations() { "operations under way" } else { "no operations" },
            ));
        }
    });
    lines(&mut text, |waiter| {
        waiter.episode.is_waiting() || waiter.kind.get() == Kind::Fiber || bed::is_spawned(waiter)
    });
    text
}

/// Adds a line for each fiber that waits, and for each thread that waits for fibers.
pub(crate) fn waiters(text: &mut Text) {
    lines(text, |waiter| waiter.episode.is_waiting());
}

fn lines(text: &mut Text, wanted: impl Fn(FiberRef) -> bool) {
    let mut count = 0;
    // Printed when the registry is free again.
    let mut named = [None; NAMED];
    registry::for_each_alive(|fiber| {
        if wanted(fiber) {
            if let Some(place) = named.get_mut(count) {
                *place = Some((fiber, fiber.id.load(Ordering::Relaxed)));
            }
            count += 1;
        }
    });
    for (fiber, number) in named.into_iter().flatten() {
        let _ = line(text, fiber, number);
    }
    if count > NAMED {
        text.say(format_args!("  … and {} more\n", count - NAMED));
    }
}

/// The line of fiber `number`, if the header is still its own when the line is written.
fn line(text: &mut Text, header: FiberRef, number: u64) -> fmt::Result {
    let length = text.len();
    let of_thread = header.episode.is_of_thread() || header.kind.get() == Kind::Thread;
    let kind = if of_thread { "thread" } else { "fiber" };
    let reason = match Reason::from_code(header.reason.load(Ordering::Relaxed)) {
        // The reason stays when the wait has been ended, until the fiber gets on.
        reason if header.episode.is_waiting() || reason == Reason::NotStarted => reason,
        _ => Reason::Runs,
    };
    let cancelled = if header.cancel.peek() { " (cancelled)" } else { "" };
    let ended = header.join.load(Ordering::Acquire) & FINISHED != 0;
    write!(text, "  {kind} {number}")?;
    header.write_name(number, [" '", "'"], text)?;
    match ended {
        false => writeln!(text, " {reason}{cancelled}")?,
        true => writeln!(text, " has ended; a handle to it is neither joined nor dropped")?,
    }
    let gone = header.run.load(Ordering::Acquire) != ALIVE;
    if gone || header.id.load(Ordering::Relaxed) != number {
        text.truncate(length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::spawn::Builder;

    #[test]
    fn a_fiber_that_has_ended_does_not_run() {
        let ended = Builder::new().name("the ended".into()).spawn(|| ()).unwrap();
        while !ended.is_finished() {
            std::thread::yield_now();
        }
        let header = ended.thread().as_ref();
        let number = header.id.load(Ordering::Relaxed);
        let said = |number| {
            let mut text = Text::new();
            line(&mut text, header, number).unwrap();
            text.as_str().to_owned()
        };
        let words = format!(" {number} 'the ended' has ended; a handle to it");
        assert!(said(number).contains(&words), "{}", said(number));
        assert_eq!(said(number + 1), "", "another one's");
        ended.join().unwrap();
    }
}
