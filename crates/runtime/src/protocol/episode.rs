//! One wait of a fiber: begun once, ended by exactly one party.
//!
//! A fiber that waits can be woken by several parties: by an unpark, by its deadline, by a
//! cancellation. And a wake-up can come while the fiber is still on its way off its stack, when
//! no carrier may run it yet. Both are settled by one word.
//!
//! # States
//!
//! | state | meaning | becomes |
//! |---|---|---|
//! | `RUNNING` | not waiting | `PARKING` when the fiber begins to wait ([`begin`](Episode::begin)) |
//! | `PARKING` | may be woken; still on its stack | `PARKED` once the fiber's context is saved, by what its carrier runs next ([`commit`](Episode::commit)); or `WOKEN` |
//! | `PARKED` | may be woken; off its stack | `WOKEN` by the one party whose claim succeeds ([`claim`](Episode::claim)) |
//! | `WOKEN` | ended, with an outcome | `RUNNING` when the fiber goes on ([`finish`](Episode::finish)) |
//!
//! A party that wants to end the wait is a *claimant*. The word also counts episodes. A timer, which
//! learns of a wait when that begins, names it by its number (a [`Ticket`]): so it cannot end a later
//! wait of the same fiber, nor one of a later fiber with the same header, for headers are never unmapped
//! and the count is never reset.
//!
//! # Proof
//!
//! *One claimant.* Only `PARKING` and `PARKED` can be claimed, by compare-and-swap, and nothing but
//! the fiber itself leaves `WOKEN`. So per episode one claim succeeds.
//!
//! *Made ready once, and not too early.* `commit` and `claim` are read-modify-writes of the same
//! word, hence ordered. If the claim comes first, it finds `PARKING` and leaves the fiber alone; the
//! commit fails, and the carrier that makes it has saved the context and makes the fiber ready. If the
//! commit comes first, the claim finds `PARKED` and acquires what the commit released, the saved context
//! among it; then the claimant makes the fiber ready.
//!
//! # Waits that nothing but an unpark of their key ends
//!
//! Most waits for a lock or a message are such: no deadline, no cancellation. They are made under the
//! lock of the key's bucket ([`crate::wait::lot`]), which an unpark takes too. It is taken before the wait
//! begins and released when the fiber is off its stack. So the word is written under that lock alone,
//! without a compare-and-swap and without a `commit`: it is `PARKED` from the start
//! ([`begin_held`](Episode::begin_held)), and claimed by a store ([`claim_held`](Episode::claim_held)).
//!
//! *One claimant.* The lock keeps unparking threads apart, and away from a wait that is just beginning.
//! All others leave the word as it is: the flags do not allow them to end this wait, and there is no
//! ticket for it. The swap of a claimant that has read the word of an earlier wait fails, for the count
//! has moved on.
//!
//! *Not too early.* A claimant takes the lock after its release, which comes after the context was saved.

use crate::protocol::sync::{AtomicU64, Ordering};

const RUNNING: u64 = 0;
const PARKING: u64 = 1;
const PARKED: u64 = 2;
const WOKEN: u64 = 3;
const STATE: u64 = 3;

const OUTCOME_SHIFT: u32 = 2;
const OUTCOME: u64 = 3 << OUTCOME_SHIFT;

/// The wait also ends by `unpark` of the fiber itself.
pub(crate) const BY_TOKEN: u64 = 1 << 4;
/// The wait also ends by cancellation.
pub(crate) const BY_CANCEL: u64 = 1 << 5;
/// A plain thread waits: it never leaves its stack and must be woken.
pub(crate) const OF_THREAD: u64 = 1 << 6;
/// A plain thread waits without a time limit, and is counted as unable to wake others: see
/// [`crate::process::deadlock`].
pub(crate) const COUNTED: u64 = 1 << 7;
/// The wait also ends by the completion of an operation of the kernel's.
pub(crate) const BY_COMPLETION: u64 = 1 << 8;

/// The wait ends by an unpark of its key and by nothing else, and all of it is under the lock of the
/// key's bucket.
const BY_KEY_ALONE: u64 = 1 << 9;

