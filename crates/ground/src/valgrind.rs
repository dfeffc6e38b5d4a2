//! Requests to valgrind.
//!
//! A request is a sequence of instructions that does nothing on a processor and that valgrind takes for a
//! call.

/// The number of the request whether the program runs under valgrind, from valgrind.h.
const RUNNING_ON_VALGRIND: usize = 0x1001;

/// Whether the program runs under valgrind.
pub fn is_running() -> bool {
    request(RUNNING_ON_VALGRIND, 0, 0) != 0
}

/// Makes a request; returns 0 without valgrind.
#[inline(always)]
pub fn request(number: usize, first: usize, second: usize) -> usize {
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
