//! Models of how waiting and waking meet: [`Episode`] and [`Signal`] in the steps that
//! `wait::park_self`, `wait::park` and their counterparts take.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::episode::{BY_CANCEL, BY_TOKEN, Claim, Episode, Outcome, Ticket};
use crate::signal::Signal;

struct Fiber {
    episode: Episode,
    token: Signal,
    cancel: Signal,
    /// Stands for the context that is saved when it leaves its stack.
    context: AtomicUsize,
    /// Times it was made ready.
    ready: AtomicUsize,
}

impl Fiber {
    fn new() -> Fiber {
        Fiber {
            episode: Episode::new(),
            token: Signal::new(),
            cancel: Signal::new(),
            context: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
        }
    }

    fn wake(&self, claim: Claim) -> bool {
        if claim == Claim::Ready {
            self.ready.fetch_add(1, Ordering::Relaxed);
        }
        claim != Claim::Lost
    }

    /// As `wait::unpark`.
    fn unpark(&self) {
        if self.wake(self.episode.claim_by(BY_TOKEN, Outcome::Unparked)) {
            return;
        }
        self.token.send();
        self.wake(self.episode.claim_by(BY_TOKEN, Outcome::Unparked));
    }

    /// As `cancel::cancel`.
    fn cancel(&self) {
        self.cancel.send();
        self.wake(self.episode.claim_by(BY_CANCEL, Outcome::Cancelled));
    }

