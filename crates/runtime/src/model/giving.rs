//! Models of a fiber that yields while another carrier asks for fibers: the real queue, with its bias and its parcel.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{World, bounded};
use crate::carrier::policy::Place;
use crate::carrier::queue::Queue;
use crate::fiber::header::FiberRef;
use crate::protocol::parcel::Answer;

/// A carrier's queue, and the contexts of the fibers.
struct Carrying {
    queue: Queue,
    fibers: Vec<FiberRef>,
    /// A cell for each fiber: how often it ran. loom reports it if two carriers run the fiber at once, or one enters it
    /// without having seen how the other left it.
    runs: Vec<UnsafeCell<u32>>,
}

// SAFETY: loom checks the accesses to the cells.
unsafe impl Sync for Carrying {}
// SAFETY: as above; a header is Sync.
unsafe impl Send for Carrying {}

impl Carrying {
    /// A first fiber, which runs, and others, which are queued.
    fn new(world: &World, fibers: usize) -> Arc<Carrying> {
        let fibers: Vec<_> = (0..fibers).map(|_| world.fiber()).collect();
        let queue = Queue::new();
        for &fiber in &fibers[1..] {
            // SAFETY: no other thread runs yet.
            unsafe { queue.push(fiber, Place::Last) };
        }
        let runs = fibers.iter().map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Carrying { queue, fibers, runs })
    }

    fn run(&self, fiber: FiberRef) {
        let index =
            self.fibers.iter().position(|one| *one == fiber).expect("a fiber of this model");
        // SAFETY: one carrier has the fiber; that this is so is what loom checks.
        self.runs[index].with_mut(|runs| unsafe { *runs += 1 });
    }

    /// The owner: its fiber yields so often, and so does each that it switches to. What comes then, ends.
    fn carry(&self, yields: u32) -> Vec<FiberRef> {
        let mut current = self.fibers[0];
        self.run(current);
        for _ in 0..yields {
            // SAFETY: one thread is the owner, and unlocks the queue each time.
            let mut queue = unsafe { self.queue.lock_to_yield() };
            let next = queue.rotate(current);
            queue.unlock();
            current = next.unwrap_or(current);
            self.run(current);
        }
        let mut ended = vec![current];
        loop {
            // SAFETY: as above.
            let mut queue = unsafe { self.queue.lock() };
            let next = queue.pop();
            queue.unlock();
            let Some(next) = next else { return ended };
            self.run(next);
            ended.push(next);
        }
    }

    /// Another carrier: asks, takes by force if it is not answered, and runs to its end what it gets.
    fn search(&self) -> Vec<FiberRef> {
        let mine = Queue::new();
        let mut looks = 0;
        let patient = || {
            looks += 1;
            thread::yield_now();
            looks < 2
        };
        // SAFETY: this thread owns `mine`, which is another queue.
        let first = match unsafe { mine.ask(&self.queue, patient) } {
            Answer::Thing(fiber) => Some(fiber),
            Answer::Nothing => None,
            // SAFETY: as above.
            Answer::Unanswered => unsafe { mine.take_from(&self.queue) },
        };
        let rest = std::iter::from_fn(|| {
            // SAFETY: as above.
            let mut queue = unsafe { mine.lock() };
            let next = queue.pop();
            queue.unlock();
            next
        });
        let got: Vec<_> = first.into_iter().chain(rest).collect();
        got.iter().for_each(|&fiber| self.run(fiber));
        got
    }
}

/// Each fiber ends on one carrier, and runs on one at a time, though a yield may give away the only one queued.
fn yields_beside_a_search(fibers: usize, yields: u32) {
    bounded(3, move || {
        let world = World::default();
        let carrying = Carrying::new(&world, fibers);
        let theirs = carrying.clone();
        let other = thread::spawn(move || theirs.search());
        let mut ended = carrying.carry(yields);
        ended.extend(other.join().unwrap());
        assert_eq!(ended.len(), fibers, "a fiber was lost, or is there twice");
        assert!(carrying.fibers.iter().all(|fiber| ended.contains(fiber)));
    });
}

#[test]
fn the_only_other_is_given_away_once() {
    yields_beside_a_search(2, 2);
}

#[test]
fn of_three_each_runs_on_one_carrier() {
    yields_beside_a_search(3, 1);
}
