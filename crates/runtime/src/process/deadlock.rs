//! Deadlocks: said, not hung in.
//!
//! A plain thread that waits for a fiber, for a scope, or for a permit looks once a second whether
//! that can still end. If every carrier sleeps, no timer is set and nothing is queued, no fiber can
//! wake another. Then only a plain thread could. If all threads of the process are carriers or wait
//! here themselves, without a time limit, there is none: the process is told what waits for what, and
//! aborted. Otherwise the same is printed, once, as a suspicion, after [`SUSPECT`] seconds of
//! silence.
//!
//! # No false alarm
//!
//! *Threads.* A thread is counted as waiting before its wait can be ended, and taken out of the
//! count by the party that ends it, not when it gets around to run: so one that is counted was not woken. No thread
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

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carefree_ground::file;
use carefree_ground::text::Text;

use crate::carrier::carrier::Shared;
use crate::carrier::census::{self, Seen};
use crate::carrier::clock;
use crate::carrier::runtimes;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::header::FINISHED;
use crate::fiber::registry;
use crate::inspect::hooks;
use crate::protocol::reason::Reason;
use crate::wait::cancel::shield;
use crate::wait::offload;
use crate::wait::park;

/// Looks without any sign of life before a suspicion is printed.
const SUSPECT: u32 = 10;

/// Looks after the end of a runtime: its owner waits for its fibers, however long.
pub(crate) fn watch_end(runtime: &Shared) {
    let on_fiber = current::current_fiber().is_some();
    if !on_fiber {
        census::thread_waits();
    }
    let mut seen = Seen::default();
    let mut steps = 0u32;
    while !runtime.has_stopped() {
        let step = Duration::from_micros(100 << steps.min(8));
        steps += 1;
        if on_fiber {
            shield(|| park::sleep_until(clock::after(step), Reason::Sleep));
            continue;
        }
        std::thread::sleep(step);
        if steps % 40 == 0 {
            look(&mut seen);
        }
    }
    if !on_fiber {
        census::thread_woken();
    }
}

/// A look of a plain thread that waits: see [`census`].
pub(crate) fn look(seen: &mut Seen) {
    let offload_threads = offload::threads();
    let mut dormant = offload::under_way() == 0;
    let (mut alive, mut carriers) = (0, 0);
    let mut activity = census::waits();
    let mut threads = false;
    runtimes::for_each(|runtime| {
        threads |= runtime.has_threads();
        dormant &= runtime.is_dormant();
        alive += runtime.alive();
        activity += runtime.activity();
        carriers += runtime.carriers.len();
    });
    if threads && dormant {
        dormant = spawned_threads_wait();
    }
    let before = std::mem::replace(&mut seen.activity, dormant.then_some(activity));
    if !dormant || alive == 0 || before != Some(activity) {
        seen.silent = 0;
        return;
    }
    seen.silent += 1;
    let status = file::read(c"/proc/self/status");
    let status = status.as_deref().unwrap_or_default();
    let threads = number_after(b"Threads:", 10, status).map_or(usize::MAX, |n| n as usize);
    // Threads of the offload pool, idle all of them, wait for fibers to give them something to do.
    // If one has ended meanwhile, the next look will tell.
    let idle = offload_threads + census::waiting();
    let watching = hooks::get().map_or(0, |hooks| (hooks.threads)());
    let none_left = threads == carriers + watching + idle
        && offload::threads() == offload_threads
        && !a_handler_may_wake(status);
    if none_left {
        report("deadlock: every fiber waits, and no thread is left that could wake one");
        std::process::abort();
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    if seen.silent == SUSPECT && !SAID.swap(true, Ordering::Relaxed) {
        report("every fiber waits; unless another thread wakes one, this is a deadlock");
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
fn a_handler_may_wake(status: &[u8]) -> bool {
    let mut waited = false;
    registry::for_each_alive(|fiber| {
        let reason = Reason::from_code(fiber.reason.load(Ordering::Relaxed));
        waited |= fiber.episode.is_waiting() && reason == Reason::PosixSemaphore;
    });
    let handled = number_after(b"SigCgt:", 16, status);
    waited && handled.is_none_or(|signals| signals & !OURS != 0)
}

/// Signals with handlers of `std`'s (a fault), ours (that, and the watchdog's) and libc's (32 and 33:
/// cancellation and `set*id`), as bits; none of these handlers posts anything.
const OURS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGURG) | bit(32) | bit(33);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// The number after `field` in what the kernel tells of this process; `None` if it tells nothing.
fn number_after(field: &[u8], radix: u32, status: &[u8]) -> Option<u64> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(std::str::from_utf8(line).ok()?.trim(), radix).ok()
}

/// Prints `what`, and which fibers and threads wait for what, to standard error.
fn report(what: &str) {
    let mut text = Text::of(format_args!("carefree: {what}\n"));
    let waits = text.len();
    if let Some(hooks) = hooks::get() {
        (hooks.list_waiters)(&mut text);
    }
    // (The words of `Reason::Park` alone: those of std's park are others.)
    if text[waits..].contains(" is parked until ") {
        text.say(format_args!(
            "  (Carefree's park is ended by Carefree's unpark, not by that of a handle of std's)\n"
        ));
    }
    text.print();
}
