//! The sleep of a carrier that has nothing to run.
//!
//! It sleeps on a futex or, while operations are pending, in the kernel's wait for their
//! completions (a ring or epoll, see [`Driver`](crate::Driver)). One word serves both, so a waker
//! need not know which it is.
//!
//! # The protocol, and why no wake-up is lost
//!
//! The word has four values:
//!
//! * `EMPTY`: the carrier does not wait, and no wake-up is pending.
//! * `WAITING`: the carrier is asleep on the futex or about to be; no wake-up is pending.
//! * `LISTENING`: the same in the driver, which watches the bell.
//! * `WOKEN`: a wake-up is pending (the token). Any number of wake-ups make one token.
//!
//! ```text
//!  wait:  W1  EMPTY -> WAITING (or LISTENING)   wake:  K1  old = swap(WOKEN)
//!             (was WOKEN: go to W3)                    K2  if old was WAITING: futex wake
//!         W2  futex wait while WAITING                     if old was LISTENING: ring the bell
//!             (or sleep until the bell rings)
//!         W3  old = swap(EMPTY)
//!             return: was it WOKEN?
//! ```
//!
//! *Claim.* A `wake` that begins after the last W3 ends the wait that is under way or the next
//! one. *Proof.* Only W1 and W3 overwrite the word besides K1, and W1 leaves `WOKEN` unchanged, so the
//! token set by K1 stays until a W3. All steps on the word are read-modify-writes of one location,
//! so K1 falls between two of the waiter's:
//!
//! 1. Before W1 (after an earlier W3): W1 sees `WOKEN` and goes to W3 without sleeping.
//! 2. After W1 on the futex, before the kernel compares in W2: the comparison fails and W2 returns.
//! 3. After the comparison: the carrier sleeps, or is awake again already. The word was `WAITING`,
//!    so K2 calls the kernel, which orders the comparison and the sleep before K2's wake-up: the sleep
//!    ends. A second waker that finds `WOKEN` may skip K2: the one that replaced `WAITING` by `WOKEN`
//!    makes the call.
//! 4. After W1 in the driver: the word was `LISTENING`, so K2 rings the bell. The driver compares
//!    no word, but unlike a futex the bell keeps its state: a ring before the kernel sleeps in W2
//!    has left a completion or a ready descriptor, and W2 returns at once. (Nothing consumes that
//!    in between: completions are fetched before W1 or after W2 only.)
//!
//! The call of K2 can come after the carrier has woken for another reason (deadline, signal,
//! completion) and gone to sleep again, in the same place or the other. It then ends a wait whose
//! word is still `WAITING` or `LISTENING`, or rings a bell that ends a later wait. That is a
//! spurious return, which waits permit, and no token is lost by it. ∎
//!
//! K1 releases and W1/W3 acquire, so what the waker wrote before `wake` is visible after the `wait`
//! that took its token. Nothing more is ordered: a scheduler that pushes work and then checks which
//! carriers sleep needs its own fence between the two.
//!
//! Checked by loom (`tests` below): a waiter with two wakers, with a deadline, with a late K2, and
//! one that alternates between futex and driver.

use crate::sys::{self, Bell, Futex};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const EMPTY: u32 = 0;
const WAITING: u32 = 1;
const WOKEN: u32 = 2;
const LISTENING: u32 = 3;

/// The timer slack of a carrier, in nanoseconds.
///
/// The kernel may end a timed wait late by the thread's slack, by default 50 us, to
/// serve several threads' timers with one interrupt. A carrier has merged timers already: its
/// one wait stands for all the timers in its wheel, and the slack would delay every sleeping fiber.
/// This is the least that the kernel accepts; 0 would restore the default.
const TIMER_SLACK: usize = 1;

/// The sleep of one carrier: one thread waits, any thread wakes it.
///
/// A wake-up is a token. Without a wait under way it is kept and ends the next wait at once; two
/// wake-ups without a wait between them are one.
///
/// ```
/// use carefree_reactor::Idle;
/// use std::sync::Arc;
///
/// let idle = Arc::new(Idle::new());
/// let waker = std::thread::spawn({
///     let idle = Arc::clone(&idle);
///     move || idle.wake()
/// });
/// while !idle.wait(None) {} // false: a spurious return
/// # waker.join().unwrap();
/// ```
#[derive(Debug)]
pub struct Idle {
    word: Futex,
    /// Wakes the carrier when it sleeps in its driver.
    bell: Bell,
    /// Whether the waiting thread's timer slack was set.
    sharp: AtomicBool,
}

impl Idle {
    /// Without a waiting thread or a token.
    pub fn new() -> Self {
        Idle { word: Futex::new(EMPTY), bell: Bell::new(), sharp: AtomicBool::new(false) }
    }

    /// Blocks the calling thread until [`wake`](Idle::wake) or until `deadline`, in nanoseconds on
    /// the clock of [`clock::now`](crate::clock::now); `None` sets no limit. Returns whether a
    /// wake-up ended it. May also return spuriously; never misses a wake-up.
    ///
    /// The first wait with a deadline sets the timer slack of the calling thread to 1 ns, so that
    /// deadlines are met within some microseconds instead of 50. Threads that it starts later inherit
    /// that.
    ///
    /// # Panics
    /// When another thread is already waiting here.
    pub fn wait(&self, deadline: Option<u64>) -> bool {
        self.sleep_as(WAITING, deadline.is_some(), || self.word.wait(WAITING, deadline))
    }

