//! What a look of the [monitor](super::monitor) at the carriers of one runtime finds, and what it does about that.

use std::ffi::CStr;
use std::io::Write as _;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use carefree_ground::{file, nap, usage};
use carefree_reactor::clock;

use crate::carrier::carrier::{Carrier, Shared};
use crate::carrier::policy::{AT_ONCE, RAMP, SPAWNING, STALLED};
use crate::process::adding;
use crate::process::rhythm::Found;
use crate::protocol::sync::Ordering;

/// What is told of carriers that are kept.
static TOLD: OnceLock<fn(i32, u64)> = OnceLock::new();

/// Has the monitor call `told` for each carrier that it finds kept, with the kernel's number of its thread and
/// the nanoseconds since its last look. To be called once. `told` must not park.
pub fn tell_of_kept(told: fn(i32, u64)) {
    let _ = TOLD.set(told);
}

/// Whether `told` was set.
pub(super) fn is_told() -> bool {
    TOLD.get().is_some()
}

/// Looks at the carriers of one runtime; at the first look since all slept, none is stuck.
pub(super) fn look_at(runtime: &Shared, first: bool) -> Found {
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
        carrier.looks.is_kept.store(state == State::Kept, Ordering::Relaxed);
        carrier.looks.is_unscheduled.store(state == State::Unscheduled, Ordering::Relaxed);
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
        let waits = |one: &&Carrier| one.looks.is_unscheduled.load(Ordering::Relaxed);
        let all = runtime.carriers.iter().filter(waits);
        all.for_each(|one| one.looks.is_kept.store(true, Ordering::Relaxed));
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
        if !adding::add(runtime) {
            break;
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
    if !carrier.looks.is_kept.load(Ordering::Relaxed) || carrier.queue.is_empty() {
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
    let has_run = carrier.looks.time.swap(time, Ordering::Relaxed) != time;
    if !has_run && !has_switched {
        // It has done nothing since the last look, however long ago that was. (A carrier that
        // waits for a processor begins no other wait before it has had one.)
        let (waits, is_kept) = (&carrier.looks.is_unscheduled, &carrier.looks.is_kept);
        match (waits.load(Ordering::Relaxed), is_kept.load(Ordering::Relaxed)) {
            (true, _) if !first => return State::Unscheduled,
            (false, true) => return State::Kept,
            _ => (),
        }
    }
    if has_switched || first {
        carrier.looks.time_first.store(time, Ordering::Relaxed);
        carrier.looks.spawning.store(0, Ordering::Relaxed);
        return State::Moves;
    }
    let spawned = carrier.stats.spawned.load(Ordering::Relaxed);
    if carrier.looks.spawned.swap(spawned, Ordering::Relaxed) != spawned
        && carrier.looks.spawning.fetch_add(1, Ordering::Relaxed) < SPAWNING
    {
        carrier.looks.time_first.store(time, Ordering::Relaxed);
        return State::Moves;
    }
    let had_some = time >= carrier.looks.time_first.load(Ordering::Relaxed) + SOME;
    if had_some || !waits_for_a_processor(thread) { State::Kept } else { State::Unscheduled }
}

/// Whether a thread could run, and perhaps does.
fn waits_for_a_processor(thread: i32) -> bool {
    let mut path = [0; 48];
    let written = write!(&mut path[..47], "/proc/self/task/{thread}/stat");
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
    // Enough for the number, the name and the state.
    let mut room = [0; 128];
    let stat = if written.is_ok() { file::read_start(path, &mut room) } else { &[] };
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
pub(super) fn cpu_time(thread: i32) -> u64 {
    usage::of_thread(thread).unwrap_or(0)
}
