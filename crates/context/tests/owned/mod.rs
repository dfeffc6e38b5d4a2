//! Owned coroutines, for tests that need no scope.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io;

use carefree_context::coroutine::{Coroutine, Suspender, SymmetricSuspender};
use carefree_context::stack::StackSize;

/// [`Coroutine::new`], for bodies that neither keep a reference to a thread-local variable over a suspension
/// nor are suspended within a call that sets one.
pub(crate) fn owned<Input: 'static, Yield: 'static, Return: 'static>(
    f: impl FnOnce(&Suspender<Input, Yield>, Input) -> Return + 'static,
) -> Coroutine<Input, Yield, Return> {
    // SAFETY: no body in these tests keeps a reference to a thread-local variable over a suspension, or is
    // suspended within a call that sets one.
    unsafe { Coroutine::new(f) }
}

/// [`owned`], on a stack of this size.
pub(crate) fn owned_on<Input: 'static, Yield: 'static, Return: 'static>(
    size: StackSize,
    f: impl FnOnce(&Suspender<Input, Yield>, Input) -> Return + 'static,
) -> io::Result<Coroutine<Input, Yield, Return>> {
    // SAFETY: as for `owned`.
    unsafe { Coroutine::with_stack_size(size, f) }
}

/// [`owned`], symmetric.
pub(crate) fn symmetric<Input: 'static, Yield: 'static, Return: 'static>(
    f: impl FnOnce(&SymmetricSuspender<Input, Yield, Return>, Input) -> Return + 'static,
) -> Coroutine<Input, Yield, Return> {
    // SAFETY: as for `owned`.
    unsafe { Coroutine::symmetric(f) }
}
