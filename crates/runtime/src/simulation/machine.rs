//! The machine: cores, each with its time; the lines of memory, and where each was accessed last.
//!
//! A core is a thread of this process, and one of them goes on at a time: the one whose time is the
//! earliest. It goes on until its time is later than another's, or until it sleeps. So the order in which
//! the cores access memory is the order of their times, whatever else the real machine does. (Two runs differ
//! somewhat: which words share a line depends on where the kernel maps memory.)
//!
//! What is kept here is accessed by the core that goes on, and by the thread that sets the machine up
//! before any does.

use std::cell::UnsafeCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use carefree_ground::kernel;

/// Nanoseconds of an access to a line that the core has.
const HIT: u64 = 1;
/// The same of one that has to be fetched from another core.
const FETCH: u64 = 70;
/// Of one that is written, and that others have.
const TAKE: u64 = 100;
/// What a locked instruction takes longer than a plain one.
const LOCKED: u64 = 5;
/// While a line is fetched by one core, another waits for so long.
const FETCHED: u64 = 20;
const FENCE: u64 = 8;
/// A call of `membarrier`; and of each core that runs, the interruption.
const MEMBARRIER: u64 = 1_000;
const INTERRUPTION: u64 = 1_000;
/// To wake a core that sleeps; and the time until that one goes on.
const WAKE: u64 = 1_500;
const WOKEN: u64 = 5_000;
/// A core goes on until it is so much later than another.
const SLACK: u64 = 20;

/// What the clock says at first. (The runtime takes 0 for no time.)
const START: u64 = 1_000_000_000;

/// What an access does to a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Read and write by a locked instruction.
    Change,
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Accesses to a line that another core had, or had changed.
    pub(crate) transfers: u64,
    /// Nanoseconds of these for which a core waited until others had had the line.
    pub(crate) queued: u64,
    /// Cores that were woken.
    pub(crate) wakes: u64,
    /// Calls of `membarrier`, and cores that they have interrupted.
    pub(crate) membarriers: u64,
    pub(crate) interruptions: u64,
    /// Transfers by the place in the source.
    pub(crate) places: BTreeMap<(&'static str, u32), u64>,
}

#[derive(Default)]
struct Line {
    /// The cores that have it, as bits.
    holders: [u64; WORDS],
    /// Whether the one that has it may write.
    exclusive: bool,
    /// Until then it is under way to another core.
    busy_until: u64,
}

/// Cores at most.
pub(crate) const CORES: usize = 64 * WORDS;
const WORDS: usize = 5;

#[derive(Default)]
struct Core {
    now: u64,
    /// Nanoseconds of interruptions that it has yet to be held up for.
    owed: u64,
    is_asleep: bool,
    /// A wake-up that it has not seen.
    woken: bool,
    /// Counts its sleeps, so that a limit of one that is over is not taken for the next one's.
    sleeps: u64,
}

struct State {
    cores: Vec<Core>,
    /// Those that would go on: when, and of those that sleep with a limit, the number of the sleep.
    ready: BinaryHeap<Reverse<(u64, usize, Option<u64>)>>,
    lines: HashMap<usize, Line>,
    counts: Counts,
}

struct Machine(UnsafeCell<Option<State>>);

// SAFETY: accessed by one thread at a time (see the module).
unsafe impl Sync for Machine {}

static MACHINE: Machine = Machine(UnsafeCell::new(None));

/// The core that goes on.
static CURRENT: AtomicUsize = AtomicUsize::new(NONE);
const NONE: usize = usize::MAX;

/// Where each core's thread waits: 1 when it may go on.
static TURNS: [AtomicU32; CORES] = [const { AtomicU32::new(0) }; CORES];
/// Threads that have become cores.
static ENTERED: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// The caller is the core that goes on, or sets the machine up, and does not come here from within.
#[allow(clippy::mut_from_ref, reason = "one thread at a time is here")]
unsafe fn state() -> &'static mut State {
    // SAFETY: as this function demands.
    unsafe { (*MACHINE.0.get()).as_mut() }.expect("the machine was set up")
}