    /// [`wait`](Idle::wait) in `sleep`: the kernel's wait for completions, which ends when the bell
    /// rings or has rung since the last call. `timed` says whether it has a deadline.
    pub(crate) fn listen(&self, timed: bool, sleep: impl FnOnce()) -> bool {
        self.sleep_as(LISTENING, timed, sleep)
    }

    fn sleep_as(&self, state: u32, timed: bool, sleep: impl FnOnce()) -> bool {
        if timed && !self.sharp.load(Relaxed) {
            self.sharp.store(true, Relaxed);
            sys::set_timer_slack(TIMER_SLACK);
        }
        let word = self.word.word();
        match word.compare_exchange(EMPTY, state, Acquire, Acquire) {
            Ok(_) => sleep(),
            Err(WOKEN) => {}
            Err(_) => panic!("two threads wait on one Idle: each carrier needs its own"),
        }
        word.swap(EMPTY, AcqRel) == WOKEN
    }

    /// Ends the wait under way, or else the next one. Any thread may call it. Enters the kernel
    /// only if the carrier sleeps or is about to.
    pub fn wake(&self) {
        match self.word.word().swap(WOKEN, Release) {
            WAITING => self.word.wake(),
            LISTENING => self.bell.ring(),
            _ => {}
        }
    }

    /// The bell, for a driver to watch.
    #[cfg(not(all(test, loom)))]
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }
}

impl Default for Idle {
    fn default() -> Self {
        Idle::new()
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Waits until `work` has the wanted value. Loom reports a lost wake-up as a deadlock.
    fn wait_for(idle: &Idle, work: &loom::sync::atomic::AtomicU32, wanted: u32) {
        while work.load(Relaxed) != wanted {
            idle.wait(None);
        }
    }

    /// All interleavings with at most three preemptions: the known bugs of such protocols need two,
    /// and without a bound three threads keep loom busy for hours.
    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    fn setting() -> (Arc<Idle>, Arc<loom::sync::atomic::AtomicU32>) {
        (Arc::new(Idle::new()), Arc::default())
    }

    #[test]
    fn a_wake_up_arrives_and_orders_the_wakers_writes() {
        model(|| {
            let idle = Arc::new(Idle::new());
            let work = Arc::new(loom::cell::UnsafeCell::new(0));
            let waker = {
                let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
                thread::spawn(move || {
                    // SAFETY: the waiter reads after taking the token, which is set after this write.
                    // Loom checks that.
                    work.with_mut(|work| unsafe { *work = 7 });
                    idle.wake();
                })
            };
            while !idle.wait(None) {}
            // SAFETY: the token was taken, so the waker has written.
            assert_eq!(work.with(|work| unsafe { *work }), 7);
            waker.join().unwrap();
        });
    }

    #[test]
    fn two_wake_ups_arrive() {
        model(|| {
            let (idle, work) = setting();
            let wakers = [0, 1].map(|_| {
                let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Relaxed);
                    idle.wake();
                })
            });
            wait_for(&idle, &work, 2);
            for waker in wakers {
                waker.join().unwrap();
            }
        });
    }

    #[test]
    fn a_deadline_or_signal_does_not_lose_a_wake_up() {
        model(|| {
            let (idle, work) = setting();
            let waker = {
                let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Relaxed);
                    idle.wake();
                })
            };
            let clock = {
                let idle = Arc::clone(&idle);
                thread::spawn(move || idle.word.interrupt())
            };
            wait_for(&idle, &work, 1);
            waker.join().unwrap();
            clock.join().unwrap();
        });
    }

    #[test]
    fn a_carrier_that_alternates_between_futex_and_driver_is_woken() {
        model(|| {
            let (idle, work) = setting();
            let wakers = [0, 1].map(|_| {
                let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
                thread::spawn(move || {
                    work.fetch_add(1, Relaxed);
                    idle.wake();
                })
            });
            let mut listens = true;
            while work.load(Relaxed) != 2 {
                if listens {
                    idle.listen(false, || idle.bell.sleep());
                } else {
                    idle.wait(None);
                }
                listens = !listens;
            }
            for waker in wakers {
                waker.join().unwrap();
            }
        });
    }

    #[test]
    fn a_late_ring_does_not_lose_the_next_wake_up() {
        model(|| {
            let (idle, work) = setting();
            let waker = {
                let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
                thread::spawn(move || {
                    for _ in 0..2 {
                        work.fetch_add(1, Relaxed);
                        idle.wake();
                    }
                })
            };
            while work.load(Relaxed) != 2 {
                idle.listen(false, || idle.bell.sleep());
            }
            waker.join().unwrap();
        });
    }

    #[test]
    fn a_late_futex_wake_does_not_lose_the_next_wake_up() {
        model(|| {
            let (idle, work) = setting();
            let waker = {
                let (idle, work) = (Arc::clone(&idle), Arc::clone(&work));
                thread::spawn(move || {
                    for _ in 0..2 {
                        work.fetch_add(1, Relaxed);
                        idle.wake();
                    }
                })
            };
            wait_for(&idle, &work, 2);
            waker.join().unwrap();
        });
    }
}
