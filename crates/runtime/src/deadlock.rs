//! Deadlocks: said, not hung in.
//!
//! A plain thread that waits for a fiber looks once a second whether that can still end. If every
//! carrier sleeps, no timer is set and nothing is queued, no fiber can wake another. Then only a
//! plain thread could. If all threads of the process are carriers or wait for fibers themselves,
//! there is none: the process is told which fibers wait for what, and aborted. Otherwise the same is
//! printed, once, as a suspicion, after [`SUSPECT`] seconds of silence.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carefree_context::lock::Lock;
use carefree_reactor::clock;

use crate::episode::Outcome;
use crate::fiber::{FiberRef, Kind};
use crate::reason::Reason;
use crate::registry;
use crate::runtime::Shared;
use crate::wait::{self, Until};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Looks without any sign of life before a suspicion is printed.
const SUSPECT: u32 = 10;
/// Fibers a report names at most.
const NAMED: usize = 100;

static RUNTIMES: Lock<Vec<usize>> = Lock::new(Vec::new());
/// Plain threads that wait for a fiber.
static WAITING: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn register(runtime: &Shared) {
    RUNTIMES.lock().push(std::ptr::from_ref(runtime) as usize);
}

pub(crate) fn unregister(runtime: &Shared) {
    let address = std::ptr::from_ref(runtime) as usize;
    RUNTIMES.lock().retain(|other| *other != address);
}

/// Visits the runtimes of this process that are running.
pub(crate) fn for_each_runtime(mut visit: impl FnMut(&Shared)) {
    for address in RUNTIMES.lock().iter() {
        // SAFETY: registered while it lives, and unregistering waits for the lock.
        visit(unsafe { &*(*address as *const Shared) });
    }
}

/// Counts a waiting plain thread for as long as it waits.
struct Waiting;

impl Waiting {
    fn new() -> Waiting {
        WAITING.fetch_add(1, Ordering::SeqCst);
        Waiting
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A plain thread waits for `key`, for as long as `waits` says so.
pub(crate) fn wait_watchfully(key: usize, waits: impl Fn() -> bool, until: Until) -> Outcome {
    let _waiting = Waiting::new();
    let mut watch = Watch::default();
    loop {
        let look = clock::after(LOOK);
        let step = Until { deadline: until.deadline.min(look), ..until };
        let outcome = wait::park(key, &waits, Reason::Join, step);
        let over = !waits()
            || outcome == Outcome::Cancelled
            || (outcome == Outcome::TimedOut && clock::now() < look)
            || clock::now() >= until.deadline;
        if over {
            return if waits() { outcome } else { Outcome::Unparked };
        }
        watch.look();
    }
}

/// Looks after the end of a runtime: its owner waits for its fibers, however long.
pub(crate) fn watch_end(runtime: &Shared) {
    let _waiting = Waiting::new();
    let mut watch = Watch::default();
    let mut steps = 0u32;
    while !runtime.has_stopped() {
        std::thread::sleep(Duration::from_micros(100 << steps.min(8)));
        steps += 1;
        if steps % 40 == 0 {
            watch.look();
        }
    }
}

/// What earlier looks have seen.
#[derive(Debug, Default)]
struct Watch {
    activity: u64,
    silent: u32,
}

impl Watch {
    fn look(&mut self) {
        let (mut dormant, mut alive, mut activity, mut carriers) = (true, 0, 0, 0);
        for_each_runtime(|runtime| {
            dormant &= runtime.is_dormant();
            alive += runtime.alive();
            activity += runtime.activity();
            carriers += runtime.carriers.len();
        });
        if !dormant || alive == 0 || activity != self.activity {
            *self = Watch { activity, silent: 0 };
            return;
        }
        self.silent += 1;
        let threads = std::fs::read_dir("/proc/self/task").map_or(usize::MAX, Iterator::count);
        if threads == carriers + WAITING.load(Ordering::SeqCst) {
            report("deadlock: every fiber waits, and no thread is left that could wake one");
            std::process::abort();
        }
        static SAID: AtomicBool = AtomicBool::new(false);
        if self.silent == SUSPECT && !SAID.swap(true, Ordering::Relaxed) {
            report("every fiber waits; unless another thread wakes one, this is a deadlock");
        }
    }
}

/// Prints `what` and who waits for what to standard error.
fn report(what: &str) {
    let mut text = format!("carefree: {what}\n");
    let mut fibers = 0;
    registry::for_each_alive(|fiber| {
        if fiber.kind.get() == Kind::Fiber && fiber.episode.is_waiting() {
            fibers += 1;
            if fibers <= NAMED {
                text += &line(fiber);
            }
        }
    });
    if fibers > NAMED {
        text += &format!("  … and {} more\n", fibers - NAMED);
    }
    // One write, so that it is not torn; not `eprintln`, whose lock a fiber may hold.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(fiber: FiberRef) -> String {
    let number = fiber.id.load(Ordering::Relaxed);
    let reason = Reason::from_code(fiber.reason.load(Ordering::Relaxed));
    match fiber.name() {
        Some(name) => format!("  fiber {number} '{name}' {reason}\n"),
        None => format!("  fiber {number} {reason}\n"),
    }
}
