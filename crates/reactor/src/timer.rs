//! Timers: deadlines with payloads, up to millions of them.
//!
//! The one type is the [`Wheel`]. It is single-threaded; to share one between carriers takes a
//! lock, and every operation is short enough to run under it.

mod slot;
mod table;
mod wheel;

pub use wheel::{TimerKey, Wheel};
