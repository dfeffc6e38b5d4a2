//! What runs here: a fiber or a plain thread, each on a thread of loom's.

use std::cell::Cell;

use crate::fiber::header::{FiberRef, Kind};

loom::thread_local! {
    static CURRENT: Cell<Option<FiberRef>> = Cell::new(None);
}

pub(crate) fn set_current(fiber: Option<FiberRef>) {
    CURRENT.with(|current| current.set(fiber));
}

pub(crate) fn try_current() -> Option<FiberRef> {
    CURRENT.with(Cell::get)
}

pub(crate) fn current() -> FiberRef {
    try_current().expect("a thread of the model that waits has a header")
}

pub(crate) fn current_fiber() -> Option<FiberRef> {
    try_current().filter(|me| me.kind.get() == Kind::Fiber)
}

/// As the real one.
pub fn on_fiber() -> bool {
    current_fiber().is_some()
}

/// As the real one.
pub fn without_parking<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// Nothing is fetched ahead here.
pub(crate) fn prefetch_stack(_fiber: FiberRef) {}
