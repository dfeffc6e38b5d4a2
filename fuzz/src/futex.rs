//! `futex`, by its number alone: libc has no function.

use std::ffi::c_int;
use std::ptr;

use crate::call::{Lies, Span, Word};
use crate::memory::Memory;
use crate::outcome::{Outcome, plain};
use crate::system::errno;

pub(crate) fn futex(
    memory: &Memory,
    operation: c_int,
    word: Word,
    second: Word,
    value: u32,
    span: Span,
) -> Outcome {
    let words = memory.place(0, 64, Lies::Well).cast::<u32>();
    for at in 0..16 {
        // SAFETY: there is as much room.
        unsafe { words.add(at).write(1) };
    }
    let place = |word, at: usize| match word {
        // SAFETY: as above.
        Word::Good => unsafe { words.add(at) },
        Word::Null => ptr::null_mut(),
        Word::Nowhere => memory.place(0, 0, Lies::Nowhere).cast(),
        // SAFETY: as above.
        Word::Unaligned => unsafe { words.byte_add(at * 4 + 1) },
        Word::ReadOnly => memory.place(0, 0, Lies::ReadOnly).cast(),
    };
    let time = span.time();
    let time = match span {
        Span::Nowhere => memory.place(0, 0, Lies::Nowhere).cast_const().cast(),
        _ => &raw const time,
    };
    // Those that move waiters take a count there.
    let moves = matches!(operation & 127, 3..=5);
    let fourth = if moves { value as usize } else { time as usize };
    let (first, other) = (place(word, 0), place(second, 4));
    // SAFETY: as `make` says.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, first, operation, value, fourth, other, value as usize)
    };
    plain(if result < 0 { Err(errno()) } else { Ok(result) })
}
