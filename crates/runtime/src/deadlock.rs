//! Deadlocks: said, not hung in.
//!
//! A plain thread that waits for a fiber, for a scope, or for a permit looks once a second whether
//! that can still end. If every carrier sleeps, no timer is set and nothing is queued, no fiber can
//! wake another. Then only a plain thread could. If all threads of the process are carriers or wait
//! here themselves, without a time limit, there is none: the process is told who waits for what, and
//! aborted. Otherwise the same is printed, once, as a suspicion, after [`SUSPECT`] seconds of
//! silence.
//!
//! # No false alarm
//!
//! *Threads.* A thread is counted as waiting before its wait can be ended, and taken out of the
//! count by who ends it, not when it gets around to run: so who is counted was not woken. No thread
//! may have begun such a wait between the two looks, so those that the second look counts have all
//! been waiting since the first; and if they are as many as the process has threads, there was no
//! other at the second look that could have started or woken one.
//!
//! *Threads in place of fibers* are threads: nothing is dormant unless all of them wait so.
//!
//! *Fibers.* The runtimes are looked at one after the other, and while one is looked at another may
//! wake a fiber of it. So two looks in a row must find all of them dormant, with no fiber entered
//! from the first to the second. Suppose that a fiber was ready or running after the first look. It
//! was made ready by one that ran later than the first look at its own runtime, and so on back to
//! one that was running or ready at that look; which found it so, or found it not, and then it was
//! entered later and counted. A fiber that waits for an offloaded call is as good as running, and so
//! nothing is dormant while such calls are under way; they are asked for before the runtimes are
//! looked at, since a call that begins after that was begun by a fiber.
//!
//! *Handlers of signals.* They run on threads that wait, and may do one thing that ends a wait:
//! `sem_post`. So where a fiber waits for a semaphore of C's and the program handles signals, there is
//! a suspicion at most.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::bed;
use crate::cancel::shield;
use crate::dump;
use crate::fiber::FINISHED;
use crate::offload;
use crate::reason::Reason;
use crate::registry;
use crate::rest;
use crate::runtime::Shared;
use crate::wait;
use crate::watch;
use carefree_context::lock::Lock;

/// Time between two looks.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// Looks without any sign of life before a suspicion is printed.
const SUSPECT: u32 = 10;

static RUNTIMES: Lock<Vec<usize>> = Lock::new(Vec::new());
/// Plain threads that wait without a time limit, and nobody has ended their wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// Such waits begun since the start of the process.
static WAITS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn register(runtime: &Shared) {
    // The caller may be a fiber; an allocator must not park it with the lock held.
    wait::without_parking(|| RUNTIMES.lock().push(std::ptr::from_ref(runtime) as usize));
}

pub(crate) fn unregister(runtime: &Shared) {
    let address = std::ptr::from_ref(runtime) as usize;
    RUNTIMES.lock().retain(|other| *other != address);
}

/// Keeps others from changing the list of runtimes until it is [released](release): see
/// [`crate::fork`].
pub(crate) fn hold() {
    RUNTIMES.hold();
}

/// # Safety
/// The caller holds it.
pub(crate) unsafe fn release() {
    // SAFETY: the caller's promise.
    unsafe { RUNTIMES.release() };
}

/// Forgets the runtimes and the threads that wait: in the child of a fork.
pub(crate) fn renew() {
    RUNTIMES.lock().clear();
    WAITING.store(0, Ordering::SeqCst);
}

/// Visits the runtimes of this process that are running.
pub(crate) fn for_each_runtime(mut visit: impl FnMut(&Shared)) {
    for address in RUNTIMES.lock().iter() {
        // SAFETY: registered while it lives, and unregistering waits for the lock.
        visit(unsafe { &*(*address as *const Shared) });
    }
}

/// A plain thread is about to wait without a time limit.
pub(crate) fn thread_waits() {
    WAITS.fetch_add(1, Ordering::SeqCst);
    WAITING.fetch_add(1, Ordering::SeqCst);
}

