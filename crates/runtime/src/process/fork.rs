//! `fork(2)` in a program that runs fibers.
//!
//! The child has one thread, the one that called `fork`, and a copy of all memory. Carriers, the
//! offload pool's threads and the watchdog stay behind, and with them all fibers but the caller: the
//! parent's others never run in the child. If a fiber called, its carrier's thread is what goes on,
//! and it never comes back to the carrier: there, the fiber *is* the thread. So it is made one: it
//! waits by blocking, what it calls of libc are the plain calls, and when its function ends the child
//! ends, as a program does whose last thread ends: with status 0, handlers of `atexit` having run.
//!
//! The child may have fibers of its own: the first call to `spawn` or `run` starts a runtime as in
//! any process. A runtime of the parent's refuses new fibers there, and is forgotten when dropped.
//!
//! Waiting in the child for what the parent's fibers would do (joining them, a lock or a semaphore's
//! permit they hold, the end of a scope they belong to) waits for ever, as it does with threads.
//!
//! # What becomes of the runtime's own state
//!
//! | what | in the child |
//! |---|---|
//! | bare stacks, what blocks of thread-local storage are made from; the list of runtimes | their locks are taken before the fork, so they are whole; stacks of fibers that stayed behind are lost |
//! | headers, furnished stacks that idle, the parking lot, the offload pool, the watchdog, the process's runtime | forgotten, and made anew when they are needed |
//! | what is found out once | the child waits for no thread that was finding it: either `prepare` has seen to it that it is known, or each caller finds it by itself |
//! | the loader's lock | no thread of ours holds it: see `carefree_context::loader` |
//! | the lock of std's that its threads take at their beginning and end | not taken: threads are libc's alone, std is told no fiber's name, and what forked does not go back to std's function: see `launch` |
//! | the reactors' descriptors | closed; the parent's are not touched |
//! | a fiber's id as libc has it | the child's, put there by `fork` itself; fibers of the child get other ids than the parent's |
//! | restartable sequences | taken back: the kernel would go on writing to the carrier's thread control block, which libc takes for a dead thread's and gives to the next |
//!
//! Of this, `vfork` and `posix_spawn` need nothing, and run no such handlers: their child does nothing
//! but call exec. `_Fork` runs none either; after it a child may do only what a signal handler may.

use std::ptr;

use carefree_context::{fork, tls};
use carefree_ground::kernel;

use crate::carrier::bucket;
use crate::carrier::carrier;
use crate::carrier::census;
use crate::carrier::lookout;
use crate::carrier::runtimes;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::furnish;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::naming;
use crate::fiber::registry;
use crate::handle::pthread;
use crate::inspect::hooks;
use crate::process::global;
use crate::protocol::generation;
use crate::protocol::sync::membarrier;
use crate::wait::offload;

/// Has forks prepared from now on.
pub(crate) fn prepare_process() {
    // What `prepare` takes is there from now on.
    tls::mode();
    // SAFETY: the handlers are valid for good.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// Takes what the child needs to be whole, in the order in which others nest these locks.
unsafe extern "C" fn prepare() {
    runtimes::hold();
    fork::hold();
}

unsafe extern "C" fn in_parent() {
    // SAFETY: taken by `prepare`, on this thread or (in the child) its origin.
    unsafe {
        fork::release();
        runtimes::release();
    }
}

unsafe extern "C" fn in_child() {
    generation::enter_child();
    // SAFETY: as there; and the thread was not in the reactor.
    unsafe {
        in_parent();
        carefree_reactor::after_fork();
    }
    fork::renew();
    let me = current::try_current();
    if let Some(fiber) = me.filter(|me| me.kind.get() == Kind::Fiber) {
        // SAFETY: the caller is that fiber.
        unsafe {
            take_back_sequences(fiber);
            become_thread(fiber);
        }
    }
    carrier::forget();
    runtimes::for_each(|runtime| {
        for carrier in &runtime.carriers {
            // SAFETY: the only thread is here.
            unsafe { carrier.abandon_reactor() };
        }
    });
    runtimes::renew();
    census::renew();
    lookout::renew();
    if let Some(hooks) = hooks::get() {
        (hooks.forked)();
    }
    // SAFETY: as above.
    unsafe {
        offload::renew();
        furnish::renew();
        pthread::renew();
        bucket::renew();
        naming::renew();
        registry::renew();
        global::renew();
    }
    // The kernel's registration is the parent's.
    membarrier::register();
}

/// Makes the fiber that calls the plain thread it now is.
///
/// # Safety
/// The caller is `fiber`, in the child of a fork.
unsafe fn become_thread(fiber: FiberRef) {
    bed::make(fiber);
    fiber.carrier.set(ptr::null());
    fiber.plain.set(1);
    fiber.kind.set(Kind::Thread);
}

/// Ends the restartable sequences that libc has registered for the carrier's thread.
///
/// # Safety
/// The caller is `fiber`, in the child of a fork.
unsafe fn take_back_sequences(fiber: FiberRef) {
    #[cfg(target_arch = "x86_64")]
    const SIGNATURE: usize = 0x5305_3053;
    #[cfg(target_arch = "aarch64")]
    const SIGNATURE: usize = 0xd428_bc00;
    const UNREGISTER: usize = 1;
    /// How much memory libc registers: what the first version of the interface had, or as much as
    /// the kernel says it uses.
    const SIZE: usize = 32;
    const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;
    if tls::mode().layout().is_none() {
        // The fiber runs under the carrier's own thread pointer, and libc knows that thread.
        return;
    }
    let Some(offset) = tls::rseq_offset() else { return };
    // SAFETY: the caller's promise.
    let area = unsafe { carrier::of(fiber).native_thread_pointer() }.wrapping_offset(offset);
    // SAFETY: asks for a number.
    let later = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as usize;
    for size in [SIZE, later.next_multiple_of(SIZE)] {
        let arguments = [area as usize, size, UNREGISTER, SIGNATURE, 0, 0];
        // SAFETY: refused unless it is what was registered; then the kernel touches it no more.
        if unsafe { kernel::call(libc::SYS_rseq, arguments) }.is_ok() {
            return;
        }
    }
}
