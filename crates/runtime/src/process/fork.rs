//! `fork(2)` in a program that runs fibers.
//!
//! The child has one thread, the one that called `fork`, and a copy of all memory. It has none of the
//! parent's other threads (carriers, the offload pool's, the watchdog's), and none of the parent's fibers
//! runs there but the caller. If a fiber called `fork`, its carrier's thread goes on with it, and never
//! comes back to the carrier's own context: in the child, the fiber *is* the thread. So it is made one. It
//! waits by blocking, what it calls of libc is libc's own, and when its function returns, the child ends as
//! at the end of its last thread: with status 0, after the handlers of `atexit`.
//!
//! The child may have fibers of its own: the first call to `spawn` or `run` starts a runtime as in
//! any process. A runtime of the parent's refuses new fibers there, and is forgotten when dropped.
//!
//! Waiting in the child for what the parent's fibers would do (joining them, a lock or a semaphore's
//! permit they hold, the end of a scope they belong to) waits for ever, as it does with threads.
//!
//! # No memory from the program's allocator
//!
//! libc calls a program's handlers that prepare a fork before the runtime's, and those that follow it after
//! these. An allocator that has such handlers (jemalloc, tcmalloc, Chromium's) is locked between them, by the thread
//! that forks: so the runtime's, and what they call of a host's, neither allocate nor free.
//! What the child does not need is leaked there. And where the holder of a lock may ask the allocator for memory, or wait
//! for a thread that does, the handlers wait for that lock only for a while.
//!
//! # What becomes of the runtime's own state
//!
//! | what | in the child |
//! |---|---|
//! | bare stacks, blocks of thread-local storage; the list of runtimes | their locks are taken before the fork, so they are consistent; stacks of the parent's fibers are lost |
//! | what blocks are made from | the child forgets an examination of libraries that was under way |
//! | the parking lot's buckets | the kernel wipes them |
//! | headers, furnished stacks that idle, the offload pool, the watchdog, the process's runtime | forgotten, and made anew when they are needed |
//! | what is found out once, when it is first needed | the child must not wait for a thread of the parent's to find it: either it is known before the first fork (`prepare_process`), or each caller finds it by itself |
//! | the loader's lock | no thread of the runtime's holds it: see `carefree_context::loader` |
//! | the lock of std's that its threads take at their beginning and end | not taken in the child: its threads are libc's alone, fibers' names are not told to std, and what has forked does not return to std's function: see `launch` |
//! | the reactors' descriptors | closed; the parent's are not touched |
//! | the thread id that libc keeps for a fiber | the calling fiber's is the child's, written by `fork` itself; the child's other fibers get ids that the parent's do not have |
//! | restartable sequences | unregistered: the kernel would go on writing to the carrier's thread control block, which libc takes for that of a thread that has ended, and uses again |
//!
//! Of this, `vfork` and `posix_spawn` need nothing, and run no such handlers: their child does nothing
//! but call exec. `_Fork` runs none either; after it a child may do only what a signal handler may.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use carefree_context::{arch, fork, tls};
use carefree_ground::lock::Lock;

use crate::carrier::bucket;
use crate::carrier::carrier;
use crate::carrier::census;
use crate::carrier::lookout;
use crate::carrier::runtimes;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::header::{FiberRef, Kind};
use crate::fiber::idle;
use crate::fiber::naming;
use crate::fiber::registry;
use crate::fiber::sequences;
use crate::handle::pthread;
use crate::inspect::hooks;
use crate::process::global;
use crate::process::monitor;
use crate::process::rescuer;
use crate::protocol::generation;
use crate::protocol::sync::membarrier;
use crate::wait::offload;

/// Whether the handlers have something to do.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Held by a thread from `prepare` on, until it has given back what that took.
static FORKS: Lock<()> = Lock::new(());

/// The thread pointer of the caller of `fork` that holds the locks; 0 if none does.
static HOLDER: AtomicUsize = AtomicUsize::new(0);

/// What a host does at forks.
///
/// The runtime's handlers call these. Were they handlers of the host's own, their order among the runtime's would depend
/// on which were installed first.
#[derive(Clone, Copy, Debug)]
pub struct ForkHooks {
    /// Before the runtime's locks are taken: what is to last until after they are given back.
    pub hold: fn(),
    /// When they have been taken.
    pub before: fn(),
    /// In the parent, when the locks have been given back.
    pub let_go: fn(),
    /// In the child, before the runtime forgets that its caller was a hosted thread.
    pub first_in_child: fn(),
    /// In the child, when the runtime has forgotten all of the parent's.
    pub in_child: fn(),
}

