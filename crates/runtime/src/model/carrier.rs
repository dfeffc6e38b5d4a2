//! A carrier for each fiber, which runs nothing else: a thread of loom's.

use carefree_reactor::{Op, TimerKey, Unsupported};
use loom::sync::{Condvar, Mutex};

use crate::episode::Ticket;
use crate::fiber::FiberRef;
use crate::furnish;
use crate::join;
use crate::lot::Held;
use crate::queue::Place;
use crate::registry;
use crate::sync::UnsafeCell;
use crate::timers::Shard;
use crate::wait;

/// As the real one.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Park,
    ParkHeld(Held),
    End,
}

pub(crate) struct Carrier {
    /// The fiber's turn has come.
    turn: Mutex<bool>,
    turns: Condvar,
    /// How often the fiber was made ready while it was off its stack. Touched by who makes it ready, as the
    /// carrier that runs it next will touch its context.
    context: UnsafeCell<u32>,
    shard: Shard,
    /// How often its header went back.
    freed: UnsafeCell<u32>,
}

// SAFETY: the cells are loom's to watch.
unsafe impl Sync for Carrier {}
// SAFETY: as above.
unsafe impl Send for Carrier {}

pub(crate) fn of(fiber: FiberRef) -> &'static Carrier {
    // SAFETY: the model keeps it until its end.
    unsafe { &*fiber.carrier.get() }
}

/// Leaves the calling fiber's stack, until its turn comes.
///
/// # Safety
/// None.
pub(crate) unsafe fn leave(me: FiberRef, next: Next) {
    let carrier = of(me);
    carrier.context.with_mut(|_| ());
    // As `Carrier::settle`, which the same thread of the kernel's does, on another stack.
    match next {
        Next::Park => {
            if !me.episode.commit() {
                // By its own carrier, whose queue needs no link.
                carrier.give_turn();
            }
        }
        Next::ParkHeld(held) => held.release(),
        Next::End => {
            join::bury(me, furnish::put);
            return registry::release(me);
        }
    }
    let mut turn = carrier.turn.lock().unwrap();
    while !*turn {
        turn = carrier.turns.wait(turn).unwrap();
    }
    *turn = false;
    drop(turn);
    carrier.context.with_mut(|_| ());
}

pub(crate) fn make_ready(fiber: FiberRef, _place: Place) {
    // As the injector, whose link is that of the parking lot's lists.
    fiber.next.set(None);
    let carrier = of(fiber);
    carrier.context.with_mut(|_| ());
    carrier.give_turn();
}

pub(crate) fn for_each_alive(_visit: impl FnMut(FiberRef)) {
    unreachable!()
}

impl Carrier {
    pub(crate) fn new() -> Carrier {
        Carrier {
            turn: Mutex::new(false),
            turns: Condvar::new(),
            context: UnsafeCell::new(0),
            shard: Shard::new(0),
            freed: UnsafeCell::new(0),
        }
    }

    fn give_turn(&self) {
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

    pub(crate) fn must_not_switch(&self) -> bool {
        false
    }

    pub(crate) fn set_timer(
        &self,
        deadline: u64,
        fiber: FiberRef,
        ticket: Ticket,
    ) -> (*const Shard, TimerKey) {
        (&raw const self.shard, self.shard.insert(deadline, fiber, ticket).0)
    }

    /// All deadlines pass.
    pub(crate) fn fire(&self) {
        let mut due = Vec::new();
        self.shard.expire(u64::MAX - 1, &mut due);
        for (fiber, ticket) in due {
            wait::wake_timed_out(fiber, ticket);
        }
    }

    pub(crate) fn submit(&self, _token: u64, _op: &Op, _unheld: bool) -> Result<(), Unsupported> {
        unreachable!()
    }

    pub(crate) fn cancel(&self, _token: u64) {
        unreachable!()
    }

    pub(crate) fn send_errand(&self, _token: u64) {
        unreachable!()
    }
}
