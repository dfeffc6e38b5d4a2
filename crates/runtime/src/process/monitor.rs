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
//! Running fibers pay nothing for it. The monitor sleeps while all carriers do, or are kept asleep (but not where
//! it is to tell of those that are kept, for it tells what they do at each look). Where they soon wake again, as in
//! a server at a moderate rate, to be woken with them each time would cost about as much as what they do. There it
//! goes on looking, more and more seldom while it finds all of them down, and sleeps after a look that finds no
//! switch made since the one before.
//!
//! A fiber that waits here may have the lock of the program's allocator. So the monitor's thread asks
//! that one for nothing, nor does an added carrier until it runs a fiber. (But libc's `pthread_create` asks
//! `malloc`, which may be the program's own.)

use std::ffi::{CStr, c_void};
use std::io::{self, Write as _};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use carefree_ground::own::Own;
use carefree_ground::slice::{self, Slice};
use carefree_ground::{file, memory, nap, usage};
use carefree_reactor::Idle;
use carefree_reactor::clock::{self, NEVER};

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::launch::{UNDISTURBED, block_all_but_faults, launch_bare, set_name};
use crate::carrier::lookout::MONITOR;
use crate::carrier::policy::{
    AT_ONCE, LOOK, LOOK_CLOSELY, LOOK_NAPPING, LOOK_SELDOM, OFTEN, RAMP, SPAWNING, STALLED,
};
use crate::carrier::runtimes::{self, Visits};
use crate::fiber::names::{self, KernelName};
use crate::process::rescuer;
use crate::protocol::sync::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static STARTED: AtomicBool = AtomicBool::new(false);
/// Its thread runs.
static RUNS: AtomicBool = AtomicBool::new(false);
/// Where the monitor is to sleep, from a start that failed.
static VACANT: AtomicPtr<Idle> = AtomicPtr::new(ptr::null_mut());
/// No carrier could be started: none is tried before this time.
static REFUSED_UNTIL: AtomicU64 = AtomicU64::new(0);
/// How long to leave it alone then.
const PAUSE: Duration = Duration::from_secs(1);

/// The slices of a processor that the program's threads have.
static USUAL: OnceLock<Slice> = OnceLock::new();

/// What is told of carriers that are kept.
static TOLD: OnceLock<fn(i32, u64)> = OnceLock::new();

/// Has the monitor call `told` for each carrier that it finds kept, with the kernel's number of its thread and
/// the nanoseconds since its last look. To be called once. `told` must not park.
pub fn tell_of_kept(told: fn(i32, u64)) {
    let _ = TOLD.set(told);
}

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
    if let Some(usual) = slice::shorten() {
        let _ = USUAL.set(usual);
    }
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
            found = found.max(look_at(runtime, first));
            if rescuer::needing(runtime).next().is_some() {
                rescuer::ask();
            }
        });
        rhythm.looked(first, found, switches, all_down);
    }
}

/// When the monitor looks.
struct Rhythm {
    /// Until the next look.
    pause: Duration,
    /// Carriers wake so often that to look now and then costs less than to be woken each time.
    often: bool,
    /// The switches of all carriers until the last look.
    switches: u64,
}

impl Rhythm {
    fn new() -> Rhythm {
        Rhythm { pause: LOOK, often: false, switches: 0 }
    }

    /// All carriers slept for so many nanoseconds, and the monitor with them.
    fn rested(&mut self, nanos: u64) {
        self.often = nanos < OFTEN;
    }

    /// A look is over; `first` says that it was the first one after a rest. `switches` counts those of all carriers
    /// since they began, and `all_down` says that no carrier was up.
    fn looked(&mut self, first: bool, found: Found, switches: u64, all_down: bool) {
        // After a rest it is not known yet whether they go on like that, nor after a shorter time than they may sleep.
        self.often &= first || switches != self.switches || self.pause < LOOK_NAPPING;
        self.switches = switches;
        self.pause = match found {
            Found::Nothing if self.often && all_down => (2 * self.pause).min(LOOK_NAPPING),
            Found::Nothing => LOOK,
            Found::Kept => (2 * self.pause).min(LOOK_SELDOM),
            Found::Waiting => LOOK_CLOSELY,
        };
    }
}

