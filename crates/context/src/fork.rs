//! `fork(2)` in a process with stacks and blocks: what must not be in the middle of a change.
//!
//! The child has a copy of the memory and one thread. What another thread was changing stays half
//! changed there, and its locks stay locked. So before a fork the locks of what the child needs are
//! taken, and afterwards they are given back on both sides: see [`hold`] and [`release`], which a
//! program's room above this one calls by `pthread_atfork`.

use crate::loader;
use crate::stack::StackPool;
use crate::tls;

/// Keeps all other threads from changing the process's stacks and what thread-local storage is made
/// from, and from asking the [loader], until [`release`]. They wait meanwhile; nothing else is done to them.
pub fn hold() {
    // Looking at libraries takes the stacks' lock, not the other way round, and asks the loader.
    tls::hold();
    StackPool::global().hold();
    loader::hold();
}

/// To be called in the child after [`release`]: fibers there are to be told from the parent's.
///
/// libc knows fibers by ids that look like threads', and so do mutexes that remember their owners.
/// Those in memory that both processes share must not take a fiber of the one for a fiber of the
/// other. So blocks of thread-local storage built in the child from now on have ids that the parent
/// does not give; those that were there before should not be used for other fibers any more.
pub fn renew() {
    tls::renew();
}

/// Ends [`hold`].
///
/// # Safety
/// The calling thread, or the one of the parent process that it was forked from, holds them.
pub unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe {
        loader::release();
        StackPool::global().release();
        tls::release();
    }
}
