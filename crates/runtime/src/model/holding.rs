//! A model of finding a hosted thread from outside while it ends, and while its header is used again.

use loom::sync::Arc;
use loom::thread;

use super::bounded;
use crate::fiber::header::{ALIVE, FINISHED, FREE, FiberRef, Header, Kind, PINNED};
use crate::fiber::pin;
use crate::protocol::sync::{Ordering, UnsafeCell};

/// A header, and what lies on the stack that is pinned in it: the number of the fiber.
struct Hosted {
    header: *mut Header,
    record: UnsafeCell<u64>,
}

// SAFETY: loom checks the accesses to the record; a header is Sync.
unsafe impl Sync for Hosted {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Hosted {}

impl Drop for Hosted {
    fn drop(&mut self) {
        // SAFETY: made by a box, in the test below.
        drop(unsafe { Box::from_raw(self.header) });
    }
}

impl Hosted {
    fn fiber(&self) -> FiberRef {
        // SAFETY: stays as long as `self`, which the threads of the model share.
        FiberRef::new(unsafe { &*self.header })
    }

    /// What clearing the header does: the stack is used for other things.
    fn clear(&self) {
        self.fiber().run.store(FREE, Ordering::Relaxed);
        // SAFETY: loom checks whether anything else accesses the cell.
        self.record.with_mut(|record| unsafe { *record = 0 });
    }

    /// A thread's life, but for its own reference. Whether the header was cleared at its end.
    fn live(&self, number: u64) -> bool {
        let fiber = self.fiber();
        fiber.begin(Kind::Fiber, number, None, 1);
        // SAFETY: loom checks whether anything else accesses the cell.
        self.record.with_mut(|record| unsafe { *record = number });
        fiber.join.store(PINNED, Ordering::Release);
        fiber.join.fetch_or(FINISHED, Ordering::AcqRel);
        let last = fiber.give_back();
        if last {
            self.clear();
        }
        last
    }

    fn look(&self) {
        let fiber = self.fiber();
        if pin::hold(fiber, |_| self.clear()) {
            assert_eq!(fiber.run.load(Ordering::Relaxed), ALIVE);
            // SAFETY: loom checks whether anything writes the cell meanwhile.
            let record = self.record.with(|record| unsafe { *record });
            assert_eq!(record, fiber.id.load(Ordering::Relaxed));
            if fiber.give_back() {
                self.clear();
            }
        }
    }
}

#[test]
fn a_thread_that_is_found_while_it_ends_keeps_its_record() {
    bounded(3, || {
        let header = Box::into_raw(Box::new(Header::new()));
        let hosted = Arc::new(Hosted { header, record: UnsafeCell::new(0) });
        let theirs = hosted.clone();
        // A header is used again only by the party that has cleared it.
        let lives = thread::spawn(move || theirs.live(1) && theirs.live(2));
        hosted.look();
        lives.join().unwrap();
    });
}
