//! What goes wrong, and how often: drawn from a seed.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use carefree_reactor::faults::{Hooks, Layer};
use carefree_reactor::{Idle, Kind, Shared};

use crate::injector::Injector;

/// Each number after the sizes is in how many of 256 cases the fault happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    pub(crate) carriers: u32,
    /// Entries of a ring's two queues; 0 for the default.
    pub(crate) sizes: (u32, u32),
    /// An operation transfers only a part.
    pub(crate) short: u8,
    /// An operation fails, and nothing is done.
    pub(crate) fail: u8,
    /// A completion is delayed past others, by some turns or some hundred microseconds.
    pub(crate) hold: u8,
    /// An operation is submitted late.
    pub(crate) postpone: u8,
    /// A cancel is submitted late.
    pub(crate) dawdle: u8,
    /// A ring finds no operation to cancel.
    pub(crate) miss: u8,
    /// A system call of the driver's fails, or takes only some of the entries.
    pub(crate) call: u8,
    /// A wait ends for no reason.
    pub(crate) start: u8,
    /// The driver has no such operation, or the kernel refuses it without waiting: it is offloaded,
    /// where it can be neither cancelled nor driven out.
    pub(crate) refuse: u8,
}

impl Plan {
    /// Nothing goes wrong.
    pub(crate) const fn quiet(kind: Kind) -> Plan {
        Plan {
            seed: 0,
            kind,
            carriers: 2,
            sizes: (0, 0),
            short: 0,
            fail: 0,
            hold: 0,
            postpone: 0,
            dawdle: 0,
            miss: 0,
            call: 0,
            start: 0,
            refuse: 0,
        }
    }

    /// `calm`: the programs that run under it end no waits.
    pub(crate) fn draw(random: &mut fastrand::Rng, seed: u64, kinds: &[Kind], calm: bool) -> Plan {
        let mut chance = |most: u8| match random.u8(0..4) {
            0 => 0,
            1 => most,
            _ => random.u8(0..=most),
        };
        let [short, hold, postpone, dawdle] = [(); 4].map(|()| chance(160));
        let [fail, call, start] = [chance(60), chance(60), chance(30)];
        let miss = chance(230);
        let refuse = if calm { chance(30) } else { 0 };
        let kind = kinds[random.usize(0..kinds.len())];
        let sizes = if random.u8(0..3) == 0 {
            (0, 0)
        } else {
            let submissions = 1 << random.u32(0..4);
            (submissions, submissions << random.u32(0..2))
        };
        let carriers = random.u32(1..4);
        Plan {
            seed,
            kind,
            carriers,
            sizes,
            short,
            fail,
            hold,
            postpone,
            dawdle,
            miss,
            call,
            start,
            refuse,
        }
    }
}

/// The faults, counted to see that a run has tested something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Fault {
    Short,
    Failed,
    Held,
    Reordered,
    Postponed,
    Dawdled,
    LateForCancel,
    Missed,
    CallFailed,
    TakenInPart,
    WokenForNothing,
    Refused,
    Tiny,
}

const FAULTS: usize = Fault::Tiny as usize + 1;
static COUNTS: [AtomicU64; FAULTS] = [const { AtomicU64::new(0) }; FAULTS];

pub(crate) fn count(fault: Fault) {
    COUNTS[fault as usize].fetch_add(1, Ordering::Relaxed);
}

/// How often each fault has happened in this process.
pub(crate) struct Counts;

