//! How long a test may take.
//!
//! A thread of the process wakes twice a second and takes one tick from what each running test has
//! left. It counts its wake-ups instead of reading a clock, for three reasons: on a machine that is
//! suspended or busy the limit grows, as it should; virtual time in a test does not count; and
//! atomics are all it needs, so that a test may fork (the child has no such thread, but its parent
//! has a limit on waiting for it).
//!
//! While none runs, the thread counts for the one that ended last: its thread, or the process, may hang as it
//! ends.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::report;

/// Sets the seconds for tests that name no limit of their own.
pub const LIMIT: &str = "CAREFREE_TEST_LIMIT";

/// Seconds a test may take: a hundred times what nearly all take on an idle machine.
const SECONDS: u32 = 240;
/// Seconds less for each enclosing process that a test has started, so that the innermost one, which
/// knows most, reports first.
const LESS: u32 = 50;
/// The lowest limit.
const LEAST: u32 = 90;
/// How many processes of tests there are around this one.
static DEPTH: AtomicU32 = AtomicU32::new(0);

const TICK: Duration = Duration::from_millis(500);
const TICKS_A_SECOND: u32 = 2;

/// A test that runs. A free slot has nothing left, and so is passed over.
struct Slot {
    test: AtomicPtr<&'static str>,
    /// Ticks left.
    left: AtomicU32,
}

/// More tests than run at once.
static SLOTS: [Slot; 64] = [const { Slot::free() }; 64];

/// The test that ended last, and the ticks that are left to the process until the next one begins.
static ENDED: Slot = Slot::free();

impl Slot {
    const fn free() -> Slot {
        Slot { test: AtomicPtr::new(ptr::null_mut()), left: AtomicU32::new(0) }
    }

    fn is_free(&self) -> bool {
        self.test.load(Ordering::Relaxed).is_null()
    }

    /// Takes one tick from what is left. Whether that was the last.
    fn tick(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        // It may end just now: then it has nothing left.
        left > 0
            && self
                .left
                .compare_exchange(left, left - 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok_and(|before| before == 1)
    }

    /// Says that its test does not end as it should, and ends the process.
    fn give_up(&self, wrong: &str) -> ! {
        // SAFETY: null, or a reference to a static.
        let test = unsafe { self.test.load(Ordering::Relaxed).as_ref() };
        report::print_and_abort(test.unwrap_or(&"?"), wrong)
    }
}

/// A slot in use: free again when the test ends, also by a panic.
struct Taken(&'static Slot);

impl Drop for Taken {
    fn drop(&mut self) {
        ENDED.left.store(allowed(0).saturating_mul(TICKS_A_SECOND), Ordering::Relaxed);
        ENDED.test.store(self.0.test.load(Ordering::Relaxed), Ordering::Relaxed);
        self.0.left.store(0, Ordering::Relaxed);
        self.0.test.store(ptr::null_mut(), Ordering::Release);
    }
}

/// Runs `f`, which is `test`'s. Ends the process, saying why, if it takes longer than `seconds`, or
/// than tests may as a rule if that is 0.
pub fn within_limit<T>(test: &'static &'static str, seconds: u32, f: impl FnOnce() -> T) -> T {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // Where there is no thread to be had there is no limit.
        let _ = thread::Builder::new().name("limit-of-tests".into()).spawn(look);
    });
    let name = ptr::from_ref(test).cast_mut();
    let is_taken = |slot: &&Slot| {
        let free = ptr::null_mut();
        slot.test.compare_exchange(free, name, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let taken = SLOTS.iter().find(is_taken).map(Taken);
    if let Some(Taken(slot)) = &taken {
        let ticks = allowed(seconds).saturating_mul(TICKS_A_SECOND);
        slot.left.store(ticks, Ordering::Relaxed);
    }
    f()
}

fn allowed(asked: u32) -> u32 {
    if asked > 0 {
        return asked;
    }
    let set = std::env::var(LIMIT).ok().and_then(|text| text.parse::<u32>().ok());
    let depth = DEPTH.load(Ordering::Relaxed);
    set.unwrap_or_else(|| LEAST.max(SECONDS.saturating_sub(LESS * depth))).max(1)
}

fn look() {
    loop {
        thread::sleep(TICK);
        if let Some(slot) = SLOTS.iter().find(|slot| slot.tick()) {
            slot.give_up(" hangs: it has not ended in time.");
        }
        if SLOTS.iter().all(Slot::is_free) && ENDED.tick() {
            ENDED.give_up(" has ended, but what it has left keeps the process from going on.");
        }
    }
}

/// Learns how deep this process is, and counts it in what those see that it starts. Before `main`,
/// because the environment is to be written while there is one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static ENTER: extern "C" fn() = {
    extern "C" fn enter() {
        const NAME: &std::ffi::CStr = c"CAREFREE_TEST_DEPTH";
        // SAFETY: C strings; there is one thread yet, so no other writes to the environment meanwhile.
        unsafe {
            let found = libc::getenv(NAME.as_ptr());
            let depth = if found.is_null() { 0 } else { libc::atoi(found).clamp(0, 8) as u8 };
            DEPTH.store(depth.into(), Ordering::Relaxed);
            let deeper = [b'1' + depth, 0];
            libc::setenv(NAME.as_ptr(), deeper.as_ptr().cast(), 1);
        }
    }
    enter
};
