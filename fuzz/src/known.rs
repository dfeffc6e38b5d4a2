//! Differences that are meant: docs/blocking.md has the reasons.

use std::ffi::c_int;

use crate::program::{Buffer, Lies, Program, Step};

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
    (
        "a bad pointer ends a recvmmsg that waits, after some messages",
        "the kernel keeps the error for the next call, which no call from outside can have it do: a fiber \
         waits for each message, and its next call knows nothing of the error (docs/calls.md)",
    ),
    ("SO_RCVLOWAT", "a call that finds less at once returns that"),
    ("futexes with priority inheritance", "they hold the number of the carrier"),
    ("the deadlocks of fcntl locks", "they are not found"),
];

/// The buffers of a `recvmmsg` with these flags: if it may wait, the first alone may lie badly.
pub(crate) fn received_after_waits(mut buffers: Vec<Buffer>, flags: c_int) -> Vec<Buffer> {
    if flags & libc::MSG_DONTWAIT == 0 {
        for buffer in buffers.iter_mut().skip(1) {
            *buffer = Buffer { length: buffer.length % 200_000, lies: Lies::Well };
        }
    }
    buffers
}

/// The differences that are accepted where they appear; the rest of the program is not compared then.
/// None is, at this time.
pub const ACCEPTED: &[Known] = &[];

/// Whether the first difference, at a step, is one of those.
pub fn known(program: &Program, at: usize, threads: &str, fibers: &str) -> Option<&'static Known> {
    let Program::Sequence(sequence) = program else { return None };
    let step = sequence.steps.get(at)?;
    ACCEPTED.iter().find(|known| (known.is)(step, threads, fibers))
}
