//! The switch: stop computing here, go on computing there.
//!
//! There are two kinds of suspended computation, and they differ in what may run on them.
//!
//! * A [`Context`] carries a coroutine. It is entered and left by Rust functions only (`resume` and
//!   `suspend`), so it saves what the calling convention says a Rust caller may rely on: the stack
//!   pointer and the frame and base pointers. Everything else is declared as clobbered, which lets
//!   the compiler save just what is alive at that very place.
//!   The **floating-point control words** (MXCSR and the x87 control word; FPCR on aarch64) are
//!   *not* saved. The reference of the Rust language says that Rust code may only run under the
//!   default floating-point environment; code that changes it must change it back before it
//!   returns to Rust. `resume` and `suspend` are Rust functions, so whoever reaches them has the
//!   default environment, on both sides, and there is nothing to save. (`tests/coroutine_float.rs`
//!   shows it, and shows what happens to a program that breaks the rule.)
//! * A [`ThreadContext`] carries a fiber that stands in for a thread, on which C code may run. C
//!   code may call `fesetround` and then block, and a thread's floating-point environment is its
//!   own. So [`switch_thread`] saves the control words, and loads the other side's only where they
//!   differ. Reading MXCSR takes longer than the rest of the switch: callers that are Rust code, as a scheduler
//!   is, know theirs and use [`switch_thread_from_rust`], which costs nothing and still gives the
//!   other side its own. Both can also exchange the thread pointer, and with it every thread-local
//!   variable.
//!
//! A coroutine's registers are saved in its context, not on its stack: the whole switch then touches
//! one cache line, which holds both sides ([`Pair`]), and the registers can all be loaded at once,
//! where a frame on the stack can only be read when the stack pointer is there. (A round of
//! a thousand coroutines was more than twice as slow with frames on the stack.) A fiber's are saved on its stack:
//! what a scheduler keeps of a fiber should be small, and its switch has other costs.
//!
//! Each processor has a file of its own with the same names; each starts with the diagram and the
//! registers' contract.
//!
//! Frames end at the entry: the trampolines that start a computation tell every kind of unwinder
//! that there is no caller. DWARF unwinders (panics, backtraces, gdb) read it in the unwind table,
//! frame-pointer profilers find a null frame pointer.

use core::mem::MaybeUninit;

use crate::instrument::Mark;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64 as native;
#[cfg(target_arch = "x86_64")]
use x86_64 as native;

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("carefree-context knows Linux on x86-64 and on aarch64 only");

type Entry = unsafe extern "C" fn(data: *mut u8) -> !;

/// What a fiber begins with, given what it is to begin with; and its mark. Where a sanitizer is to
/// hear of its beginning, the two differ.
///
/// # Safety
/// The 16 bytes below `top` are valid for writes.
#[cfg(any(carefree_asan, carefree_tsan))]
unsafe fn marked(top: *mut u8, entry: Entry, data: *mut u8) -> (*mut u8, Entry, *mut u8, Mark) {
    /// `start` holds the fiber's own entry and data.
    unsafe extern "C" fn begin(start: *mut u8) -> ! {
        // SAFETY: put there below; and this is the computation's first function.
        unsafe {
            crate::instrument::arrive(core::ptr::null());
            let (entry, data) = start.cast::<(Entry, *mut u8)>().read();
            entry(data)
        }
    }
    let start = top.wrapping_sub(size_of::<(Entry, *mut u8)>());
    // SAFETY: the caller's promise; `top` is aligned.
    unsafe { start.cast::<(Entry, *mut u8)>().write((entry, data)) };
    (start, begin, start, Mark::new(top))
}

#[cfg(not(any(carefree_asan, carefree_tsan)))]
#[inline(always)]
unsafe fn marked(top: *mut u8, entry: Entry, data: *mut u8) -> (*mut u8, Entry, *mut u8, Mark) {
    (top, entry, data, Mark::new(top))
}

mod float;

pub use float::FloatControl;
pub use native::{
    force_no_fsgsbase, fsgsbase, prefetch, prepare, prepare_thread, resume, set_thread_pointer,
    suspend, switch, switch_thread, switch_thread_from_rust, thread_pointer,
};

/// A suspended coroutine-like computation: where its stack ends, where it goes on, and the registers
/// that the compiler does not save.
///
/// It is a plain value without an owner. Whoever holds one must see to it that it is entered
/// ([`switch`]) at most once after each time it was saved, and that its stack lives.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Context {
    sp: *mut u8,
    pc: usize,
    registers: [usize; 2],
}

impl Context {
    /// A context that holds nothing yet: the `from` of a coming [`switch`].
    #[inline]
    pub const fn empty() -> Self {
        Context { sp: core::ptr::null_mut(), pc: 0, registers: [0; 2] }
    }

    /// Where the stack ended when the computation was suspended; null in an empty context.
    #[inline]
    pub const fn stack_pointer(&self) -> *mut u8 {
        self.sp
    }
}

/// A coroutine's two contexts, which together fill a cache line: [`resume`] switches from the second
/// to the first, [`suspend`] back.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Pair {
    /// The coroutine, while it is suspended.
    pub own: Context,
    /// Its resumer, while it is running.
    pub resumer: Context,
}

/// What goes along with a [`switch`], in registers. What it means is the two sides' affair.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// A word whose bytes need not all be initialised, such as a small value of any type.
    pub word: MaybeUninit<usize>,
    /// Another word.
    pub kind: usize,
}

/// A suspended thread-like computation: the stack pointer under which the rest was saved, and the
/// thread pointer, which a fiber keeps for life.
///
/// It is a plain value without an owner. Whoever holds one must see to it that it is entered
/// ([`switch_thread`]) at most once after each time it was saved, and that its stack and its
/// thread-local storage live.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadContext {
    sp: *mut u8,
    tp: *mut u8,
    mark: Mark,
}

impl ThreadContext {
    /// A context of the calling thread, which holds nothing but its thread pointer yet: the `from`
    /// of a coming [`switch_thread`].
    #[inline]
    pub fn of_this_thread() -> Self {
        ThreadContext { sp: core::ptr::null_mut(), tp: thread_pointer(), mark: Mark::running() }
    }

    /// Where the stack ended when the computation was suspended; null if it never was.
    #[inline]
    pub const fn stack_pointer(&self) -> *mut u8 {
        self.sp
    }

    /// The thread pointer under which the computation runs when entered with its own thread-local
    /// storage.
    #[inline]
    pub const fn thread_pointer(&self) -> *mut u8 {
        self.tp
    }

    /// The computation is about to be left and will not be entered again. Sanitizers are to know.
    #[inline(always)]
    pub fn end(&mut self) {
        self.mark.end();
    }

    /// The computation has been left for good, and its stack is free. Sanitizers are to know.
    ///
    /// # Safety
    /// It is so, and the context was made by [`prepare_thread`].
    #[inline(always)]
    pub unsafe fn forget(&mut self) {
        // SAFETY: the caller's promise.
        unsafe { self.mark.forget() };
    }
}
