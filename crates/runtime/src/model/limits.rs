//! Limits of waits: in the models no fiber is within one.

use std::cell::Cell;

use crate::carrier::clock::NEVER;
use crate::fiber::header::FiberRef;

pub(crate) struct Limit(Cell<bool>);

impl Limit {
    pub(crate) fn until(_at: u64) -> Limit {
        Limit(Cell::new(false))
    }

    pub(crate) fn shield() -> Limit {
        Limit(Cell::new(false))
    }

    pub(crate) fn during<T>(&self, _me: FiberRef, f: impl FnOnce() -> T) -> T {
        f()
    }

    pub(crate) fn is_told(&self) -> bool {
        self.0.get()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct InForce {
    pub(crate) until: u64,
    pub(crate) shielded: bool,
}

pub(crate) fn of(_me: FiberRef) -> InForce {
    InForce { until: NEVER, shielded: false }
}

pub(crate) fn tell_timed_out() {}
