//! Requests to valgrind: a sequence of instructions that does nothing on a processor, and that
//! valgrind takes for a call.
//!
//! Without being told, it takes the step from one stack to its neighbour for one large frame, and all
//! that lies between for dead.

use carefree_ground::lock::Lock;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Numbers from valgrind.h, which are the same in all versions.
const STACK_REGISTER: usize = 0x1501;
const STACK_DEREGISTER: usize = 0x1502;
/// memcheck's: the memory may not be touched.
const MAKE_NOACCESS: usize = 0x4d43_0000;
/// memcheck's: the memory may be written, and what is in it may not be read before that.
const MAKE_UNDEFINED: usize = 0x4d43_0001;

/// valgrind has answered.
static PRESENT: AtomicBool = AtomicBool::new(false);

/// Stacks that valgrind knows, by their lowest address, with its numbers of them. Empty without it.
static KNOWN: Lock<Vec<(usize, usize)>> = Lock::new(Vec::new());

/// Makes a request; 0 without valgrind.
#[inline(always)]
fn request(number: usize, first: usize, second: usize) -> usize {
    let request = [number, first, second, 0, 0, 0];
    let mut answer = 0usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the rotations add up to whole turns, and the exchange is of a register with itself:
    // nothing changes. valgrind reads the request and writes the answer.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") &raw const request,
            inout("rdx") answer,
            // Any value: it is turned round and round.
            inout("rdi") 0usize => _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
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

/// A stack is about to be used for the first time.
pub(crate) fn register(limit: usize, top: usize) {
    // Without valgrind it is 0, as is the number of the first stack, which is the main thread's.
    let number = request(STACK_REGISTER, limit, top - 1);
    if number != 0 {
        PRESENT.store(true, Ordering::Relaxed);
        KNOWN.lock().push((limit, number));
    }
}

/// The memory from `base` to `limit`, below a stack that was [registered](register), is its guard.
///
/// valgrind knows nothing of guards that are not mappings of their own. It takes them for readable,
/// and what it reads itself then faults: a search for leaks, which each process makes at its end,
/// word after word, for minutes where there were many fibers.
pub(crate) fn guard(base: usize, limit: usize) {
    if PRESENT.load(Ordering::Relaxed) {
        request(MAKE_NOACCESS, base, limit - base);
    }
}

/// The stack from `limit` to `top` has another user: what lies below the last frame of the one before is
/// not out of bounds any more.
#[inline(always)]
pub(crate) fn renew(limit: usize, top: usize) {
    if PRESENT.load(Ordering::Relaxed) {
        request(MAKE_UNDEFINED, limit, top - limit);
    }
}

/// The stacks within `memory` are about to be unmapped.
pub(crate) fn deregister(memory: &Range<usize>) {
    KNOWN.lock().retain(|(limit, number)| {
        let gone = memory.contains(limit);
        if gone {
            request(STACK_DEREGISTER, *number, 0);
        }
        !gone
    });
}