static HOOKS: OnceLock<ForkHooks> = OnceLock::new();

/// Has a host's hooks called at each fork, from now on; those that are given first.
pub fn set_fork_hooks(hooks: ForkHooks) {
    let _ = HOOKS.set(hooks);
}

/// Prepares for forks, once in a process.
pub(crate) fn prepare_process() {
    // Finds out what the child could not, and makes the locks that `prepare` takes.
    tls::mode();
    fork::prepare();
    bucket::prepare();
    install_fork_handlers();
    PREPARED.store(true, Ordering::SeqCst);
}

/// Installs the handlers of forks, once in a process.
///
/// # Before the program's
///
/// libc calls the handlers that prepare a fork in the opposite order of their installation. If a handler of the
/// program's runs after `prepare` and waits, for a mutex say, other fibers run on the carrier, and block it when they
/// need a lock that `prepare` has taken. So these are installed before all others.
pub fn install_fork_handlers() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::SeqCst) {
        // SAFETY: the handlers are functions of this program, and may be called at any fork.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    }
}

/// Takes the locks of what must be consistent in the child, in the order in which other code nests them.
unsafe extern "C" fn prepare() {
    let host = HOOKS.get();
    if let Some(host) = host {
        (host.hold)();
    }
    // (Another thread may prepare the process amid this fork: `HOLDER` tells what is to be undone.)
    if PREPARED.load(Ordering::SeqCst) {
        FORKS.hold();
        runtimes::hold();
        fork::hold();
        HOLDER.store(arch::thread_pointer() as usize, Ordering::Relaxed);
    }
    if let Some(host) = host {
        (host.before)();
    }
}

unsafe extern "C" fn in_parent() {
    give_back();
    if let Some(host) = HOOKS.get() {
        (host.let_go)();
    }
}

/// Gives back what `prepare` has taken.
fn give_back() {
    if HOLDER.load(Ordering::Relaxed) != arch::thread_pointer() as usize {
        return;
    }
    HOLDER.store(0, Ordering::Relaxed);
    // SAFETY: `prepare` has taken them, on this thread or, in the child, on its parent's, but for those that it gave up,
    // which know so.
    unsafe {
        fork::release();
        runtimes::release();
        FORKS.release();
    }
}

unsafe extern "C" fn in_child() {
    let host = HOOKS.get();
    if let Some(host) = host {
        (host.first_in_child)();
    }
    if PREPARED.load(Ordering::SeqCst) {
        forget_parent();
    }
    if let Some(host) = host {
        (host.in_child)();
    }
}

/// Has the child go on without the parent's threads and fibers.
fn forget_parent() {
    generation::enter_child();
    // SAFETY: `prepare` was called on the parent's thread. The thread has called `fork`, so it is
    // neither in the reactor nor in the crate of stacks and blocks, and visits no runtimes.
    unsafe {
        give_back();
        runtimes::reopen();
        fork::renew();
        carefree_reactor::after_fork();
    }
    let me = current::try_current();
    if let Some(fiber) = me.filter(|me| me.kind.get() == Kind::Fiber) {
        // SAFETY: handlers of a fork run on the stack of its caller, which is this fiber.
        unsafe {
            if tls::mode().layout().is_some() {
                // The kernel would go on writing to the carrier's thread control block. (Otherwise the fiber
                // runs under the carrier's own thread pointer, and libc knows that thread.)
                sequences::take_back(carrier::of(fiber).native_thread_pointer());
            }
            become_thread(fiber);
        }
    }
    carrier::forget();
    runtimes::for_each(|runtime| {
        for carrier in &runtime.carriers {
            // SAFETY: this is the only thread, and it has called `fork`, so it is not in the reactor.
            unsafe { carrier.abandon_reactor() };
        }
    });
    runtimes::renew();
    census::renew();
    lookout::renew();
    monitor::renew();
    rescuer::renew();
    if let Some(hooks) = hooks::get() {
        (hooks.forked)();
    }
    // SAFETY: this is the only thread, and it has called `fork`, so it is in none of these.
    unsafe {
        offload::renew();
        idle::renew();
        pthread::renew();
        bucket::renew();
        naming::renew();
        registry::renew();
        global::renew();
    }
    // The registration was for the parent.
    membarrier::register();
}

/// Turns the calling fiber into a plain thread.
///
/// # Safety
/// The caller is `fiber`, in the child of a fork.
unsafe fn become_thread(fiber: FiberRef) {
    bed::make_in_child(fiber);
    fiber.carrier.set(ptr::null());
    fiber.plain.set(1);
    fiber.kind.set(Kind::Thread);
}
