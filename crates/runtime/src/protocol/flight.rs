//! How a fiber knows that no other thread accesses the record of its operation any more.
//!
//! The record lies on the fiber's stack. Two other threads may access it: the one that completes the
//! operation, and the one that runs the *errand* to cancel it, if the fiber has sent one to the carrier
//! that it submitted the operation on. Each sends a signal as its last access, and ends the fiber's wait
//! after that; which fiber, it has read before.
//!
//! *The fiber does not go on too early*: it waits for both signals, and each comes after the accesses of
//! its sender.
//!
//! *It does not sleep for ever*: a signal is sent before the wait is ended, and looked at when the wait has
//! begun (see `signal`).

use crate::protocol::signal::Signal;

#[derive(Debug)]
pub(crate) struct Flight {
    done: Signal,
    /// The errand to cancel it has been run.
    heard: Signal,
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight { done: Signal::new(), heard: Signal::new() }
    }

    /// The operation is done: the completing thread's last access.
    #[inline]
    pub(crate) fn complete(&self) {
        self.done.send();
    }

    /// Runs the errand: calls `cancel`, unless the operation is done. The last access of the thread
    /// that runs it.
    #[inline]
    pub(crate) fn hear(&self, cancel: impl FnOnce()) {
        if !self.done.peek() {
            cancel();
        }
        self.heard.send();
    }

    /// For the fiber, whose wait has begun: whether the operation is done.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.done.is_sent()
    }

    /// Whether the operation is done, for a caller that is not about to wait.
    #[inline]
    pub(crate) fn was_done(&self) -> bool {
        self.done.peek()
    }

    /// Counts the errand as run, for an operation that needs none.
    #[inline]
    pub(crate) fn needs_no_errand(&self) {
        self.heard.send();
    }

    /// For the fiber, whose wait has begun: whether no other thread accesses the record any more. `far`
    /// says that errands were sent.
    #[inline]
    pub(crate) fn is_over(&self, far: bool) -> bool {
        self.done.is_sent() && (!far || self.heard.is_sent())
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::protocol::episode::{BY_COMPLETION, Claim, Episode, Outcome};
    use crate::protocol::sync::{AtomicBool, AtomicUsize, Ordering};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A fiber, which outlives its operations, and one record on its stack.
    struct World {
        episode: Episode,
        ready: AtomicUsize,
        flight: Flight,
        /// The record: read by all that touch it, written by the fiber when it goes on and uses the memory
        /// for something else. loom reports it if one comes while the other is there.
        record: UnsafeCell<u32>,
        /// What the reactor has of the operation.
        under_way: AtomicBool,
    }

    impl World {
        fn new() -> Arc<World> {
            Arc::new(World {
                episode: Episode::new(),
                ready: AtomicUsize::new(0),
                flight: Flight::new(),
                record: UnsafeCell::new(7),
                under_way: AtomicBool::new(true),
            })
        }

        fn touch(&self) {
            // SAFETY: loom looks whether it is.
            self.record.with(|record| assert_eq!(unsafe { *record }, 7));
        }

        /// As `carrier::wake::wake_completed`.
        fn wake(&self) {
            if self.episode.claim_by(BY_COMPLETION, Outcome::Unparked) == Claim::Ready {
                self.ready.fetch_add(1, Ordering::Relaxed);
            }
        }

        /// As `carrier::record::complete`: by the operation itself or by a cancel, whichever is first.
        fn complete(&self) {
            if self.under_way.swap(false, Ordering::AcqRel) {
                self.touch();
                self.flight.complete();
                self.wake();
            }
        }

        /// As `carrier::record::run_errand`.
        fn run_errand(&self) {
            self.touch();
            // The reactor says nothing of one that it does not know.
            self.flight.hear(|| self.touch());
            self.wake();
        }

        /// As `operation::cancel_and_wait`, where sleeping is to spin until woken.
        fn wait_until_over(&self, far: bool) {
            while !self.flight.is_over(far) {
                let ticket = self.episode.begin(BY_COMPLETION);
                if self.flight.is_over(far) {
                    self.episode.claim(ticket, Outcome::Unparked);
                } else if !self.episode.is_woken() && !self.episode.commit() {
                    self.ready.fetch_add(1, Ordering::Relaxed);
                }
                while !self.episode.is_woken() {
                    thread::yield_now();
                }
                self.episode.finish();
            }
            // SAFETY: loom looks whether it is the fiber's alone.
            self.record.with_mut(|record| unsafe { *record = 0 });
        }
    }

    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    #[test]
    fn a_completion_is_the_last_touch() {
        model(|| {
            let world = World::new();
            let reactor = world.clone();
            let completing = thread::spawn(move || reactor.complete());
            world.flight.needs_no_errand();
            world.wait_until_over(false);
            completing.join().unwrap();
        });
    }

    #[test]
    fn the_record_outlives_the_completion_and_the_errand() {
        model(|| {
            let world = World::new();
            let (reactor, errand) = (world.clone(), world.clone());
            let completing = thread::spawn(move || reactor.complete());
            let hearing = thread::spawn(move || errand.run_errand());
            world.wait_until_over(true);
            completing.join().unwrap();
            hearing.join().unwrap();
        });
    }
}
