//! Models of closing what others wait for.

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use super::{World, as_fiber, bounded};
use crate::fiber::header::FiberRef;
use crate::protocol::reason::Reason;
use crate::protocol::signal::Signal;
use crate::protocol::sync::{AtomicBool, Ordering, UnsafeCell};
use crate::wait::park::{self, Until};
use crate::wait::waiters::{Seat, Waiters};

/// What is waited for, by two fibers at most.
struct File {
    waiters: Waiters,
    sides: [Side; 2],
}

/// A fiber's part of it.
struct Side {
    /// It has entered.
    inside: AtomicBool,
    /// What it uses while it is inside. The closing thread writes it when all have left: loom reports it
    /// if one of them has not.
    used: UnsafeCell<u32>,
    /// There is something to read: it ends the wait.
    data: Signal,
}

// SAFETY: loom checks the accesses to the cells.
unsafe impl Sync for File {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for File {}

impl File {
    fn new() -> Arc<File> {
        let side = || Side {
            inside: AtomicBool::new(false),
            used: UnsafeCell::new(0),
            data: Signal::new(),
        };
        Arc::new(File { waiters: Waiters::new(), sides: [side(), side()] })
    }

    /// Waits until there is something to read, or it is closed.
    fn wait(&self, me: FiberRef, side: &Side, seat: &Seat) {
        // SAFETY: the waiter is dropped before this function returns, and the seat lives longer.
        let Some(waiter) = (unsafe { self.waiters.enter(seat) }) else { return };
        side.inside.store(true, Ordering::Release);
        side.used.with(|_| ());
        let over = || side.data.is_sent() || !waiter.holds();
        while !over() {
            park::await_signal(me, over, Reason::Other, Until::WOKEN_ONLY);
        }
        side.used.with(|_| ());
    }

    fn close(&self) {
        // One that is not seen here may come late. Then it uses the next file of this name.
        let inside = self.sides.each_ref().map(|side| side.inside.load(Ordering::Acquire));
        assert!(self.waiters.close(), "it is closed once");
        for (side, inside) in self.sides.iter().zip(inside) {
            if inside {
                // SAFETY: loom looks whether it is.
                side.used.with_mut(|used| unsafe { *used += 1 });
            }
        }
    }

    /// As a completion, for one that came late too.
    fn arrive(&self, fiber: FiberRef, side: usize) {
        self.sides[side].data.send();
        crate::carrier::wake::wake_completed(fiber);
    }
}

/// A fiber that waits.
fn waits(file: &Arc<File>, me: FiberRef, side: usize) -> JoinHandle<()> {
    let file = file.clone();
    as_fiber(me, move || {
        let seat = Seat::new();
        file.wait(me, &file.sides[side], &seat);
        // The frame is used for something else: loom reports a closer that still looks at the record.
        seat.retire();
    })
}

#[test]
fn a_lone_fiber_leaves_before_the_file_is_gone() {
    bounded(3, || {
        let world = World::default();
        world.be_a_thread();
        let (file, me) = (File::new(), world.fiber());
        let fiber = waits(&file, me, 0);
        file.close();
        file.arrive(me, 0);
        fiber.join().unwrap();
        assert!(!file.waiters.is_waited_on());
    });
}

#[test]
fn all_fibers_leave_before_the_file_is_gone() {
    bounded(2, || {
        let world = World::default();
        world.be_a_thread();
        let (file, fibers) = (File::new(), [0, 1].map(|_| world.fiber()));
        let waiting = [0, 1].map(|n| waits(&file, fibers[n], n));
        file.close();
        for (n, fiber) in fibers.into_iter().enumerate() {
            file.arrive(fiber, n);
        }
        waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
        assert!(!file.waiters.is_waited_on());
    });
}

/// The last one may leave by itself just when the closing thread goes to sleep for it.
#[test]
fn one_that_leaves_by_itself_lets_the_closing_thread_go_on() {
    bounded(2, || {
        let world = World::default();
        world.be_a_thread();
        let (file, me) = (File::new(), world.fiber());
        let fiber = waits(&file, me, 0);
        let theirs = file.clone();
        let completing = thread::spawn(move || theirs.arrive(me, 0));
        file.close();
        completing.join().unwrap();
        fiber.join().unwrap();
        assert!(!file.waiters.is_waited_on());
    });
}

/// Two close at once: one of them does it, and waits for all.
#[test]
fn of_two_that_close_one_waits() {
    bounded(2, || {
        let world = World::default();
        world.be_a_thread();
        let (file, me, closes) = (File::new(), world.fiber(), world.fiber());
        let fiber = waits(&file, me, 0);
        let theirs = file.clone();
        let other = as_fiber(closes, move || theirs.waiters.close());
        let own = file.waiters.close();
        let others = other.join().unwrap();
        // Both, if one came when the other had gone.
        assert!(own || others);
        file.arrive(me, 0);
        fiber.join().unwrap();
        assert!(!file.waiters.is_waited_on());
    });
}
