//! Who has called a function of this library's, as the unwinder finds it.
//!
//! Some functions of libc's look at their return address to find their caller. Ours, which stand in for these, are in
//! assembly in `interpose`; but a library of Rust's exports no symbols of assembly, so here they are functions
//! of Rust's, which have to look.

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

#[cfg(target_arch = "aarch64")]
const SAVED: [c_int; 19] =
    [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 72, 73, 74, 75, 76, 77, 78, 79];
/// The registers that a function gives back as they were, by their numbers in tables for unwinding: rbx, rbp, r12
/// to r15. (On aarch64 x19 to x29, d8 to d15.)
#[cfg(target_arch = "x86_64")]
const SAVED: [c_int; 6] = [3, 6, 12, 13, 14, 15];

unsafe extern "C" {
    fn _Unwind_Backtrace(
        note: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        search: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
    fn _Unwind_GetGR(context: *mut c_void, register: c_int) -> usize;
    fn _Unwind_GetRegionStart(context: *mut c_void) -> usize;
}

/// The code that has called a function, and what the registers will hold when that returns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Caller {
    saved: [usize; SAVED.len()],
    /// The stack pointer.
    stack: usize,
    /// The return address.
    address: usize,
}

struct Search {
    function: usize,
    passed: bool,
    found: Option<Caller>,
}

impl Caller {
    /// The caller of `function`, which calls this. `None` if the unwinder does not get so far.
    pub(crate) fn of(function: *const ()) -> Option<Caller> {
        let mut search = Search { function: function.addr(), passed: false, found: None };
        // SAFETY: as the unwinder declares it; `search` outlives the call.
        unsafe { _Unwind_Backtrace(note, (&raw mut search).cast()) };
        search.found
    }

    /// An address in the caller's code.
    pub(crate) fn address(&self) -> *const c_void {
        ptr::without_provenance(self.address)
    }

    /// The stack pointer when the function was called. There begin the arguments that are not in registers.
    pub(crate) fn stack(&self) -> usize {
        self.stack
    }

    /// Leaves the function that was called, and calls `target` with these arguments in its place: to that, and
    /// to its caller, it is as if the latter had called it.
    ///
    /// # Safety
    /// Nothing in the frames from here to the called function needs to be dropped. `target` is a function that
    /// can be called with the arguments, of which there are at most three, and returns what the called one does.
    pub(crate) unsafe fn calls(&self, target: *const c_void, arguments: [usize; 3]) -> ! {
        const { assert!(mem::offset_of!(Caller, saved) == 0) };
        let [first, second, third] = arguments;
        // The frames from here on are given up with the stack pointer, and a signal's handler may overwrite
        // them at once: all is in registers before.
        // SAFETY: the registers and the stack pointer are those that the caller expects to find again, and the
        // stack is as when it had just called: on x86-64 the return address is on top. The arguments are
        // where functions look for them; the rest is the caller's promise.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::asm!(
                "mov rbx, [rax]",
                "mov rbp, [rax + 8]",
                "mov r12, [rax + 16]",
                "mov r13, [rax + 24]",
                "mov r14, [rax + 32]",
                "mov r15, [rax + 40]",
                "mov rsp, [rax + 48]",
                "sub rsp, 8",
                "jmp r11",
                in("rax") self,
                in("r11") target,
                in("rdi") first,
                in("rsi") second,
                in("rdx") third,
                options(noreturn),
            )
        }
        // SAFETY: as above, but that the return address is in x30.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!(
                "ldp x19, x20, [x16]",
                "ldp x21, x22, [x16, #16]",
                "ldp x23, x24, [x16, #32]",
                "ldp x25, x26, [x16, #48]",
                "ldp x27, x28, [x16, #64]",
                "ldr x29, [x16, #80]",
                "ldp d8, d9, [x16, #88]",
                "ldp d10, d11, [x16, #104]",
                "ldp d12, d13, [x16, #120]",
                "ldp d14, d15, [x16, #136]",
                "ldp x9, x30, [x16, #152]",
                "mov sp, x9",
                "br x17",
                in("x16") self,
                in("x17") target,
                in("x0") first,
                in("x1") second,
                in("x2") third,
                options(noreturn),
            )
        }
    }
}

/// Passes frames up to the function's, notes the one above it, and has the unwinder end there.
unsafe extern "C" fn note(context: *mut c_void, search: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const END: c_int = 4;
    // SAFETY: what `of` has passed, which nothing else uses meanwhile.
    let search = unsafe { &mut *search.cast::<Search>() };
    // SAFETY: the unwinder's context; it has these registers of every frame.
    unsafe {
        if search.passed {
            search.found = Some(Caller {
                saved: SAVED.map(|register| _Unwind_GetGR(context, register)),
                stack: _Unwind_GetCFA(context),
                address: _Unwind_GetIP(context),
            });
            return END;
        }
        search.passed = _Unwind_GetRegionStart(context) == search.function;
    }
    GO_ON
}
