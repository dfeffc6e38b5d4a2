//! The fibers and threads of a model.

use std::cell::RefCell;
use std::ptr;

use loom::thread::{self, JoinHandle};

use crate::carrier::carrier::{self, Carrier, Next};
use crate::carrier::census;
use crate::carrier::switch;
use crate::fiber::bed::{self, Bed};
use crate::fiber::current::set_current;
use crate::fiber::furnish::FiberStack;
use crate::fiber::header::{FiberRef, Header, Kind};
use crate::handle::join;
use crate::protocol::sync::Ordering;

/// All interleavings with so many preemptions: without a bound three threads take hours.
pub(crate) fn bounded(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(check);
}

/// Owns headers and what belongs to them. Made and dropped by a model's first thread.
#[derive(Default)]
pub(crate) struct World {
    made: RefCell<Vec<Made>>,
}

struct Made {
    header: *mut Header,
    carrier: *mut Carrier,
    stack: *mut FiberStack,
}

impl World {
    fn make(&self, kind: Kind, references: u32) -> FiberRef {
        let made = Made {
            header: Box::into_raw(Box::new(Header::new())),
            carrier: Box::into_raw(Box::new(Carrier::new())),
            stack: Box::into_raw(Box::new(FiberStack::new())),
        };
        // SAFETY: just made, and dropped with the world.
        let fiber = FiberRef::new(unsafe { &*made.header });
        fiber.carrier.set(made.carrier.cast());
        match kind {
            Kind::Fiber => fiber.stack.store(made.stack, Ordering::Relaxed),
            Kind::Thread => bed::make(fiber),
        }
        self.made.borrow_mut().push(made);
        fiber.begin(kind, 1, None, references);
        fiber
    }

    /// A fiber that nothing runs yet; one reference is its own, one the handle's.
    pub(crate) fn fiber(&self) -> FiberRef {
        self.make(Kind::Fiber, 2)
    }

    /// Makes the caller a plain thread.
    pub(crate) fn be_a_thread(&self) -> FiberRef {
        let me = self.make(Kind::Thread, 1);
        set_current(Some(me));
        me
    }

    /// A carrier that nothing runs on yet.
    pub(crate) fn carrier(&self) -> &'static Carrier {
        carrier::of(self.fiber())
    }

    pub(crate) fn stack_of(&self, fiber: FiberRef) -> &FiberStack {
        let made = self.made.borrow();
        let made = made.iter().find(|made| ptr::eq(made.header, fiber.header())).unwrap();
        // SAFETY: made by `make`, and dropped with the world.
        unsafe { &*made.stack }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        assert_eq!(census::waiting(), 0, "a thread is counted that does not wait");
        for made in self.made.get_mut() {
            // SAFETY: made by `make`; the model's threads have ended.
            unsafe {
                let header = Box::from_raw(made.header);
                if header.kind.get() == Kind::Thread {
                    drop(Box::from_raw(header.stack.load(Ordering::Relaxed).cast::<Bed>()));
                }
                drop(Box::from_raw(made.carrier));
                drop(Box::from_raw(made.stack));
            }
        }
    }
}

/// Runs `f` as the fiber `me`, which does not end.
pub(crate) fn as_fiber<T: 'static>(me: FiberRef, f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    thread::spawn(move || {
        set_current(Some(me));
        f()
    })
}

/// Runs `f` as all the fiber `me` does.
pub(crate) fn run<T: 'static>(me: FiberRef, f: impl FnOnce() -> T + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        set_current(Some(me));
        let stack = me.stack.load(Ordering::Relaxed);
        // SAFETY: the world keeps the record.
        let touch = || unsafe { (*stack).touch() };
        touch();
        let value = f();
        touch();
        // As `life::__rust_begin_short_backtrace_of_fiber` and `life::finish`.
        // SAFETY: the fiber itself, once.
        unsafe { join::leave(me, Ok(value)) };
        join::finish(me);
        touch();
        // SAFETY: the fiber itself, which goes no further.
        unsafe { switch::leave(me, Next::End) };
    })
}

/// All deadlines of a fiber pass.
pub(crate) fn fire(fiber: FiberRef) {
    carrier::of(fiber).fire();
}
