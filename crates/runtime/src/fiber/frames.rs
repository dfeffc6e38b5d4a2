//! The frames of a fiber on its stack, as far as the cache is concerned: where thousands of fibers wait, those of each
//! are in no cache when it begins or goes on, and it would wait for each line in turn.

use carefree_context::arch;

/// Lines that a fiber's frames take while it waits, about: `cargo run --release -p carefree --example touched` tells the
/// bytes, of which some are thread-local variables and bookkeeping.
const LINES: usize = 9;

/// Fetches the frames of a fiber that is about to start: those below `top`.
#[inline(always)]
pub(crate) fn fetch_below(top: *const u8) {
    for line in 1..=LINES {
        arch::prefetch(top.wrapping_sub(line * 64));
    }
}

/// Fetches the frames of the calling fiber's callers.
#[inline(always)]
pub(crate) fn fetch_outer() {
    let here = 0u8;
    for line in 1..=LINES {
        arch::prefetch((&raw const here).wrapping_add(line * 64));
    }
}
