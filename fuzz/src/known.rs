//! Differences that are meant: docs/blocking.md has the reasons.

use crate::program::{Call, Lies, Program, Step};

/// A difference that is accepted.
#[derive(Debug)]
pub struct Known {
    pub what: &'static str,
    pub reason: &'static str,
    is: fn(&Step, &str, &str) -> bool,
}

/// What is not compared at all, because programs are drawn so that it does not happen.
pub const AVOIDED: &[(&str, &str)] = &[
    (
        "signals interrupt calls of threads",
        "they interrupt none of a fiber's: the threads that fibers are compared with block them",
    ),
    (
        "closing a file ends the waits of fibers, not of threads",
        "both answers are legal in crowd::Race, and a sequence closes nothing that is waited for",
    ),
    ("SO_RCVLOWAT", "a call that finds less at once returns that"),
    ("futexes with priority inheritance", "they hold the number of the carrier"),
    ("the deadlocks of fcntl locks", "they are not found"),
    (
        "lengths of 2^47 bytes and more, below 2^63",
        "open: threads get EFAULT, fibers sometimes what is there",
    ),
    ("MSG_ERRQUEUE under a storm of signals", "open: a fiber was told EINTR over io_uring"),
    (
        "futex waits whose word or time is nowhere end the process, where a thread gets EFAULT",
        "open: to ask the kernel first would make each wait for a lock slower (kept/open/futex-nowhere)",
    ),
];

/// The differences that are accepted where they appear; the rest of the program is not compared then.
pub const ACCEPTED: &[Known] = &[
    Known {
        what: "a futex call with more than one wrong argument",
        reason: "all fail, but say another of the things that are wrong",
        is: |step, threads, fibers| {
            matches!(step.call, Call::Futex { .. }) && fails(threads) && fails(fibers)
        },
    },
    Known {
        what: "a splice that fails",
        reason: "open: from or to a closed number a fiber waits first",
        is: |step, threads, fibers| {
            let same = fibers.strip_suffix(" (waited)") == Some(threads);
            matches!(step.call, Call::Splice { .. }) && fails(threads) && same
        },
    },
    Known {
        what: "a poll whose list cannot be written",
        reason: "the try that comes before the wait has told so already",
        is: |step, threads, fibers| {
            matches!(step.call, Call::Poll { lies: Lies::ReadOnly, .. })
                && threads == "EFAULT (waited)"
                && fibers == "EFAULT"
        },
    },
];

/// Whether a line tells of an error.
fn fails(line: &str) -> bool {
    line.starts_with('E')
}

/// Whether the first difference, at a step, is one of those.
pub fn known(program: &Program, at: usize, threads: &str, fibers: &str) -> Option<&'static Known> {
    let Program::Sequence(sequence) = program else { return None };
    let step = sequence.steps.get(at)?;
    ACCEPTED.iter().find(|known| (known.is)(step, threads, fibers))
}