/// Its wait was ended.
pub(crate) fn thread_woken() {
    WAITING.fetch_sub(1, Ordering::SeqCst);
}

/// Looks after the end of a runtime: its owner waits for its fibers, however long.
pub(crate) fn watch_end(runtime: &Shared) {
    let on_fiber = wait::current_fiber().is_some();
    if !on_fiber {
        thread_waits();
    }
    let mut watch = Watch::default();
    let mut steps = 0u32;
    while !runtime.has_stopped() {
        let step = Duration::from_micros(100 << steps.min(8));
        steps += 1;
        if on_fiber {
            shield(|| rest::sleep(step));
            continue;
        }
        std::thread::sleep(step);
        if steps % 40 == 0 {
            watch.look();
        }
    }
    if !on_fiber {
        thread_woken();
    }
}

/// What the look before has seen.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Switches made so far, if all runtimes were dormant.
    activity: Option<u64>,
    silent: u32,
}

impl Watch {
    pub(crate) fn look(&mut self) {
        let offload_threads = offload::threads();
        let mut dormant = offload::under_way() == 0;
        let (mut alive, mut carriers) = (0, 0);
        let mut activity = WAITS.load(Ordering::SeqCst);
        let mut threads = false;
        for_each_runtime(|runtime| {
            threads |= runtime.has_threads();
            dormant &= runtime.is_dormant();
            alive += runtime.alive();
            activity += runtime.activity();
            carriers += runtime.carriers.len();
        });
        if threads && dormant {
            dormant = spawned_threads_wait();
        }
        let before = std::mem::replace(&mut self.activity, dormant.then_some(activity));
        if !dormant || alive == 0 || before != Some(activity) {
            self.silent = 0;
            return;
        }
        self.silent += 1;
        let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
        // Threads of the offload pool, idle all of them, wait for fibers to give them something to do.
        // If one has ended meanwhile, the next look will tell.
        let idle = offload_threads + WAITING.load(Ordering::SeqCst);
        let nobody = threads == carriers + watch::threads() + idle
            && offload::threads() == offload_threads
            && !a_handler_may_wake();
        if nobody {
            report("deadlock: every fiber waits, and no thread is left that could wake one");
            std::process::abort();
        }
        static SAID: AtomicBool = AtomicBool::new(false);
        if self.silent == SUSPECT && !SAID.swap(true, Ordering::Relaxed) {
            report("every fiber waits; unless another thread wakes one, this is a deadlock");
        }
    }
}

/// Whether every thread that was started in place of a fiber waits without a time limit, or has
/// finished.
fn spawned_threads_wait() -> bool {
    let mut all = true;
    registry::for_each_alive(|thread| {
        all &= !bed::is_spawned(thread)
            || thread.episode.is_counted()
            || thread.join.load(Ordering::Acquire) & FINISHED != 0;
    });
    all
}

/// Whether a fiber waits for a semaphore that a handler of the program's could post.
fn a_handler_may_wake() -> bool {
    let mut waited = false;
    registry::for_each_alive(|fiber| {
        let reason = Reason::from_code(fiber.reason.load(Ordering::Relaxed));
        waited |= fiber.episode.is_waiting() && reason == Reason::PosixSemaphore;
    });
    waited && handled_signals().is_none_or(|signals| signals & !OURS != 0)
}

/// Signals with handlers of `std`'s (a fault), ours (that, and the watchdog's) and libc's (32 and 33:
/// cancellation and `set*id`), as bits; none of these handlers posts anything.
const OURS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGURG) | bit(32) | bit(33);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals that this process has handlers for; `None` if that cannot be found out.
fn handled_signals() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
    u64::from_str_radix(caught.trim(), 16).ok()
}

/// Prints `what` and who waits for what to standard error.
fn report(what: &str) {
    let mut text = format!("carefree: {what}\n{}", dump::waiters());
    if text.contains(&Reason::Park.to_string()) {
        text +=
            "  (Carefree's park is ended by Carefree's unpark, not by that of a handle of std's)\n";
    }
    // One write, so that it is not torn; not `eprintln`, whose lock a fiber may hold.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
