//! Deadlines, a million at a time.
//!
//! One type, the [`Wheel`]. It is single-threaded: whoever shares one between carriers puts a
//! lock around it, and every operation is short enough for that.

mod bin;
mod table;
mod wheel;

pub use wheel::{TimerKey, Wheel};
