//! Yielding: to loom.

pub(crate) use loom::thread::yield_now;
