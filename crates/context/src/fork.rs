//! `fork(2)` in a process with stacks and blocks: what must not be in the middle of a change.
//!
//! The child has a copy of the memory and one thread. What another thread was changing stays half
//! changed there, and its locks stay locked. So the locks of all that the child needs are taken
//! before a fork and released afterwards, in the parent and in the child: see [`hold`] and
//! [`release`], which the crate above calls by `pthread_atfork`.

use crate::loader;
use crate::stack::StackPool;
use crate::tls;

/// Makes what [`hold`] locks, for which memory may be needed: to be called before the first fork.
pub fn prepare() {
    StackPool::global();
}

/// Blocks all other threads from changing the process's stacks and blocks of thread-local storage, and from iterating
/// over the [loader]'s objects, until [`release`].
///
/// The caller may have the program's allocator locked. A thread that has the lock of stacks or of blocks asks the
/// allocator for nothing. A thread that iterates may wait for another that does, so `hold` waits for it only for a while.
/// One thread at a time calls this, until it has called `release`.
pub fn hold() {
    tls::hold();
    StackPool::global().hold();
    loader::hold();
}

/// Makes the child's fibers differ from the parent's; to be called in the child after [`release`].
///
/// libc identifies fibers by ids, as it does threads, and so do mutexes that record their owners. A
/// mutex in memory that both processes share must not take a fiber of the one for a fiber of the
/// other. So blocks of thread-local storage built in the child from now on have ids that the parent
/// does not use; existing blocks should not be used for other fibers any more.
///
/// # Safety
/// The caller is the only thread of the child, and was in no call of this crate when it forked.
pub unsafe fn renew() {
    // SAFETY: as this function demands.
    unsafe {
        loader::renew();
        tls::renew();
    }
}

/// Undoes [`hold`].
///
/// # Safety
/// The caller called `hold`, or its parent process did before a fork.
pub unsafe fn release() {
    // SAFETY: `hold` has locked the first and the last; the loader's lock knows whether it did.
    unsafe {
        loader::release();
        StackPool::global().release();
        tls::release();
    }
}
