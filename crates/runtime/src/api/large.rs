//! Calls that need more stack than a fiber has.

use carefree_context::coroutine::call_on_stack;
use carefree_context::stack::{Stack, StackPool, StackSize};

/// Bytes of the stack that the call itself takes.
const OWN: usize = 16 << 10;
/// The least size: that of 4 MiB, without the guard. From this size on, guards have their full size.
const LEAST: usize = (3 << 20) - OWN;

/// Calls `f` on a stack of at least `bytes` bytes, on the same fiber or thread, and returns its value.
///
/// For calls that go deeper than a fiber's stack allows: a recursive parser, C code with large frames.
/// Below such a stack lies a guard of 1 MiB. So it is also for C code that was not compiled with
/// `-fstack-clash-protection`, one large frame of which may step over a smaller guard.
///
/// Thread-local variables, [`current`](crate::current) and the rest stay the caller's; `f` may wait,
/// panic, and call `on_large_stack` again. Where fibers have thread-local storage of their own,
/// `pthread_getattr_np` of the caller tells of the large stack meanwhile.
///
/// Stacks are kept for the next call, so it costs little more than two switches. Crates like `stacker`
/// first look whether the current stack has enough left; this does not. So call it where the depth begins,
/// not at each level.
///
/// # Panics
/// With `f`'s panic, if it panics; and when there is no memory for such a stack.
///
/// ```
/// fn depth(n: u64) -> u64 {
///     let frame = std::hint::black_box([n; 128]);
///     if n == 0 { 0 } else { depth(n - 1) + frame[5] - n + 1 }
/// }
/// let handle = carefree_runtime::spawn(|| {
///     carefree_runtime::on_large_stack(64 << 20, || depth(10_000))
/// });
/// assert_eq!(handle.join().unwrap(), 10_000);
/// ```
pub fn on_large_stack<F, R>(bytes: usize, f: F) -> R
where
    F: FnOnce() -> R,
{
    let stack = match acquire(bytes) {
        Ok(stack) => stack,
        Err(error) => panic!("no large stack: {error}"),
    };
    match call_on_stack(stack, f) {
        Ok(value) => value,
        Err(error) => panic!("no large stack: {error}"),
    }
}

fn acquire(bytes: usize) -> std::io::Result<Stack> {
    let size = StackSize::new(bytes.max(LEAST).saturating_add(OWN))?;
    StackPool::global().acquire(size)
}