    /// Leaves its stack, as far as that goes; whoever runs next makes it ready if need be.
    fn leave(&self) {
        if !self.episode.is_woken() && !self.episode.commit() {
            self.ready.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As `wait::park_self`, up to the moment when the fiber is off its stack. Returns the outcome
    /// if it never left.
    fn park(&self) -> Option<Outcome> {
        let ticket = self.episode.begin(BY_TOKEN | BY_CANCEL);
        let given_up = |outcome| {
            self.episode.claim(ticket, outcome);
            Some(self.episode.finish())
        };
        if self.token.take() {
            return given_up(Outcome::Unparked);
        }
        if self.cancel.is_sent() {
            return given_up(Outcome::Cancelled);
        }
        self.leave();
        None
    }
}

/// All interleavings with so many preemptions: without a bound three threads take hours.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

#[test]
fn an_unpark_and_a_cancellation_are_not_missed() {
    model(|| {
        let fiber = Arc::new(Fiber::new());
        let (one, other) = (fiber.clone(), fiber.clone());
        let unparker = thread::spawn(move || one.unpark());
        let canceller = thread::spawn(move || other.cancel());
        let at_once = fiber.park();
        unparker.join().unwrap();
        canceller.join().unwrap();
        let outcome = at_once.unwrap_or_else(|| {
            assert!(fiber.episode.is_woken(), "it sleeps for ever");
            fiber.episode.finish()
        });
        assert!(fiber.ready.load(Ordering::Relaxed) <= 1, "made ready twice");
        // Whichever came second is there for the next wait.
        match outcome {
            Outcome::Unparked => assert!(fiber.cancel.is_sent()),
            Outcome::Cancelled => {
                fiber.token.take();
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_cancellation_alone_is_not_missed() {
    model(|| {
        let fiber = Arc::new(Fiber::new());
        let theirs = fiber.clone();
        let canceller = thread::spawn(move || theirs.cancel());
        let at_once = fiber.park();
        canceller.join().unwrap();
        assert!(at_once.is_some() || fiber.episode.is_woken(), "it sleeps for ever");
    });
}

#[test]
fn every_unpark_lets_a_park_through() {
    model(|| {
        let fiber = Arc::new(Fiber::new());
        let theirs = fiber.clone();
        let unparker = thread::spawn(move || theirs.unpark());
        let parked = fiber.park().is_none();
        unparker.join().unwrap();
        if parked {
            assert!(fiber.episode.is_woken(), "it sleeps for ever");
            assert_eq!(fiber.episode.finish(), Outcome::Unparked);
        }
        assert!(fiber.ready.load(Ordering::Relaxed) <= 1, "made ready twice");
    });
}

/// A bucket of the parking lot: the fibers in its list, by number.
struct Lot {
    list: Mutex<Vec<usize>>,
    open: AtomicBool,
    fibers: [Fiber; 2],
}

impl Lot {
    /// As `wait::park`: enters the list if the door is shut.
    fn park(&self, me: usize) -> Option<Ticket> {
        let mut list = self.list.lock().unwrap();
        if self.open.load(Ordering::Relaxed) {
            return None;
        }
        let ticket = self.fibers[me].episode.begin(0);
        list.push(me);
        Some(ticket)
    }

    /// As `lot::unpark` of one.
    fn unpark(&self) -> usize {
        let mut list = self.list.lock().unwrap();
        while !list.is_empty() {
            let fiber = &self.fibers[list.remove(0)];
            let claim = match fiber.episode.claim_held() {
                true => Claim::Ready,
                false => fiber.episode.claim_by(u64::MAX, Outcome::Unparked),
            };
            if fiber.wake(claim) {
                return 1;
            }
        }
        0
    }

    /// As `wait::park_held`, up to the moment when the fiber is off its stack. Whether it waits.
    fn park_held(&self, me: usize) -> bool {
        let mut list = self.list.lock().unwrap();
        if self.open.load(Ordering::Relaxed) {
            return false;
        }
        let fiber = &self.fibers[me];
        fiber.episode.begin_held();
        list.push(me);
        fiber.context.store(1, Ordering::Relaxed);
        true
    }

    fn leave(&self, me: usize) {
        self.list.lock().unwrap().retain(|other| *other != me);
    }
}

#[test]
fn a_wake_up_is_neither_missed_nor_spent_on_who_is_awake() {
    model(|| {
        let lot = Arc::new(Lot {
            list: Mutex::new(Vec::new()),
            open: AtomicBool::new(false),
            fibers: [Fiber::new(), Fiber::new()],
        });
        // The second in the list waits already when the others start.
        let (first, second) = (lot.park(0).unwrap(), lot.park(1).unwrap());
        lot.fibers[1].leave();
        let (theirs, also) = (lot.clone(), lot.clone());
        let timer = thread::spawn(move || {
            let fiber = &theirs.fibers[0];
            fiber.wake(fiber.episode.claim(first, Outcome::TimedOut))
        });
        let waker = thread::spawn(move || also.unpark());
        lot.fibers[0].leave();
        let (timed_out, woken) = (timer.join().unwrap(), waker.join().unwrap());
        assert_eq!(woken, 1, "somebody waited");
        if timed_out {
            assert_eq!(lot.fibers[0].episode.finish(), Outcome::TimedOut);
            lot.leave(0);
            assert_eq!(lot.fibers[1].episode.finish(), Outcome::Unparked);
            assert_eq!(lot.fibers[1].ready.load(Ordering::Relaxed), 1);
        } else {
            assert_eq!(lot.fibers[0].episode.finish(), Outcome::Unparked);
            let claim = lot.fibers[1].episode.claim(second, Outcome::TimedOut);
            assert_eq!(claim, Claim::Ready, "the second still waits");
        }
        assert!(lot.fibers[0].ready.load(Ordering::Relaxed) <= 1, "made ready twice");
    });
}

#[test]
fn who_comes_while_the_door_opens_does_not_wait_before_it() {
    model(|| {
        let lot = Arc::new(Lot {
            list: Mutex::new(Vec::new()),
            open: AtomicBool::new(false),
            fibers: [Fiber::new(), Fiber::new()],
        });
        let theirs = lot.clone();
        let opener = thread::spawn(move || {
            theirs.open.store(true, Ordering::Relaxed);
            theirs.unpark();
        });
        let waits = lot.park(0).is_some();
        if waits {
            lot.fibers[0].leave();
        }
        opener.join().unwrap();
        assert!(!waits || lot.fibers[0].episode.is_woken(), "it sleeps for ever");
    });
}

#[test]
fn a_wait_for_a_key_alone_is_ended_by_nothing_else() {
    model(|| {
        let lot = Arc::new(Lot {
            list: Mutex::new(Vec::new()),
            open: AtomicBool::new(false),
            fibers: [Fiber::new(), Fiber::new()],
        });
        // A wait that is over, whose timer comes late.
        let earlier = lot.fibers[0].episode.begin(BY_CANCEL);
        assert_eq!(lot.fibers[0].episode.claim(earlier, Outcome::Unparked), Claim::Early);
        lot.fibers[0].episode.finish();
        let (theirs, also) = (lot.clone(), lot.clone());
        let others = thread::spawn(move || {
            let fiber = &theirs.fibers[0];
            assert_eq!(fiber.episode.claim(earlier, Outcome::TimedOut), Claim::Lost);
            fiber.cancel();
        });
        let opener = thread::spawn(move || {
            also.open.store(true, Ordering::Relaxed);
            if also.unpark() == 1 {
                let saved = also.fibers[0].context.load(Ordering::Relaxed);
                assert_eq!(saved, 1, "made ready while on its stack");
            }
        });
        let waits = lot.park_held(0);
        others.join().unwrap();
        opener.join().unwrap();
        assert_eq!(lot.fibers[0].ready.load(Ordering::Relaxed), usize::from(waits));
        if waits {
            assert_eq!(lot.fibers[0].episode.finish(), Outcome::Unparked);
            assert!(lot.fibers[0].cancel.is_sent());
        }
    });
}
