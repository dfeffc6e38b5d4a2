//! A call on another stack.

use std::convert::Infallible;
use std::io;
use std::mem::ManuallyDrop;

use super::control::{self, Finished, arrival};
use super::{tell_of_overflows, unwind, word};
use crate::stack::Stack;

/// Calls `f` on `stack`, and returns what it returns; the stack goes back to its pool.
///
/// It is a coroutine that runs to its end at once, so it is sound for every `f`: its caller waits.
///
/// ```
/// use carefree_context::coroutine::call_on_stack;
/// use carefree_context::stack::{StackPool, StackSize};
///
/// let words = vec!["on", "another"];
/// let stack = StackPool::global().acquire(StackSize::new(8 << 20)?)?;
/// let range = stack.limit() as usize..stack.top() as usize;
/// let inside = call_on_stack(stack, || {
///     assert_eq!(words.len(), 2);
///     let local = 0;
///     range.contains(&(&raw const local as usize))
/// })?;
/// assert!(inside);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// When there is no memory for the signal handler that tells of overflows, or the stack is too small.
///
/// # Panics
///
/// With `f`'s panic, if it panics.
pub fn call_on_stack<R>(stack: Stack, f: impl FnOnce() -> R) -> io::Result<R> {
    tell_of_overflows()?;
    // What `f` captures stays here, whatever its size.
    let mut f = Some(f);
    let call = |_, ()| f.take().map(|f| f());
    let control = control::create::<(), Infallible, _, _>(stack, call)?;
    // SAFETY: the coroutine is suspended, at its start, and has these types. It has no suspender, so
    // what comes back is its end.
    let result = unsafe {
        let (word, _) = control::enter(control, word::pack(&ManuallyDrop::new(())), arrival::INPUT);
        Finished::take(word)
    };
    let Some(value) = unwind::unwrap(result) else { unreachable!("it is called once") };
    Ok(value)
}
