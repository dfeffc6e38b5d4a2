//! The ids that libc knows fibers by, where a thread has the kernel's.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Fibers' ids begin above every id that the kernel gives to threads (`PID_MAX_LIMIT` is 2²²) and end
/// below the bits that the futex protocol reserves (2³⁰).
const IDS: Range<u32> = 1 << 23..1 << 30;

/// Whether a thread id found in a thread control block is a fiber's.
#[inline]
pub fn is_fiber_id(id: u32) -> bool {
    IDS.contains(&id)
}

/// Ids given so far.
static GIVEN: AtomicU32 = AtomicU32::new(0);
/// By how much this process's first id differs from that of the process that it was forked from.
static FURTHER: AtomicU32 = AtomicU32::new(0);

/// An id that no thread has, nor another block of this process.
pub(super) fn new_id() -> u32 {
    // The first id differs from process to process. A recursive mutex may lie in memory that two
    // processes share, and must not take a fiber of one for a fiber of the other.
    // SAFETY: AT_RANDOM, if present, is the address of 16 random bytes; these are the last four.
    let begin = unsafe {
        let random = libc::getauxval(libc::AT_RANDOM) as *const u32;
        if random.is_null() { 0 } else { random.add(3).read_unaligned() }
    };
    // So does that of each copy of Carefree in a process, whose fibers may share a mutex. The loader puts
    // libraries at random addresses.
    let copy = (&raw const GIVEN as usize >> 12) as u32;
    let begin = begin.wrapping_add(copy.wrapping_mul(0x9e37_79b9));
    // A retired block's id is used again, so no process ever needs this many.
    let given = GIVEN.fetch_add(1, Ordering::Relaxed);
    let further = FURTHER.load(Ordering::Relaxed);
    let length = u64::from(IDS.end - IDS.start);
    IDS.start + ((u64::from(begin) + u64::from(further) + u64::from(given)) % length) as u32
}

/// Makes later ids differ from the parent's: in the child of a fork, which has the same random bytes.
pub(super) fn diverge() {
    // The multiplication moves low bits up, so that children with neighbouring process ids get ids far
    // from each other.
    let far = std::process::id().wrapping_mul(0x9e37_79b9);
    FURTHER.fetch_add(far, Ordering::Relaxed);
}
