//! What a switch saves and loads: the state of a suspended computation.

use core::mem::MaybeUninit;

use super::thread_pointer::thread_pointer;
use crate::sanitizer::Mark;

/// A suspended coroutine: its stack pointer, the address at which it continues, and the registers that
/// the compiler does not save.
///
/// This is a plain value without an owner. Its holder must ensure that it is entered
/// ([`switch`](super::switch)) at most once after each time it was saved, and that its stack
/// outlives it.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Context {
    pub(super) sp: *mut u8,
    pub(super) pc: usize,
    pub(super) registers: [usize; 2],
}

impl Context {
    /// A context that holds nothing yet: the `from` of a coming [`switch`](super::switch).
    #[inline]
    pub const fn empty() -> Self {
        Context { sp: core::ptr::null_mut(), pc: 0, registers: [0; 2] }
    }

    /// The stack pointer at which the computation was suspended; null in an empty context.
    #[inline]
    pub const fn stack_pointer(&self) -> *mut u8 {
        self.sp
    }
}

/// A coroutine's two contexts, which together fill a cache line: [`resume`](super::resume) switches
/// from the second to the first, [`suspend`](super::suspend) back.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Pair {
    /// The coroutine, while it is suspended.
    pub own: Context,
    /// Its resumer, while the coroutine is running.
    pub resumer: Context,
}

/// Two words that a [`switch`](super::switch) carries to the other side, in registers. Their
/// meaning is for the two sides to agree on.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// A word whose bytes need not all be initialised, such as a small value of any type.
    pub word: MaybeUninit<usize>,
    /// Another word.
    pub kind: usize,
}

/// A suspended fiber: the stack pointer under which the rest was saved, and the thread pointer,
/// which a fiber keeps for life.
///
/// This is a plain value without an owner. Its holder must ensure that it is entered
/// ([`switch_thread`](super::switch_thread)) at most once after each time it was saved, and that
/// its stack and its thread-local storage outlive it.
#[derive(Debug)]
#[repr(C)]
pub struct ThreadContext {
    pub(super) sp: *mut u8,
    pub(super) tp: *mut u8,
    pub(super) mark: Mark,
}

impl ThreadContext {
    /// A context of the calling thread, which holds nothing but its thread pointer yet: the `from`
    /// of a coming [`switch_thread`](super::switch_thread).
    #[inline]
    pub fn of_this_thread() -> Self {
        ThreadContext { sp: core::ptr::null_mut(), tp: thread_pointer(), mark: Mark::running() }
    }

    /// The stack pointer at which the computation was suspended; null if it never was.
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

    /// Tells sanitizers that the next switch away from this computation is its last.
    #[inline(always)]
    pub fn end(&mut self) {
        self.mark.end();
    }

    /// Tells sanitizers that the computation has been left for good and its stack is free.
    ///
    /// # Safety
    /// The computation is never entered again, and the context was made by
    /// [`prepare_thread`](super::prepare_thread).
    #[inline(always)]
    pub unsafe fn forget(&mut self) {
        // SAFETY: `prepare_thread` made the mark with the context, and a computation that is never
        // entered again does not use it.
        unsafe { self.mark.forget() };
    }
}
