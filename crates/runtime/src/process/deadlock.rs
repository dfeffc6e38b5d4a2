//! The search for deadlocks.
//!
//! A plain thread that waits for a fiber, for a scope, or for a permit looks once a second whether
//! that wait can still end. If every carrier sleeps, no timer is set and nothing is queued (all runtimes are
//! *dormant*), no fiber can wake another. Then only a plain thread could. If all threads of the process are
//! carriers, or wait here themselves without a time limit, none is left: what waits for what is printed, and
//! the process aborted. Otherwise the same is printed as a suspicion, once, after [`SUSPECT`] seconds in
//! which nothing has happened.
//!
//! # No false alarm
//!
//! *Threads.* A thread is counted as waiting before its wait can be ended, and taken out of the count by the
//! party that ends the wait: so a thread that is counted was not woken. There must be no such wait that was
//! begun between two looks in a row; so the threads that the second look counts have all been waiting since
//! the first. If they are as many as the process has threads, there was no other thread at the second look
//! that could have started or woken one.
//!
//! *Threads in place of fibers* are threads: nothing is dormant unless all of them wait without a limit.
//!
//! *Fibers.* A look takes one runtime after the other, and in the meantime another may wake a fiber of one
//! that was looked at. So two looks in a row must find all runtimes dormant, and no fiber may have been
//! entered from the first to the second. Suppose that a fiber was ready or running after the first look. It
//! was made ready by a fiber that ran after the first look at its own runtime, which was made ready likewise,
//! and so on, back to a fiber that was ready or running during that look. Either the look has found that one,
//! so the runtime was not dormant; or it has missed it, and the fiber was entered later, which is counted.
//! A fiber that waits for an offloaded call counts as running: nothing is dormant while such calls are under
//! way. They are counted before the look at the runtimes, for a later call was begun by a fiber that ran.
//!
//! *Signal handlers* run on threads that wait. They may post a semaphore, jump out of the wait, or end the
//! process in their own way. So where the program handles signals, there is a suspicion at most.

use std::time::Duration;

use carefree_ground::file;
use carefree_ground::text::Text;

use crate::carrier::carrier::Shared;
use crate::carrier::census::{self, Seen};
use crate::carrier::clock;
use crate::carrier::runtimes;
use crate::fiber::bed;
use crate::fiber::current;
use crate::fiber::registry;
use crate::inspect::hooks;
use crate::process::{monitor, rescuer};
use crate::protocol::reason::Reason;
use crate::protocol::sync::{AtomicBool, Ordering};
use crate::wait::cancel::shield;
use crate::wait::offload;
use crate::wait::park;

/// Looks in a row for which nothing has happened before a suspicion is printed.
const SUSPECT: u32 = 10;

/// Waits until all fibers of a runtime that is dropped have ended, and looks for a deadlock meanwhile.
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

/// Looks for a deadlock, on a plain thread that waits. `seen` is what it has seen by the looks before.
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
        carriers += runtime.carriers.iter().filter(|carrier| carrier.thread() != 0).count();
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
    // No call is under way, so the offload pool's threads are idle and wait for fibers. (One may just have
    // ended; then this look finds no deadlock, and the next one does.)
    let idle = offload_threads + census::waiting();
    let watching = hooks::get().map_or(0, |hooks| (hooks.threads)());
    let none_left = threads == carriers + monitor::threads() + rescuer::threads() + watching + idle
        && offload::threads() == offload_threads
        && !handles_signals(status);
    if none_left {
        report("deadlock: every fiber waits, and no thread is left that could wake one");
        std::process::abort();
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    if seen.silent == SUSPECT && !SAID.swap(true, Ordering::Relaxed) {
        report("every fiber waits; unless another thread wakes one, this is a deadlock");
    }
}

/// Whether all threads that were started in place of fibers wait without a time limit or have finished.
fn spawned_threads_wait() -> bool {
    let mut all = true;
    registry::for_each_alive(|thread| {
        all &= !bed::is_spawned(thread) || thread.episode.is_counted() || thread.has_finished();
    });
    all
}

/// Whether the program has signal handlers: see the module.
fn handles_signals(status: &[u8]) -> bool {
    number_after(b"SigCgt:", 16, status).is_none_or(|signals| signals & !OURS != 0)
}

/// Signals, as bits, with handlers that are not the program's: std's and the runtime's for faults, the watchdog's
/// (SIGURG), and libc's (32 and 33, for cancellation and `set*id`).
const OURS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGURG) | bit(32) | bit(33);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// The number after `field` in `/proc/self/status`; `None` if it is not there.
fn number_after(field: &[u8], radix: u32, status: &[u8]) -> Option<u64> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(std::str::from_utf8(line).ok()?.trim(), radix).ok()
}

/// Prints `what` to standard error, and which fibers and threads wait for what, if a crate is registered
/// that knows how to say that.
fn report(what: &str) {
    let mut text = Text::of(format_args!("carefree: {what}\n"));
    let waits = text.len();
    if let Some(hooks) = hooks::get() {
        (hooks.list_waiters)(&mut text);
    }
    // These are the words of `Reason::Park` alone.
    if text[waits..].contains(" is parked until ") {
        text.say(format_args!(
            "  (Carefree's park is ended by Carefree's unpark, not by that of a handle of std's)\n"
        ));
    }
    text.print();
}