impl Counts {
    pub(crate) fn of(fault: Fault) -> u64 {
        COUNTS[fault as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Fault::*;
        let all = [
            Short,
            Failed,
            Held,
            Reordered,
            Postponed,
            Dawdled,
            LateForCancel,
            Missed,
            CallFailed,
            TakenInPart,
            WokenForNothing,
            Refused,
            Tiny,
        ];
        for fault in all {
            write!(out, "{fault:?} {}, ", Counts::of(fault))?;
        }
        Ok(())
    }
}

/// The plan in force, for hooks that have no driver. Atomics, because hooks run on fibers, inside the runtime.
struct Current {
    on: AtomicBool,
    seed: AtomicU64,
    drivers: AtomicU32,
    draws: AtomicU64,
    uring: AtomicBool,
    carriers: AtomicU32,
    submissions: AtomicU32,
    completions: AtomicU32,
    chances: [AtomicU8; CHANCES],
}

const CHANCES: usize = 9;

static CURRENT: Current = Current {
    on: AtomicBool::new(false),
    seed: AtomicU64::new(0),
    drivers: AtomicU32::new(0),
    draws: AtomicU64::new(0),
    uring: AtomicBool::new(false),
    carriers: AtomicU32::new(0),
    submissions: AtomicU32::new(0),
    completions: AtomicU32::new(0),
    chances: [const { AtomicU8::new(0) }; CHANCES],
};

const FAIL: usize = 1;
const MISS: usize = 5;
const CALL: usize = 6;

/// Makes `plan` the one in force.
pub(crate) fn begin(plan: &Plan) {
    static HOOKS: Hooks = Hooks { call, sizes, misses, layer };
    let Plan { short, fail, hold, postpone, dawdle, miss, call, start, refuse, .. } = *plan;
    let chances = [short, fail, hold, postpone, dawdle, miss, call, start, refuse];
    for (slot, chance) in CURRENT.chances.iter().zip(chances) {
        slot.store(chance, Ordering::Relaxed);
    }
    CURRENT.seed.store(plan.seed, Ordering::Relaxed);
    CURRENT.drivers.store(0, Ordering::Relaxed);
    CURRENT.draws.store(0, Ordering::Relaxed);
    CURRENT.uring.store(plan.kind == Kind::Uring, Ordering::Relaxed);
    CURRENT.carriers.store(plan.carriers, Ordering::Relaxed);
    CURRENT.submissions.store(plan.sizes.0, Ordering::Relaxed);
    CURRENT.completions.store(plan.sizes.1, Ordering::Relaxed);
    CURRENT.on.store(true, Ordering::Release);
    // SAFETY: `call` has fewer entries taken at most, and the layer hands out its driver's completions, some of them later.
    unsafe { carefree_reactor::faults::install(&HOOKS) };
}

/// No plan is in force.
pub(crate) fn end() {
    CURRENT.on.store(false, Ordering::Release);
}

/// The seed of the plan in force, for messages.
pub(crate) fn seed() -> u64 {
    CURRENT.seed.load(Ordering::Relaxed)
}

/// Carriers of the runtime.
pub(crate) fn carriers() -> u32 {
    CURRENT.carriers.load(Ordering::Relaxed)
}

/// Whether operations fail.
pub(crate) fn fails() -> bool {
    CURRENT.chances[FAIL].load(Ordering::Relaxed) > 0
}

fn is_on() -> bool {
    CURRENT.on.load(Ordering::Acquire)
}

/// A generator for a decision outside of drivers.
fn draw() -> fastrand::Rng {
    let n = CURRENT.draws.fetch_add(1, Ordering::Relaxed);
    fastrand::Rng::with_seed(seed() ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn sizes() -> Option<(u32, u32)> {
    let submissions = CURRENT.submissions.load(Ordering::Relaxed);
    (is_on() && submissions > 0).then(|| {
        count(Fault::Tiny);
        (submissions, CURRENT.completions.load(Ordering::Relaxed))
    })
}

fn misses(_: u64) -> bool {
    let missed = is_on() && draw().u8(..) < CURRENT.chances[MISS].load(Ordering::Relaxed);
    if missed {
        count(Fault::Missed);
    }
    missed
}

fn receives(number: libc::c_long) -> bool {
    matches!(number, libc::SYS_preadv2 | libc::SYS_recvfrom | libc::SYS_recvmsg)
}

/// Whether nothing more will come for a descriptor.
fn is_over(fd: usize) -> bool {
    let mut file = libc::pollfd { fd: fd as i32, events: libc::POLLRDHUP, revents: 0 };
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [&raw mut file as usize, 1, &raw const at_once as usize, 0, 0, 0];
    // SAFETY: an array of one, and a time.
    let over = unsafe { carefree_ground::kernel::call(libc::SYS_ppoll, arguments) };
    over != Ok(0)
}

fn call(number: libc::c_long, args: &mut [usize; 6]) -> Option<i32> {
    if !is_on() {
        return None;
    }
    let mut random = draw();
    if random.u8(..) >= CURRENT.chances[CALL].load(Ordering::Relaxed) {
        return None;
    }
    if number == libc::SYS_io_uring_enter && args[1] > 1 && random.bool() {
        // As when the kernel has no memory for the next entry: then it does not wait either.
        args[1] = random.usize(1..args[1]);
        args[2] = 0;
        count(Fault::TakenInPart);
        return None;
    }
    let errors: &[i32] = match number {
        libc::SYS_io_uring_enter if args[1] > 0 => {
            &[libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EINTR]
        }
        libc::SYS_io_uring_enter => &[libc::EINTR],
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => &[libc::EINTR],
        libc::SYS_preadv2 | libc::SYS_pwritev2 => &[libc::EINTR, libc::EAGAIN],
        libc::SYS_recvfrom | libc::SYS_sendto => &[libc::EINTR, libc::EAGAIN],
        libc::SYS_recvmsg | libc::SYS_sendmsg => &[libc::EINTR, libc::EAGAIN],
        libc::SYS_accept4 => &[libc::EINTR, libc::EAGAIN],
        libc::SYS_ppoll => &[libc::EINTR],
        _ => return None,
    };
    let errno = errors[random.usize(0..errors.len())];
    if errno == libc::EAGAIN && receives(number) && is_over(args[0]) {
        // No kernel reports that there is nothing yet where nothing more will come.
        return None;
    }
    count(Fault::CallFailed);
    Some(errno)
}

fn layer(_: Kind, idle: &Shared<Idle>) -> io::Result<Option<Box<dyn Layer>>> {
    if !is_on() {
        return Ok(None);
    }
    let kind = if CURRENT.uring.load(Ordering::Relaxed) { Kind::Uring } else { Kind::Epoll };
    let chance = |n: usize| CURRENT.chances[n].load(Ordering::Relaxed);
    let plan = Plan {
        seed: seed(),
        kind,
        carriers: CURRENT.carriers.load(Ordering::Relaxed),
        sizes: (0, 0),
        short: chance(0),
        fail: chance(1),
        hold: chance(2),
        postpone: chance(3),
        dawdle: chance(4),
        miss: chance(MISS),
        call: chance(CALL),
        start: chance(7),
        refuse: chance(8),
    };
    let nth = CURRENT.drivers.fetch_add(1, Ordering::Relaxed);
    Ok(Some(Box::new(Injector::new(plan, nth, idle)?)))
}
