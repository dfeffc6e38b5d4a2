//! Differences that are intended; docs/blocking.md has the reasons.

use std::ffi::c_int;

use crate::call::{Buffer, Call, Lies, Step};
use crate::object::{Family, Object};
use crate::program::{Program, Sequence};

/// A difference that is accepted.
#[derive(Debug)]
pub struct Known {
    pub what: &'static str,
    pub reason: &'static str,
    is: fn(&Sequence, &Step, &str, &str) -> bool,
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
pub const ACCEPTED: &[Known] = &[Known {
    what: "how much TCP takes before a bad pointer",
    reason: "the kernel copies into what is left of a fragment that the sending thread has for all its \
             sockets, and drops a piece that it cannot copy whole: it depends on what the thread has sent \
             elsewhere before (`fuzz/tests/freedoms.rs`)",
    is: is_a_piece_of_tcp,
}];

/// Bytes of the largest piece that TCP copies at a time (`SKB_FRAG_PAGE_ORDER`).
const PIECE: u64 = 32 * 1024;

/// Whether both have sent what lies before a bad pointer to TCP, or all of that but a part of a piece.
fn is_a_piece_of_tcp(sequence: &Sequence, step: &Step, threads: &str, fibers: &str) -> bool {
    let is_tcp = |object: &Object| {
        matches!(object, Object::Sockets { family: Family::Tcp, .. } | Object::Listener { .. })
    };
    let there = match &step.call {
        Call::Write { from, .. } | Call::Send { from, .. } => before_a_bad_pointer(&[*from]),
        Call::WriteList { list, .. }
        | Call::WriteFlagged { list, .. }
        | Call::SendMessage { list, .. } => before_a_bad_pointer(&list.buffers),
        _ => None,
    };
    let Some(there) = there.filter(|_| sequence.objects.iter().any(is_tcp)) else { return false };
    let sent = |line: &str| match line.split([' ', ',']).next() {
        // Not even one piece.
        Some("EFAULT") => Some(0),
        Some(number) => number.parse().ok(),
        None => None,
    };
    let fits = |sent: Option<u64>| {
        sent.is_some_and(|sent| sent <= there && there < sent.saturating_add(PIECE))
    };
    fits(sent(threads)) && fits(sent(fibers))
}

/// How many bytes of `buffers` are there, if not all are.
fn before_a_bad_pointer(buffers: &[Buffer]) -> Option<u64> {
    let mut there = 0u64;
    for buffer in buffers {
        let good = match buffer.lies {
            Lies::Well => buffer.length,
            Lies::AtEdge(good) => buffer.length.min(good.into()),
            // To be read, as far as it goes.
            Lies::ReadOnly => buffer.length.min(crate::memory::PAGE as u64),
            Lies::Null | Lies::Nowhere => 0,
        };
        there += good;
        if good < buffer.length {
            return Some(there);
        }
    }
    None
}

/// Whether the first difference, at a step, is one of those.
pub fn known(program: &Program, at: usize, threads: &str, fibers: &str) -> Option<&'static Known> {
    let Program::Sequence(sequence) = program else { return None };
    let step = sequence.steps.get(at)?;
    ACCEPTED.iter().find(|known| (known.is)(sequence, step, threads, fibers))
}