/// Makes a machine with so many cores. To be called before their threads are started.
pub(crate) fn set_up(cores: usize) {
    assert!(cores <= CORES);
    let state = State {
        cores: (0..cores).map(|_| Core::default()).collect(),
        ready: BinaryHeap::new(),
        lines: HashMap::new(),
        counts: Counts::default(),
    };
    // SAFETY: no core goes on yet.
    unsafe { *MACHINE.0.get() = Some(state) };
}

/// Makes the caller's thread a core; returns when that goes on for the first time.
pub(crate) fn enter(core: usize) {
    ENTERED.fetch_add(1, Ordering::SeqCst);
    wait_for_turn(core);
}

/// Makes the caller's thread a core, once all others are, and starts the machine.
pub(crate) fn start(core: usize) {
    // SAFETY: no core goes on yet.
    let state = unsafe { state() };
    while ENTERED.load(Ordering::SeqCst) + 1 < state.cores.len() {
        std::thread::yield_now();
    }
    let others = (0..state.cores.len()).filter(|other| *other != core);
    state.ready.extend(others.map(|other| Reverse((0, other, None))));
    CURRENT.store(core, Ordering::SeqCst);
}

/// Begins to count anew; returns what was counted, and the time.
pub(crate) fn counted() -> (Counts, u64) {
    // SAFETY: the caller is the core that goes on.
    let state = unsafe { state() };
    let now = state.cores[CURRENT.load(Ordering::Relaxed)].now;
    (std::mem::take(&mut state.counts), now)
}

/// The time of the core that goes on, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut now = START;
    with(|state, me| {
        now += state.cores[me].now;
        me
    });
    now
}

fn wait_for_turn(core: usize) {
    let turn = &TURNS[core];
    while turn.swap(0, Ordering::Acquire) == 0 {
        futex(turn, libc::FUTEX_WAIT, 0);
    }
}

fn futex(word: &AtomicU32, operation: i32, value: usize) {
    let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
    // Not libc's function, by which fibers wait. What it returns does not matter: the word is looked at again.
    // SAFETY: the kernel reads a word that is never freed.
    let _ =
        unsafe { kernel::call(libc::SYS_futex, [word.as_ptr().addr(), operation, value, 0, 0, 0]) };
}

impl State {
    /// The core whose time is the earliest, which goes on next.
    fn next(&mut self) -> usize {
        loop {
            let Some(Reverse((time, core, sleep))) = self.ready.pop() else {
                eprintln!("deadlock: every core sleeps, without a limit");
                std::process::abort();
            };
            let one = &mut self.cores[core];
            // A limit of a sleep that is over?
            if sleep.is_none_or(|number| one.is_asleep && one.sleeps == number) {
                one.is_asleep = false;
                one.now = one.now.max(time);
                return core;
            }
        }
    }

    /// Lets time pass for the core that goes on; returns the one that goes on next, which may be the same.
    fn pass(&mut self, me: usize, nanoseconds: u64) -> usize {
        let core = &mut self.cores[me];
        core.now += nanoseconds + std::mem::take(&mut core.owed);
        let now = core.now;
        if self.ready.peek().is_some_and(|Reverse((time, ..))| *time + SLACK < now) {
            self.ready.push(Reverse((now, me, None)));
            return self.next();
        }
        me
    }

