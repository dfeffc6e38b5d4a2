//! A call on another stack.

use std::convert::Infallible;
use std::io;
use std::mem::ManuallyDrop;

use super::message::{self, Finished};
use super::{create, switch, unwind, word};
use crate::stack::Stack;

/// Calls `f` on `stack` and returns its value; the stack goes back to its pool.
///
/// The call is a coroutine that runs to its end at once while its caller waits, so it is sound for
/// every `f`.
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
/// When there is no memory for the signal handler that reports overflows, or the stack is too small.
///
/// # Panics
///
/// With `f`'s panic, if it panics.
pub fn call_on_stack<R>(stack: Stack, f: impl FnOnce() -> R) -> io::Result<R> {
    // The coroutine's closure borrows `f`, so captures of any size stay in this frame.
    let mut f = Some(f);
    let call = |_, ()| f.take().map(|f| f());
    let control = create::create::<(), Infallible, _, _>(stack, call)?;
    // SAFETY: the coroutine was just made, so it is suspended, has these types, and has no other
    // handle. It has no suspender, so its only message is its last.
    let result = unsafe {
        let (word, _) = switch::enter(control, word::pack(&ManuallyDrop::new(())), message::INPUT);
        Finished::take(word)
    };
    let Some(value) = unwind::unwrap(result) else { unreachable!("it is called once") };
    Ok(value)
}
