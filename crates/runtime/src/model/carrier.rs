//! A carrier for each fiber, which runs nothing else: a thread of loom's.

use carefree_ground::mapped::Mapped;
use carefree_reactor::{Op, TimerKey, Unsupported};
use loom::sync::{Condvar, Mutex};

use crate::carrier::bucket::Held;
use crate::carrier::errand::ErrandRef;
use crate::carrier::policy::Place;
use crate::carrier::record;
use crate::carrier::timers::Shard;
use crate::carrier::wake::wake_timed_out;
use crate::fiber::furnish;
use crate::fiber::glimpse::Pointer;
use crate::fiber::header::{FREE, FiberRef};
use crate::fiber::pin;
use crate::protocol::episode::Ticket;
use crate::protocol::set::Set;
use crate::protocol::sync::{Ordering, UnsafeCell};

/// As the real one.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Park,
    ParkHeld(Held),
    End,
}

pub(crate) struct Carrier {
    /// The fiber's turn has come.
    pub(crate) turn: Mutex<bool>,
    pub(crate) turns: Condvar,
    /// Stands for the fiber's context: accessed by what makes the fiber ready, as the carrier that runs it
    /// next would access that.
    pub(crate) context: UnsafeCell<u32>,
    shard: Shard,
    timed: Set,
    /// Where the fiber goes on when it has waited; null for here.
    pub(crate) moves_to: Pointer<Carrier>,
    reactor: Mutex<Reactor>,
    changed: Condvar,
    /// How often its header went back.
    freed: UnsafeCell<u32>,
}

/// What the kernel and the thread that polls it have.
#[derive(Default)]
struct Reactor {
    /// Operations that are not done, and whether they are to be cancelled.
    under_way: Vec<(u64, bool)>,
    errands: Vec<u64>,
    /// Bytes that have come, and that were read.
    arrived: u32,
    read: u32,
    has_ended: bool,
}

// SAFETY: loom checks the accesses to the cells.
unsafe impl Sync for Carrier {}
// SAFETY: nothing in it belongs to one thread.
unsafe impl Send for Carrier {}

pub(crate) fn of(fiber: FiberRef) -> &'static Carrier {
    // SAFETY: the model keeps it until its end.
    unsafe { &*fiber.carrier.get().cast::<Carrier>() }
}

pub(crate) fn assign(fiber: FiberRef, carrier: &Carrier) {
    fiber.carrier.set(std::ptr::from_ref(carrier).cast());
}

pub(crate) fn make_ready(fiber: FiberRef, _place: Place) {
    // As the injector, whose link is that of the parking lot's lists.
    fiber.next.set(None);
    let carrier = of(fiber);
    carrier.context.with_mut(|_| ());
    carrier.give_turn();
}

/// As the real one: headers go back with their last counted reference.
pub(crate) fn release(fiber: FiberRef) {
    if fiber.give_back() {
        fiber.run.store(FREE, Ordering::Relaxed);
        if let Some(stack) = pin::take(fiber) {
            furnish::put(stack);
        }
        of(fiber).header_is_free();
    }
}

impl Carrier {
    pub(crate) fn new() -> Carrier {
        Carrier {
            turn: Mutex::new(false),
            turns: Condvar::new(),
            context: UnsafeCell::new(0),
            shard: Shard::new(0, 0),
            timed: Set::new(),
            moves_to: Pointer::new(std::ptr::null()),
            reactor: Mutex::default(),
            changed: Condvar::new(),
            freed: UnsafeCell::new(0),
        }
    }

    pub(crate) fn give_turn(&self) {
        let mut turn = self.turn.lock().unwrap();
        assert!(!*turn, "made ready twice");
        *turn = true;
        self.turns.notify_one();
    }

    pub(crate) fn header_is_free(&self) {
        // SAFETY: loom looks whether it is.
        self.freed.with_mut(|freed| unsafe { *freed += 1 });
    }

    /// How often its fiber's header went back, when all is quiet.
    pub(crate) fn times_freed(&self) -> u32 {
        // SAFETY: loom looks whether it is.
        self.freed.with(|freed| unsafe { *freed })
    }

    /// Whether its fiber was made ready and has not noticed.
    pub(crate) fn is_turn(&self) -> bool {
        *self.turn.lock().unwrap()
    }

    pub(crate) fn must_not_switch(&self, _me: FiberRef) -> bool {
        false
    }

    pub(crate) fn set_timer(
        &self,
        deadline: u64,
        fiber: FiberRef,
        ticket: Ticket,
    ) -> (*const Shard, TimerKey) {
        (&raw const self.shard, self.shard.insert(deadline, fiber, ticket, &self.timed).0)
    }

    /// All deadlines pass.
    pub(crate) fn fire(&self) {
        let mut due = Mapped::new();
        self.shard.expire(u64::MAX - 1, &mut due, &self.timed);
        for &(fiber, ticket) in &*due {
            wake_timed_out(fiber, ticket);
        }
    }

    /// The fiber goes on at `other` when it has waited here.
    pub(crate) fn moves_to(&self, other: &'static Carrier) {
        self.moves_to.set(other);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Reactor) -> T) -> T {
        let changed = change(&mut self.reactor.lock().unwrap());
        self.changed.notify_one();
        changed
    }

    pub(crate) fn submit(&self, token: u64, _op: &Op, _unheld: bool) -> Result<(), Unsupported> {
        self.change(|reactor| reactor.under_way.push((token, false)));
        Ok(())
    }

    /// As a ring's cancel: says nothing of an operation that it does not find.
    pub(crate) fn cancel(&self, token: u64) {
        self.change(|reactor| {
            let found = reactor.under_way.iter_mut().find(|(other, _)| *other == token);
            found.into_iter().for_each(|(_, cancelled)| *cancelled = true);
        });
    }

    /// # Safety
    /// As for the real one.
    pub(crate) unsafe fn send_errand(&self, errand: ErrandRef) {
        self.change(|reactor| reactor.errands.push(errand.token()));
    }

    /// A byte has come, which ends an operation.
    pub(crate) fn arrive(&self) {
        self.change(|reactor| reactor.arrived += 1);
    }

    /// Bytes that were read, when all is quiet.
    pub(crate) fn times_read(&self) -> u32 {
        self.reactor.lock().unwrap().read
    }

    /// No more operations will come.
    pub(crate) fn end(&self) {
        self.change(|reactor| reactor.has_ended = true);
    }

    /// Runs errands and completes what is done, as `Io` does, on a thread that does nothing else.
    pub(crate) fn serve(&self) {
        let mut reactor = self.reactor.lock().unwrap();
        loop {
            let cancelled = reactor.under_way.iter().position(|(_, cancelled)| *cancelled);
            if let Some(token) = reactor.errands.pop() {
                drop(reactor);
                // SAFETY: from `send_errand`.
                unsafe { record::run_errand(token, |token| self.cancel(token)) };
            } else if reactor.read < reactor.arrived && !reactor.under_way.is_empty() {
                reactor.read += 1;
                let (token, _) = reactor.under_way.remove(0);
                drop(reactor);
                // SAFETY: from `submit`, once.
                unsafe { record::complete(token, 1) };
            } else if let Some(at) = cancelled {
                let (token, _) = reactor.under_way.remove(at);
                drop(reactor);
                // SAFETY: from `submit`, once.
                unsafe { record::complete(token, -libc::ECANCELED) };
            } else if reactor.has_ended {
                assert!(reactor.under_way.is_empty(), "an operation was left behind");
                return;
            } else {
                reactor = self.changed.wait(reactor).unwrap();
                continue;
            }
            reactor = self.reactor.lock().unwrap();
        }
    }
}
