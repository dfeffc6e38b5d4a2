//! Waiting: parking and unparking, operations of the kernel, calls made by other threads, and what cuts a
//! wait short.
//!
//! All that waits is built on [`park`](park()) and [`unpark`](lot::unpark).

pub(crate) mod cancel;
#[cfg_attr(loom, path = "../model/limits.rs")]
pub(crate) mod limits;
pub mod lot;
#[cfg(not(loom))]
pub(crate) mod offload;
pub mod operation;
pub(crate) mod park;
pub mod waiters;

pub use park::{Until, park, park_after, park_tagged, sleep_until};

pub use crate::fiber::current::{on_fiber, without_parking};
