//! The monitor: has others run what waits behind fibers that keep their carriers.
//!
//! A fiber that computes, spins, or waits in a way that is not seen (for a lock of libc's own, for a
//! page, in a raw system call) keeps its carrier. Alone it holds up what waits there for a moment, until
//! other carriers have taken that. But where such fibers keep all carriers, nothing else would run: not
//! even the one that they spin for. So one thread of the process looks at all carriers from time to
//! time. One that is up and has made no switch since the last look is *stuck*. While fewer carriers than
//! the runtime began with are free of that, and something waits, another carrier is added, and the
//! kernel shares the processors out among them: a fiber that behaves like a thread becomes one. (A fiber
//! that spawns a crowd is given more time: what waits there is what it has just spawned.) A carrier
//! that finds nothing, while there are more than wanted, goes into [reserve](crate::carrier::reserve).
//!
//! Carriers that are kept may have all processors, for milliseconds each. Then a carrier that is not kept yet waits
//! for a processor, and what is queued there waits with it. Where so many are kept as there were at first, and no
//! carrier at all has made a switch for some milliseconds, the runtime has *stalled*: those that wait for a processor
//! count as stuck, too. Then carriers are added until there are as many as are kept, so that about half of
//! the processors' time is for what waits. (Not sooner, nor where other programs have the processors, nor more: the
//! added ones would only wait as well.)
//!
//! Completions that have come in at a stuck carrier are handed on at each look
//! ([by another thread](super::rescuer)), and a carrier that is
//! down while something waits at a stuck one is woken. What waits there while all others have something to run
//! is shared out among these. And where there have been more carriers than wanted for some looks, one of them
//! goes though it has something to run, and leaves that to the others: the program's fibers were to run on so
//! many carriers, and an interpreter's threads, which run one at a time, would pass their lock to and fro.
//!
//! Running fibers pay nothing for it. [`rhythm`](super::rhythm) says when it looks, [`look`] what it does then.
//!
//! A fiber that waits here may have the lock of the program's allocator. So the monitor's thread asks
//! that one for nothing, nor does an added carrier until it runs a fiber. (But libc's `pthread_create` asks
//! `malloc`, which may be the program's own.)

use std::ffi::c_void;
use std::ptr;

use carefree_reactor::Idle;
use carefree_reactor::clock::{self, NEVER};

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::launch::{UNDISTURBED, block_all_but_faults, launch_bare, set_name};
use crate::carrier::lookout::MONITOR;
use crate::carrier::runtimes::{self, Visits};
use crate::fiber::names;
use crate::process::look::{self, cpu_time};
use crate::process::rhythm::{Found, Rhythm};
use crate::process::{adding, rescuer};
use crate::protocol::sync::{AtomicBool, AtomicPtr, Ordering};

static STARTED: AtomicBool = AtomicBool::new(false);
/// Its thread runs.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Where the monitor is to sleep, from a start that failed.
static VACANT: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());
/// A runtime's carriers have been started. Where no thread can be had, there is no monitor.
pub(crate) fn start() {
    // (A machine that is simulated has no core for it.)
    if cfg!(simulated) || STARTED.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: null, or the bed of a start that failed, which is never freed.
    let former = unsafe { VACANT.swap(ptr::null_mut(), Ordering::SeqCst).as_ref() };
    let bed: &'static Idle = former.unwrap_or_else(|| Box::leak(Box::new(Idle::new())));
    MONITOR.set(bed);
    let argument = ptr::from_ref(bed).cast_mut().cast();
    // Without std, whose threads give memory back as they begin: fibers may run by then, and one of them may wait with
    // the allocator's lock.
    // SAFETY: `begin_to_watch` is called with the bed, which is never freed.
    if unsafe { launch_bare(begin_to_watch, argument, UNDISTURBED) }.is_err() {
        VACANT.store(ptr::from_ref(bed).cast_mut(), Ordering::SeqCst);
        STARTED.store(false, Ordering::SeqCst);
    }
}

/// Forgets the monitor: in the child of a fork, where the next runtime starts one.
pub(crate) fn renew() {
    STARTED.store(false, Ordering::SeqCst);
    RUNS.store(false, Ordering::SeqCst);
}

/// Threads of the monitor.
pub(crate) fn threads() -> usize {
    usize::from(RUNS.load(Ordering::SeqCst))
}

/// The start function of the monitor's thread.
extern "C" fn begin_to_watch(bed: *mut c_void) -> *mut c_void {
    set_name(names::cut("carefree-mon"));
    block_all_but_faults();
    // SAFETY: `start` has passed the bed, which is never freed.
    watch(unsafe { &*bed.cast::<Idle>().cast_const() })
}

fn watch(bed: &Idle) -> ! {
    RUNS.store(true, Ordering::SeqCst);
    // While all processors compute, this thread would come to its look some milliseconds late, and so would each
    // carrier that it adds to its first fiber.
    adding::hurry();
    let mut visits = Visits::new();
    let mut rhythm = Rhythm::new();
    loop {
        let begun = clock::now();
        // What a carrier does from its waking on is seen at the next look.
        let first = !rhythm.often && MONITOR.rest(bed, all_sleep);
        if first {
            rhythm.rested(clock::now() - begun);
        } else {
            let next = clock::after(rhythm.pause);
            while clock::now() < next {
                bed.wait(Some(next));
            }
        }
        let (mut switches, mut all_down) = (0u64, true);
        let mut found = Found::Nothing;
        visits.for_each(|runtime| {
            switches =
                runtime.carriers.iter().map(Carrier::switches).fold(switches, u64::wrapping_add);
            all_down &= runtime.has_stopped() || runtime.sleepers.all_are_down();
            found = found.max(look::look_at(runtime, first));
            if rescuer::needing(runtime).next().is_some() {
                rescuer::ask();
            }
        });
        rhythm.looked(first, found, switches, all_down);
    }
}

/// Whether there is nothing to be watched: all carriers sleep, or rest though a fiber keeps them, and none of them is
/// to retire.
fn all_sleep() -> bool {
    let mut all = true;
    runtimes::for_each(|runtime| {
        let sleep = || match runtime.kept() {
            0 => runtime.all_sleep(),
            _ => !look::is_told() && all_sleep_or_rest(runtime),
        };
        all &= runtime.has_stopped()
            || runtime.starting.load(Ordering::SeqCst) == 0
                && sleep()
                && runtime.sleepers.active() <= runtime.wanted();
    });
    all
}

/// Whether all carriers sleep but some that [rest](rests). If such a one goes on, it can do without the monitor until it
/// has made another fiber ready; and for that it wakes one of those that sleep, which wakes the monitor.
fn all_sleep_or_rest(runtime: &Shared) -> bool {
    let sleepers = &runtime.sleepers;
    let sleeps = |carrier: &&Carrier| sleepers.is_sleeping(carrier.index()) || rests(carrier);
    !sleepers.some_search()
        && sleepers.sleeping() != 0
        && runtime.carriers.iter().filter(sleeps).count() == sleepers.active() as usize
}

/// Whether a fiber keeps `carrier` and has used no processor since the last look, and nothing else waits there.
fn rests(carrier: &Carrier) -> bool {
    carrier.looks.is_kept.load(Ordering::Relaxed)
        && carrier.is_empty()
        && !carrier.has_operations()
        && carrier.shard.next() == NEVER
        && carrier.looks.time.load(Ordering::Relaxed) == cpu_time(carrier.thread())
}