/// Whether there is nothing to be watched: all carriers sleep, or rest though a fiber keeps them, and none of them is
/// to retire.
fn all_sleep() -> bool {
    let mut all = true;
    runtimes::for_each(|runtime| {
        let sleep = || match runtime.kept() {
            0 => runtime.all_sleep(),
            _ => TOLD.get().is_none() && all_sleep_or_rest(runtime),
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
    carrier.is_kept.load(Ordering::Relaxed)
        && carrier.is_empty()
        && !carrier.has_operations()
        && carrier.shard.next() == NEVER
        && carrier.time_kept.load(Ordering::Relaxed) == cpu_time(carrier.thread())
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Nothing,
    /// Fibers keep carriers, and no other waits.
    Kept,
    /// Others wait.
    Waiting,
}

/// Looks at the carriers of one runtime; at the first look since all slept, none is stuck.
fn look_at(runtime: &Shared, first: bool) -> Found {
    let sleepers = &runtime.sleepers;
    if runtime.has_stopped() {
        return Found::Nothing;
    }
    let now = clock::now();
    let since = now.saturating_sub(runtime.last_look.swap(now, Ordering::Relaxed));
    // While the monitor slept, those were kept that were so before and have made no switch.
    let kept_asleep = if first { runtime.still_kept() } else { 0 };
    let seen = see(runtime, first, since);
    let stuck = seen.stuck();
    runtime.stuck.store(stuck, Ordering::Relaxed);
    let kept = u64::from(seen.kept.max(kept_asleep));
    runtime.kept_time.fetch_add(kept * since, Ordering::Relaxed);
    let is_surplus = sleepers.active() > runtime.wanted();
    let surplus = if is_surplus { runtime.surplus.load(Ordering::Relaxed) + 1 } else { 0 };
    runtime.surplus.store(surplus, Ordering::Relaxed);
    if is_surplus && !sleepers.some_search() {
        // One that is up retires when it finds nothing; one that is down must look for that.
        runtime.wake(sleepers.claim());
    }
    let found = match (stuck, seen.queued) {
        (0, _) => Found::Nothing,
        (_, 0) => Found::Kept,
        _ => Found::Waiting,
    };
    if found == Found::Waiting {
        help(runtime, &seen);
    } else {
        runtime.ramp.store(0, Ordering::Relaxed);
    }
    found
}

/// What one look sees of a runtime's carriers.
struct Seen {
    /// Carriers that fibers keep.
    kept: u32,
    /// Carriers that wait for a processor.
    unscheduled: u32,
    has_stalled: bool,
    /// Fibers that wait for other carriers than the one where they are queued.
    queued: usize,
}

impl Seen {
    /// How many carriers go on with no fiber that waits.
    fn stuck(&self) -> u32 {
        self.kept + if self.has_stalled { self.unscheduled } else { 0 }
    }
}

fn see(runtime: &Shared, first: bool, since: u64) -> Seen {
    let now = clock::now();
    let (mut kept, mut unscheduled, mut moved) = (0, 0, first);
    let (mut queued, mut with_unscheduled) = (0, 0);
    for carrier in &runtime.carriers {
        let state = state(runtime, carrier, first);
        carrier.is_kept.store(state == State::Kept, Ordering::Relaxed);
        carrier.is_unscheduled.store(state == State::Unscheduled, Ordering::Relaxed);
        match state {
            State::Away if runtime.sleepers.is_in_reserve(carrier.index()) => {
                queued += carrier.queue.len();
            }
            State::Away => (),
            State::Moves => moved = true,
            State::Unscheduled => {
                unscheduled += 1;
                with_unscheduled += carrier.queue.len();
            }
            State::Kept => {
                kept += 1;
                queued += carrier.queue.len();
                if let Some(told) = TOLD.get() {
                    told(carrier.thread(), since);
                }
            }
        }
    }
    if moved {
        runtime.moved_at.store(now, Ordering::Relaxed);
    }
    let all_kept = kept >= runtime.carriers.base() as u32;
    let has_stalled = all_kept && now - runtime.moved_at.load(Ordering::Relaxed) >= STALLED;
    if has_stalled {
        let waits = |one: &&Carrier| one.is_unscheduled.load(Ordering::Relaxed);
        let all = runtime.carriers.iter().filter(waits);
        all.for_each(|one| one.is_kept.store(true, Ordering::Relaxed));
    }
    queued += runtime.injector.len()
        + runtime.handover.len()
        + usize::from(runtime.next_timer() <= now)
        + if all_kept { with_unscheduled } else { 0 };
    Seen { kept, unscheduled, has_stalled, queued }
}

/// Has others run the fibers that wait behind kept carriers: those that are down or have their own to run, else
/// further ones.
fn help(runtime: &Shared, seen: &Seen) {
    let sleepers = &runtime.sleepers;
    // In a stall, one that searches has had no processor for as long.
    if sleepers.some_search() && !seen.has_stalled || !runtime.carriers.has_room() {
        return;
    }
    if sleepers.some_are_down() {
        if is_missed(runtime) {
            runtime.missed.fetch_add(1, Ordering::Relaxed);
        }
        runtime.wake(sleepers.claim());
        return;
    }
    let starting = runtime.starting.load(Ordering::Relaxed);
    let more = match seen.has_stalled {
        // Half of the processors are for those that are not kept.
        true => seen.kept.max(AT_ONCE).saturating_sub(seen.unscheduled + starting),
        false => {
            let free = sleepers.active().saturating_sub(seen.kept) + starting;
            let missing = (runtime.carriers.base() as u32).saturating_sub(free);
            if missing == 0 { 0 } else { ramp_up(runtime, missing) }
        }
    };
    if more == 0 {
        // There are enough, but each has its own fibers to run, and may never come to look elsewhere.
        runtime.carriers.iter().for_each(|carrier| hand_over(runtime, carrier));
    }
    for _ in 0..more.min(u32::try_from(seen.queued).unwrap_or(u32::MAX)) {
        match add(runtime) {
            Ok(true) => _ = runtime.added.fetch_add(1, Ordering::Relaxed),
            Ok(false) => break,
            Err(_) => {
                REFUSED_UNTIL.store(clock::after(PAUSE), Ordering::Relaxed);
                break;
            }
        }
    }
}

/// How many carriers to add where so many are missing: several at once, and more of them each time, for each may be
/// kept as soon as it runs, and has to wait for a processor before.
fn ramp_up(runtime: &Shared, missing: u32) -> u32 {
    let ramp = runtime.ramp.load(Ordering::Relaxed);
    runtime.ramp.store((ramp + 1).min(RAMP), Ordering::Relaxed);
    missing.max(AT_ONCE) << ramp
}

/// Leaves what is queued at a kept carrier to all others.
fn hand_over(runtime: &Shared, carrier: &Carrier) {
    /// Times that some are taken in one look.
    const TIMES: usize = 8;
    if !carrier.is_kept.load(Ordering::Relaxed) || carrier.queue.is_empty() {
        return;
    }
    let taken = || runtime.hand_over_from(&carrier.queue);
    (0..TIMES).take_while(|_| taken()).for_each(drop);
}

/// What a carrier has done since the last look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is down or in reserve, or has not begun.
    Away,
    /// It has switched, or a fiber there spawns others.
    Moves,
    /// No switch, and no processor.
    Unscheduled,
    /// No switch, though it could run: a fiber keeps it.
    Kept,
}

/// What `carrier` has done since the last look; at the `first` one there is none before. (A fiber that spawns others
/// for some looks, and lets none of them run, does not keep it yet.)
fn state(runtime: &Shared, carrier: &Carrier, first: bool) -> State {
    /// Nanoseconds of a processor, after which it has had one.
    const SOME: u64 = 200_000;
    let (sleepers, index, thread) = (&runtime.sleepers, carrier.index(), carrier.thread());
    if thread == 0 || sleepers.is_down(index) || sleepers.is_in_reserve(index) {
        return State::Away;
    }
    let time = cpu_time(thread);
    let has_switched = carrier.look();
    // It has done nothing since the last look, however long ago that was.
    let was_kept = carrier.is_kept.load(Ordering::Relaxed)
        && !carrier.is_unscheduled.load(Ordering::Relaxed)
        && !has_switched;
    if carrier.time_kept.swap(time, Ordering::Relaxed) == time && was_kept {
        return State::Kept;
    }
    if has_switched || first {
        carrier.cpu_time.store(time, Ordering::Relaxed);
        carrier.looks_spawning.store(0, Ordering::Relaxed);
        return State::Moves;
    }
    let spawned = carrier.stats.spawned.load(Ordering::Relaxed);
    if carrier.spawned_before.swap(spawned, Ordering::Relaxed) != spawned
        && carrier.looks_spawning.fetch_add(1, Ordering::Relaxed) < SPAWNING
    {
        carrier.cpu_time.store(time, Ordering::Relaxed);
        return State::Moves;
    }
    let had_some = time >= carrier.cpu_time.load(Ordering::Relaxed) + SOME;
    if had_some || !waits_for_a_processor(thread) { State::Kept } else { State::Unscheduled }
}

/// Whether a thread could run, and perhaps does.
fn waits_for_a_processor(thread: i32) -> bool {
    let mut path = [0; 48];
    let written = write!(&mut path[..47], "/proc/self/task/{thread}/stat");
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
    let stat = written.ok().and_then(|()| file::read(path));
    let stat = stat.as_deref().unwrap_or_default();
    // The name, in brackets, may hold anything.
    let end = stat.iter().rposition(|&byte| byte == b')');
    end.and_then(|end| stat.get(end + 2)) == Some(&b'R')
}

/// Whether fibers wait at a kept carrier though another one sleeps, none dozes and none searches: what
/// queued them should have woken it.
fn is_missed(runtime: &Shared) -> bool {
    /// Between two looks at the same.
    const MOMENT: Duration = Duration::from_micros(200);
    /// Nanoseconds in which a carrier that has queued a fiber, and runs, has long announced it.
    const LONG: u64 = 50_000;
    let sleepers = &runtime.sleepers;
    let kept = || {
        let sleeps = runtime.carriers.iter().any(|carrier| {
            carrier.sleeps.load(Ordering::SeqCst) && sleepers.is_sleeping(carrier.index())
        });
        let waits = |carrier: &&Carrier| {
            !carrier.has_switched() && !carrier.is_empty() && !sleepers.is_down(carrier.index())
        };
        let none_comes = !sleepers.some_doze() && !sleepers.some_search();
        (sleeps && none_comes).then(|| runtime.carriers.iter().find(waits)).flatten()
    };
    let Some(first) = kept() else { return false };
    let before = cpu_time(first.thread());
    nap::sleep(MOMENT);
    kept().is_some_and(|then| ptr::eq(then, first)) && cpu_time(first.thread()) >= before + LONG
}

/// The processor time of a carrier's thread, in nanoseconds; 0 once that has ended.
fn cpu_time(thread: i32) -> u64 {
    usage::of_thread(thread).unwrap_or(0)
}

/// Has another carrier run: one from the reserve, or a new one. False: there can be no more.
///
/// # Errors
/// When no thread can be started, or there is no memory for it.
fn add(runtime: &Shared) -> io::Result<bool> {
    if let Some(recalled) = runtime.sleepers.recall() {
        runtime.wake(Some(recalled));
        return Ok(true);
    }
    if clock::now() < REFUSED_UNTIL.load(Ordering::Relaxed) {
        return Ok(false);
    }
    /// Bytes for another carrier with its thread and reactor, and for something besides: one that is refused
    /// memory ends the process.
    const ENOUGH: usize = 16 << 20;
    if !memory::is_at_hand(ENOUGH) {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    let _adding = runtime.adding.lock();
    // Once it has stopped, no more are started, and those that were are joined. (While it only is to stop,
    // its fibers go on.)
    if runtime.has_stopped() {
        return Ok(false);
    }
    let carriers = &runtime.carriers;
    let is_vacant = |carrier: &&Carrier| carrier.added.load(Ordering::Relaxed) == 0;
    let vacant = carriers.iter().skip(carriers.base()).find(is_vacant);
    let added = vacant.or_else(|| {
        carriers.add(|index| {
            let new = Own::new(Carrier::new(index, true, None));
            new.join_runtime(runtime);
            new
        })
    });
    let Some(carrier) = added else { return Ok(false) };
    runtime.starting.fetch_add(1, Ordering::Relaxed);
    // For the thread, until it owns a part of the runtime. (A part that was made here for it would be the last one, if
    // the thread cannot be started and all others have gone: the runtime would be freed here, in the middle of a visit.)
    runtime.visit();
    let argument = ptr::from_ref(carrier).cast_mut().cast();
    // SAFETY: `begin` is called with a carrier of a runtime that is not freed before the thread has left it.
    match unsafe { launch_bare(begin, argument, runtime.stack_bytes) } {
        Ok(thread) => {
            carrier.added.store(thread.into_raw(), Ordering::Relaxed);
            Ok(true)
        }
        Err(error) => {
            runtime.leave();
            runtime.starting.fetch_sub(1, Ordering::Relaxed);
            Err(error)
        }
    }
}

/// The start function of an added carrier's thread.
extern "C" fn begin(carrier: *mut c_void) -> *mut c_void {
    // SAFETY: `add` has passed a carrier, which is there as long as its runtime; and that is there until this thread
    // leaves, or as long as it owns a part.
    let carrier = unsafe { &*carrier.cast::<Carrier>().cast_const() };
    let visited = carrier.runtime();
    let owned = visited.this.upgrade();
    visited.leave();
    // Without a part of it: it has stopped, and waits in its drop for visitors.
    let Some(runtime) = owned else { return ptr::null_mut() };
    let mut name = KernelName::default();
    let room = name.len() - 1;
    // What does not fit is left out.
    let _ = write!(&mut name[..room], "{}-{}", runtime.name, carrier.index());
    set_name(name);
    runtime.signals.block();
    runtime.sleepers.set_out();
    runtime.starting.fetch_sub(1, Ordering::Relaxed);
    carrier.run(USUAL.get().copied());
    drop(runtime);
    ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the monitor's pauses are while carriers make a switch between any two looks.
    fn pauses(rhythm: &mut Rhythm, found: Found, all_down: bool) -> [Duration; 4] {
        std::array::from_fn(|_| {
            rhythm.looked(false, found, rhythm.switches + 1, all_down);
            rhythm.pause
        })
    }

    #[test]
    fn carriers_that_wake_often_are_looked_at_seldom_and_wake_nobody() {
        let mut rhythm = Rhythm::new();
        rhythm.rested(OFTEN - 1);
        rhythm.looked(true, Found::Nothing, 10, true);
        assert!(rhythm.often);
        assert_eq!(pauses(&mut rhythm, Found::Nothing, true)[3], LOOK_NAPPING);
        assert!(rhythm.often);
        // One is up: perhaps a fiber keeps it.
        assert_eq!(pauses(&mut rhythm, Found::Nothing, false), [LOOK; 4]);
        assert_eq!(pauses(&mut rhythm, Found::Waiting, false), [LOOK_CLOSELY; 4]);
    }

    #[test]
    fn a_look_that_finds_no_switch_lets_the_monitor_sleep() {
        let mut rhythm = Rhythm::new();
        rhythm.rested(OFTEN - 1);
        rhythm.looked(true, Found::Nothing, 10, true);
        let mut waited = Duration::ZERO;
        while rhythm.often {
            waited += rhythm.pause;
            rhythm.looked(false, Found::Nothing, 10, true);
        }
        assert!(waited >= LOOK_NAPPING && waited < 2 * LOOK_NAPPING, "{waited:?}");
    }

    /// Requests come a little more often than the carriers may sleep for the monitor to go on looking.
    #[test]
    fn carriers_that_wake_every_few_milliseconds_do_not_wake_the_monitor() {
        for period in 1..8 {
            let mut rhythm = Rhythm::new();
            rhythm.rested(period * 1_000_000);
            rhythm.looked(true, Found::Nothing, 0, true);
            let mut now = Duration::ZERO;
            while now < Duration::from_secs(1) {
                now += rhythm.pause;
                rhythm.looked(false, Found::Nothing, now.as_millis() as u64 / period, true);
                assert!(rhythm.often, "every {period} ms, after {now:?}");
            }
        }
    }

    #[test]
    fn carriers_that_wake_seldom_wake_the_monitor() {
        let mut rhythm = Rhythm::new();
        rhythm.rested(OFTEN);
        rhythm.looked(true, Found::Nothing, 10, true);
        assert!(!rhythm.often);
        assert_eq!(pauses(&mut rhythm, Found::Nothing, true), [LOOK; 4]);
        assert!(!rhythm.often);
    }
}
