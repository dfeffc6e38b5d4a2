//! Waiting on the kernel.
//!
//! A carrier is a thread that runs fibers. Everything for which a carrier turns to the kernel in
//! order to *wait* lives in this crate; it knows nothing of fibers and calls nobody back except
//! through closures and payloads its caller hands in.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the one clock: nanoseconds of `CLOCK_MONOTONIC` as a `u64` |
//! | [`timer`] | a million deadlines: a hierarchical timing wheel, [`Wheel`] |
//! | [`idle`] | what a carrier does with nothing to run: [`Idle`], a wait that a wake-up or a deadline ends |
//!
//! So far a carrier waits for two things only, another carrier's wake-up and the earliest
//! deadline, and both fit one futex word. Waiting for files and sockets adds a third; [`Idle`]
//! keeps the kernel behind one call in each direction (sleep, rouse) so that a ring can take the
//! futex's place without its callers noticing.
//!
//! ```
//! use carefree_reactor::{Idle, Wheel, clock};
//! use std::time::Duration;
//!
//! let mut wheel = Wheel::new(clock::now());
//! let idle = Idle::new();
//! wheel.insert(clock::after(Duration::from_millis(2)), "the kettle");
//!
//! let mut fired = Vec::new();
//! while fired.is_empty() {
//!     idle.wait(wheel.next_deadline());
//!     wheel.expire(clock::now(), |what| fired.push(what));
//! }
//! assert_eq!(fired, ["the kettle"]);
//! ```
#![warn(missing_docs)]
#![cfg(target_os = "linux")]

pub mod clock;
pub mod idle;
mod sys;
pub mod timer;

pub use idle::Idle;
pub use timer::{TimerKey, Wheel};
