//! What valgrind is told of stacks.
//!
//! A request to valgrind is a sequence of instructions that does nothing on a processor and that
//! valgrind takes for a call. It is made once for each stack, when its memory is first used, and
//! costs a few instructions. Without it, valgrind would take the step from one stack to its
//! neighbour for one large frame, and all memory between for dead.

use carefree_ground::lock::Lock;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers from valgrind.h, which are the same in all versions.
const STACK_REGISTER: usize = 0x1501;
const STACK_DEREGISTER: usize = 0x1502;
/// Request to memcheck: the memory may not be touched.
const MAKE_NOACCESS: usize = 0x4d43_0000;
/// Request to memcheck: the memory may be written, and read only after that.
const MAKE_UNDEFINED: usize = 0x4d43_0001;

/// Whether valgrind has answered a request.
static PRESENT: AtomicBool = AtomicBool::new(false);

/// The lowest addresses of the stacks that valgrind was told of, and its numbers for them. Empty
/// without valgrind.
static KNOWN: Lock<Vec<(usize, usize)>> = Lock::new(Vec::new());

/// Makes a request; returns 0 without valgrind.
#[inline(always)]
fn request(number: usize, first: usize, second: usize) -> usize {
    let request = [number, first, second, 0, 0, 0];
    let mut answer = 0usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the rotations add up to whole turns, and a register is exchanged with itself, so nothing
    // changes. valgrind reads `request` and writes rdx.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const request,
            inout("rdx") answer,
            // Any value: the rotations restore it.
            inout("rdi") 0usize => _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the rotations add up to whole turns, so nothing changes. valgrind reads `request` and
    // writes x3.
    unsafe {
        std::arch::asm!(
            "ror x12, x12, #3",
            "ror x12, x12, #13",
            "ror x12, x12, #51",
            "ror x12, x12, #61",
            "orr x10, x10, x10",
            in("x4") &raw const request,
            inout("x3") answer,
            inout("x12") 0usize => _,
            options(nostack),
        );
    }
    answer
}

/// To be called before a stack is used for the first time.
pub(crate) fn register(limit: usize, top: usize) {
    // 0 without valgrind. (valgrind's own number 0 is the main thread's stack.)
    let number = request(STACK_REGISTER, limit, top - 1);
    if number != 0 {
        PRESENT.store(true, Ordering::Relaxed);
        KNOWN.lock().push((limit, number));
    }
}

/// Marks the memory from `base` to `limit`, below a stack that was [registered](register), as its
/// guard.
///
/// valgrind does not see guards that are not mappings of their own and takes them for readable. Its
/// search for leaks at the end of the process would then fault on every word of them, for minutes in a
/// process that had many fibers.
pub(crate) fn guard(base: usize, limit: usize) {
    if PRESENT.load(Ordering::Relaxed) {
        request(MAKE_NOACCESS, base, limit - base);
    }
}

/// To be called when the stack from `limit` to `top` gets a new user: it may write below the last
/// frame of the one before. `limit` is asked for only under valgrind: finding it costs a spawn more than
/// the look whether valgrind is there.
#[inline(always)]
pub(crate) fn renew(limit: impl FnOnce() -> usize, top: usize) {
    if PRESENT.load(Ordering::Relaxed) {
        let limit = limit();
        request(MAKE_UNDEFINED, limit, top - limit);
    }
}

/// To be called before the stacks within `memory` are unmapped.
pub(crate) fn deregister(memory: &Range<usize>) {
    KNOWN.lock().retain(|(limit, number)| {
        let gone = memory.contains(limit);
        if gone {
            request(STACK_DEREGISTER, *number, 0);
        }
        !gone
    });
}
