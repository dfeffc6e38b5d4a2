//! Calls that need more stack than a fiber has.

use carefree_context::coroutine::call_on_stack;
use carefree_context::stack::{Stack, StackPool, StackSize};

/// What a call takes of its stack itself.
const OWN: usize = 16 << 10;
/// The least that is taken: all of 4 MiB but the guard. From this size on, guards are as large as they
/// get.
const LEAST: usize = (3 << 20) - OWN;

/// Calls `f` on a stack of at least `bytes` bytes, on the same fiber or thread, and returns its value.
///
/// For what goes deeper than a fiber's stack allows: a recursive parser, C code with large frames.
/// Below such a stack lies a guard of 1 MiB, so it is also the place for C code that was not compiled
/// with `-fstack-clash-protection`, of which one large frame may step over a smaller guard.
///
/// Thread-local variables, [`current`](crate::current) and the rest stay the caller's; `f` may wait,
/// panic, and call `on_large_stack` again. Where fibers have thread-local storage of their own,
/// `pthread_getattr_np` of the caller tells of the large stack meanwhile.
///
/// Stacks are kept for the next call, so it costs little more than two switches. It is not as what
/// crates like `stacker` do, which first look whether the current stack has enough left: here the
/// large stack is always taken, so call it where the depth begins, not at each level.
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