    fn access(
        &mut self,
        me: usize,
        address: usize,
        access: Access,
        place: &Location<'static>,
    ) -> usize {
        let now = self.cores[me].now;
        let line = self.lines.entry(address / 64).or_default();
        let (word, bit) = (me / 64, 1 << (me % 64));
        let has = line.holders[word] & bit != 0;
        let is_first = line.holders == [0; WORDS];
        let mut spent = HIT + if access == Access::Change { LOCKED } else { 0 };
        if access == Access::Read {
            if !has && !is_first {
                let begins = now.max(line.busy_until);
                line.busy_until = begins + FETCHED;
                spent += begins - now + FETCH;
                self.counts.note(place, begins - now);
            }
            line.holders[word] |= bit;
            line.exclusive &= has;
        } else {
            if !(is_first || has && line.exclusive) {
                let begins = now.max(line.busy_until);
                line.busy_until = begins + TAKE;
                spent += begins - now + TAKE;
                self.counts.note(place, begins - now);
            }
            line.holders = [0; WORDS];
            line.holders[word] = bit;
            line.exclusive = true;
        }
        self.pass(me, spent)
    }
}

impl Counts {
    fn note(&mut self, place: &Location<'static>, queued: u64) {
        self.transfers += 1;
        self.queued += queued;
        *self.places.entry((place.file(), place.line())).or_default() += 1;
    }
}

/// Calls `f` with the machine and the core that goes on, and hands on to the core that it returns. Does nothing in
/// a thread that is set up before the machine is on.
#[inline]
fn with(f: impl FnOnce(&mut State, usize) -> usize) {
    let me = CURRENT.load(Ordering::Relaxed);
    if me == NONE {
        return;
    }
    // SAFETY: the caller is the core that goes on, and `f` calls nothing that comes here. The borrow ends before
    // another core goes on.
    let next = f(unsafe { state() }, me);
    if next != me {
        CURRENT.store(next, Ordering::SeqCst);
        TURNS[next].store(1, Ordering::Release);
        futex(&TURNS[next], libc::FUTEX_WAKE, 1);
        wait_for_turn(me);
    }
}

/// An access to memory, which takes place when this returns.
#[inline]
pub(crate) fn access(address: usize, access: Access, place: &Location<'static>) {
    with(|state, me| state.access(me, address, access, place));
}

pub(crate) fn fence() {
    with(|state, me| state.pass(me, FENCE));
}

/// Nanoseconds of the instruction that spinning loops have for a pause.
const PAUSE: u64 = 40;

/// For a loop that looks at a word until it changes.
pub(crate) fn pause() {
    pass(PAUSE);
}

/// The core computes for so long.
pub(crate) fn pass(nanoseconds: u64) {
    with(|state, me| state.pass(me, nanoseconds));
}

/// The kernel's `membarrier`.
pub(crate) fn membarrier() {
    with(|state, me| {
        state.counts.membarriers += 1;
        for (number, core) in state.cores.iter_mut().enumerate() {
            if number != me && !core.is_asleep {
                core.owed += INTERRUPTION;
                state.counts.interruptions += 1;
            }
        }
        state.pass(me, MEMBARRIER)
    });
}

/// Sleeps until the core is woken, or until this time. Returns whether it was woken.
pub(crate) fn sleep(until: Option<u64>) -> bool {
    with(|state, me| {
        let core = &mut state.cores[me];
        if core.woken {
            return me;
        }
        core.is_asleep = true;
        core.sleeps += 1;
        if let Some(until) = until {
            let until = until.saturating_sub(START).max(core.now);
            state.ready.push(Reverse((until, me, Some(core.sleeps))));
        }
        state.next()
    });
    let mut was_woken = false;
    with(|state, me| {
        was_woken = std::mem::take(&mut state.cores[me].woken);
        me
    });
    was_woken
}

/// Wakes a core, or keeps it from its next sleep.
pub(crate) fn wake(core: usize) {
    with(|state, me| {
        let now = state.cores[me].now;
        let one = &mut state.cores[core];
        one.woken = true;
        if one.is_asleep {
            one.is_asleep = false;
            one.now = one.now.max(now + WAKE + WOKEN);
            state.ready.push(Reverse((one.now, core, None)));
            state.counts.wakes += 1;
            return state.pass(me, WAKE);
        }
        me
    });
}

/// The number of the core that goes on.
pub(crate) fn here() -> usize {
    CURRENT.load(Ordering::Relaxed)
}
