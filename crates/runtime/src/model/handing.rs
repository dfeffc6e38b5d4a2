//! Models of fibers that are taken out of a carrier's queue for others: by the monitor, while the owner comes
//! back, and by a carrier that retires, while another goes to sleep. The queue, the list of what was handed over
//! and the protocol of the sleepers are the real ones.

use loom::sync::Arc;
use loom::thread;

use super::{World, bounded};
use crate::carrier::handover::Handover;
use crate::carrier::policy::Place;
use crate::carrier::queue::Queue;
use crate::fiber::header::FiberRef;
use crate::protocol::sleepers::{Kept, Sleepers};
use crate::protocol::sync::{AtomicUsize, Ordering};

/// Two carriers, of which the first has a queue with fibers.
struct Carriers {
    sleepers: Sleepers,
    queue: Queue,
    handover: Handover,
    /// How often each was woken.
    woken: [AtomicUsize; 2],
}

/// How a carrier's time ends: what it has run, and how many wake-ups were for sleeps that are over.
struct Ended {
    ran: Vec<FiberRef>,
    used: usize,
}

impl Carriers {
    fn new(world: &World, fibers: usize) -> (Arc<Carriers>, Vec<FiberRef>) {
        let carriers = Carriers {
            sleepers: Sleepers::new(2, 0),
            queue: Queue::new(),
            handover: Handover::new(),
            woken: [AtomicUsize::new(0), AtomicUsize::new(0)],
        };
        let fibers: Vec<_> = (0..fibers).map(|_| world.fiber()).collect();
        for &fiber in &fibers {
            // SAFETY: no other thread runs yet.
            unsafe { carriers.queue.push(fiber, Place::Last) };
        }
        (Arc::new(carriers), fibers)
    }

    fn wake(&self, carrier: Option<usize>) {
        if let Some(carrier) = carrier {
            self.woken[carrier].fetch_add(1, Ordering::Release);
        }
    }

    /// As the monitor.
    fn hand_over(&self) {
        if self.handover.put_from(&self.queue) {
            self.wake(self.sleepers.notify_fenced());
        }
    }

    /// Takes the next fiber, as the first carrier in its own context, or at a switch.
    fn pop(&self) -> Option<FiberRef> {
        // SAFETY: one thread is the first carrier, and leaves the queue unlocked.
        let mut queue = unsafe { self.queue.lock() };
        let next = queue.pop();
        queue.unlock();
        next
    }

    /// The first carrier, which runs, until it sleeps for good.
    fn carry(&self) -> Ended {
        let mut ended = Ended { ran: Vec::new(), used: 0 };
        while let Some(fiber) = self.pop() {
            ended.ran.push(fiber);
        }
        self.sleepers.search();
        self.search_on(0, &mut ended);
        ended
    }

    /// A carrier that searches, until it sleeps for good.
    fn search_on(&self, me: usize, ended: &mut Ended) {
        loop {
            let before = ended.ran.len();
            self.handover.take(|fiber| ended.ran.push(fiber));
            if ended.ran.len() > before {
                self.wake(self.sleepers.found(Kept::NONE, || !self.handover.is_empty()));
                self.sleepers.search();
                continue;
            }
            let rest = self.sleepers.lie_down(me);
            if self.handover.is_empty() {
                return;
            }
            if !self.sleepers.wake_up(rest) {
                ended.used += 1;
            }
        }
    }

    /// When all is quiet: each fiber was run once, or waits where a carrier that was woken will look.
    fn check(&self, fibers: &[FiberRef], ended: &[Ended]) {
        let mut left = Vec::new();
        while !self.handover.is_empty() {
            self.handover.take(|fiber| left.push(fiber));
        }
        left.extend(std::iter::from_fn(|| self.pop()));
        let used: usize = ended.iter().map(|ended| ended.used).sum();
        let woken: usize = self.woken.iter().map(|woken| woken.load(Ordering::Acquire)).sum();
        assert!(woken >= used, "a carrier waits for a wake-up that was not sent");
        assert!(left.is_empty() || woken > used, "fibers wait, and no carrier was woken");
        left.extend(ended.iter().flat_map(|ended| &ended.ran));
        assert_eq!(left.len(), fibers.len(), "a fiber was lost, or is there twice");
        assert!(fibers.iter().all(|fiber| left.contains(fiber)));
    }
}

/// The owner comes back while the monitor takes what is queued there, and may go to sleep; the other carrier
/// sleeps.
#[test]
fn what_is_handed_over_while_its_carrier_comes_back_is_run() {
    bounded(3, || {
        let world = World::default();
        let (carriers, fibers) = Carriers::new(&world, 2);
        carriers.sleepers.search();
        let _asleep = carriers.sleepers.lie_down(1);
        let theirs = carriers.clone();
        let owner = thread::spawn(move || theirs.carry());
        carriers.hand_over();
        let ended = owner.join().unwrap();
        carriers.check(&fibers, &[ended]);
    });
}

/// The same while the other carrier goes to sleep, too.
#[test]
fn what_is_handed_over_while_all_lie_down_wakes_one() {
    bounded(2, || {
        let world = World::default();
        let (carriers, fibers) = Carriers::new(&world, 1);
        carriers.sleepers.search();
        let [owner, other] = [(); 2].map(|()| carriers.clone());
        let owner = thread::spawn(move || owner.carry());
        let other = thread::spawn(move || {
            let mut ended = Ended { ran: Vec::new(), used: 0 };
            other.search_on(1, &mut ended);
            ended
        });
        carriers.hand_over();
        let ended = [owner, other].map(|carrier| carrier.join().unwrap());
        carriers.check(&fibers, &ended);
    });
}

/// A carrier that leaves what it has to others and retires, while the monitor hands over from its queue and the
/// last other one goes to sleep.
#[test]
fn what_a_carrier_leaves_as_it_retires_wakes_one() {
    bounded(2, || {
        let world = World::default();
        let (carriers, fibers) = Carriers::new(&world, 2);
        carriers.sleepers.search();
        let [retires, other] = [(); 2].map(|()| carriers.clone());
        let retires = thread::spawn(move || {
            // As `Carrier::withdraw`.
            retires.sleepers.search();
            retires.handover.put(|| retires.pop());
            let more = || !retires.handover.is_empty();
            let (retired, sleeper) = retires.sleepers.retire(0, 1, Kept::NONE, more);
            assert!(retired);
            retires.wake(sleeper);
        });
        let other = thread::spawn(move || {
            let mut ended = Ended { ran: Vec::new(), used: 0 };
            other.search_on(1, &mut ended);
            ended
        });
        carriers.hand_over();
        retires.join().unwrap();
        let ended = other.join().unwrap();
        assert!(carriers.sleepers.is_in_reserve(0));
        carriers.check(&fibers, &[ended]);
    });
}
