//! Waiting on the kernel.
//!
//! A carrier is a thread that runs fibers. This crate contains everything by which a carrier
//! *waits* for the kernel. It knows nothing of fibers, and calls back only the closures that its
//! caller passes in.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | the one clock: nanoseconds of `CLOCK_MONOTONIC` as a `u64` |
//! | [`timer`] | deadlines, up to millions: a hierarchical timing wheel, [`Wheel`] |
//! | [`idle`] | the sleep of a carrier with nothing to run: [`Idle`], which a wake-up or a deadline ends |
//! | [`op`] | operations: [`Op`] in, [`Completion`] out |
//! | [`driver`] | a carrier's access to the kernel, [`Driver`], over one of three backends: io_uring, epoll, and a mock with virtual time |
//! | [`choice`](mod@choice) | which backend this machine supports, and why |
//!
//! A carrier waits for three things: another carrier's wake-up, the earliest deadline, and
//! completions. [`Idle`] handles the first two with one futex word; [`Driver::wait`] handles all
//! three with the same word, so a waker need not know where the carrier sleeps.
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

#[cfg(not(all(test, loom)))]
pub mod choice;
pub mod clock;
#[cfg(not(all(test, loom)))]
pub mod driver;
#[cfg(not(all(test, loom)))]
#[doc(hidden)]
pub mod faults;
pub mod idle;
pub mod op;
mod sys;
pub mod timer;

pub use carefree_ground::own::Shared;
#[cfg(not(all(test, loom)))]
pub use choice::{Choice, check_forced, choice};
#[cfg(not(all(test, loom)))]
pub use driver::{Driver, Kind, Waker, after_fork, before_fork};
pub use idle::Idle;
pub use op::{Attempt, Completion, Completions, Op, Unsupported};
pub use timer::{TimerKey, Wheel};