const NUMBER_SHIFT: u32 = 10;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The fiber was unparked.
    Unparked,
    /// The deadline passed.
    TimedOut,
    /// The fiber was cancelled.
    Cancelled,
    /// There was nothing to wait for: [`park`](crate::wait::park())'s `validate` said so.
    Invalid,
}

/// What became of an attempt to end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// There was no such wait: another claim had ended it, or it was not the claimant's to end.
    Lost,
    /// Ended; the fiber has not left its stack, and what its carrier runs next makes it ready.
    Early,
    /// Ended; the claimant must make the fiber ready.
    Ready,
    /// Ended; the waiter is a thread, and the claimant must wake it and, if it was counted, take it
    /// out of the count. (The claim says so, for the header may be in another wait by now.)
    Thread {
        /// [`COUNTED`].
        counted: bool,
    },
}

/// The number of one wait, for [`Episode::claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
pub(crate) struct Episode(AtomicU64);

impl Episode {
    pub(crate) fn new() -> Self {
        Episode(AtomicU64::new(RUNNING))
    }

    /// The fiber begins to wait. `flags` say what may end the wait besides a claim by its ticket
    /// (`BY_…`), and whether a thread waits.
    #[inline]
    pub(crate) fn begin(&self, flags: u64) -> Ticket {
        // Only the fiber itself writes the word while it runs.
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & STATE, RUNNING, "a wait begins amid another");
        let number = (word >> NUMBER_SHIFT) + 1;
        self.0.store(number << NUMBER_SHIFT | flags | PARKING, Ordering::Release);
        Ticket(number)
    }

    /// The fiber begins a wait that nothing but an unpark of its key ends. The caller has the lock of
    /// the key's bucket, and keeps it until the fiber is off its stack.
    #[inline]
    pub(crate) fn begin_held(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & STATE, RUNNING, "a wait begins amid another");
        let number = (word >> NUMBER_SHIFT) + 1;
        self.0.store(number << NUMBER_SHIFT | BY_KEY_ALONE | PARKED, Ordering::Relaxed);
    }

    /// Ends the wait under way if [`begin_held`](Self::begin_held) has begun it; then the caller must
    /// make the fiber ready. The caller has the lock under which the fiber waits.
    #[inline]
    pub(crate) fn claim_held(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & (STATE | BY_KEY_ALONE) != PARKED | BY_KEY_ALONE {
            return false;
        }
        let woken = word & !(STATE | OUTCOME) | WOKEN | (Outcome::Unparked as u64) << OUTCOME_SHIFT;
        self.0.store(woken, Ordering::Release);
        true
    }

    /// The fiber is off its stack. If this returns false, the wait has been ended meanwhile, and the
    /// caller must make the fiber ready.
    #[inline]
    pub(crate) fn commit(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word & STATE == PARKING
            && self
                .0
                .compare_exchange(word, word & !STATE | PARKED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Ends the wait that `ticket` names.
    #[inline]
    pub(crate) fn claim(&self, ticket: Ticket, outcome: Outcome) -> Claim {
        self.claim_if(|word| word >> NUMBER_SHIFT == ticket.0, outcome)
    }

    /// Ends the wait under way if it was begun with `flag`; or any, for `u64::MAX`.
    #[inline]
    pub(crate) fn claim_by(&self, flag: u64, outcome: Outcome) -> Claim {
        self.claim_if(|word| word & flag != 0, outcome)
    }

    #[inline]
    fn claim_if(&self, may: impl Fn(u64) -> bool, outcome: Outcome) -> Claim {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let state = word & STATE;
            if !(state == PARKING || state == PARKED) || !may(word) {
                return Claim::Lost;
            }
            let woken = word & !(STATE | OUTCOME) | WOKEN | (outcome as u64) << OUTCOME_SHIFT;
            match self.0.compare_exchange_weak(word, woken, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if word & OF_THREAD != 0 => {
                    return Claim::Thread { counted: word & COUNTED != 0 };
                }
                Ok(_) if state == PARKED => return Claim::Ready,
                Ok(_) => return Claim::Early,
                Err(now) => word = now,
            }
        }
    }

    /// Whether the wait has been ended, and the fiber has not gone on yet.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.0.load(Ordering::Acquire) & STATE == WOKEN
    }

    /// Whether the wait under way is a plain thread's.
    pub(crate) fn is_of_thread(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OF_THREAD != 0
    }

    /// Whether a thread's wait is under way that is counted: see [`COUNTED`].
    pub(crate) fn is_counted(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & COUNTED != 0 && matches!(word & STATE, PARKING | PARKED)
    }

    /// Whether a wait is under way.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire) & STATE, PARKING | PARKED)
    }

    /// How the wait was ended. For the fiber, before it calls [`finish`](Self::finish).
    #[inline]
    pub(crate) fn outcome(&self) -> Outcome {
        let word = self.0.load(Ordering::Acquire);
        debug_assert_eq!(word & STATE, WOKEN);
        match (word & OUTCOME) >> OUTCOME_SHIFT {
            0 => Outcome::Unparked,
            1 => Outcome::TimedOut,
            _ => Outcome::Cancelled,
        }
    }

    /// The fiber goes on after its wait; returns how that was ended.
    #[inline]
    pub(crate) fn finish(&self) -> Outcome {
        let outcome = self.outcome();
        let word = self.0.load(Ordering::Relaxed);
        self.0.store(word >> NUMBER_SHIFT << NUMBER_SHIFT | RUNNING, Ordering::Relaxed);
        outcome
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::protocol::sync::AtomicUsize;
    use loom::sync::Arc;

    struct World {
        episode: Episode,
        /// Stands for the saved context: written before `commit`, read by the thread that makes the fiber
        /// ready.
        context: AtomicUsize,
        ready: AtomicUsize,
    }

    impl World {
        fn make_ready(&self) {
            assert_eq!(self.context.load(Ordering::Relaxed), 1, "made ready while on its stack");
            assert_eq!(self.ready.fetch_add(1, Ordering::Relaxed), 0, "made ready twice");
        }
    }

    #[test]
    fn one_of_an_unparker_and_a_timer_ends_the_wait() {
        loom::model(|| {
            let world = Arc::new(World {
                episode: Episode::new(),
                context: AtomicUsize::new(0),
                ready: AtomicUsize::new(0),
            });
            let ticket = world.episode.begin(BY_TOKEN);
            let claimant = |timer: bool| {
                let world = world.clone();
                loom::thread::spawn(move || {
                    let claim = if timer {
                        world.episode.claim(ticket, Outcome::TimedOut)
                    } else {
                        world.episode.claim_by(BY_TOKEN, Outcome::Unparked)
                    };
                    if claim == Claim::Ready {
                        world.make_ready();
                    }
                    claim != Claim::Lost
                })
            };
            let (unparker, timer) = (claimant(false), claimant(true));
            // Saving the context, then the commit by what runs next: a thread of its own, for loom
            // has no claim come before the commit if this one, which spawns both, does it.
            world.context.store(1, Ordering::Relaxed);
            let next = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    if !world.episode.commit() {
                        world.make_ready();
                    }
                })
            };
            next.join().unwrap();
            let (unparked, timed_out) = (unparker.join().unwrap(), timer.join().unwrap());
            assert!(unparked != timed_out, "exactly one ends it");
            assert_eq!(world.ready.load(Ordering::Relaxed), 1);
            let expected = if timed_out { Outcome::TimedOut } else { Outcome::Unparked };
            assert_eq!(world.episode.finish(), expected);
        });
    }

    #[test]
    fn a_late_timer_does_not_end_the_next_wait() {
        loom::model(|| {
            let world = Arc::new(Episode::new());
            let first = world.begin(BY_TOKEN);
            let timer = {
                let world = world.clone();
                loom::thread::spawn(move || world.claim(first, Outcome::TimedOut))
            };
            if world.claim_by(BY_TOKEN, Outcome::Unparked) != Claim::Lost {
                world.finish();
                world.begin(BY_TOKEN);
                assert_eq!(timer.join().unwrap(), Claim::Lost);
                assert!(!world.is_woken());
            }
        });
    }
}
