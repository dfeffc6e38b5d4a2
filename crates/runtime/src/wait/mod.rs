//! How fibers wait: for a key until it is unparked, for an operation of the kernel's, for a call that another
//! thread makes; and what cuts a wait short.
//!
//! The waits of the crates above are built on [`park`](park()) and [`unpark`](lot::unpark).

pub(crate) mod cancel;
#[cfg_attr(loom, path = "../model/limits.rs")]
pub(crate) mod limits;
#[cfg(not(loom))]
pub(crate) mod loader;
pub mod lot;
#[cfg(not(loom))]
pub(crate) mod offload;
pub mod operation;
pub(crate) mod park;
pub mod waiters;

#[cfg(not(loom))]
pub use loader::{Loader, holds_loader, set_loader};
pub use park::{Until, park, park_after, park_tagged, sleep_until};

pub use crate::fiber::current::{on_fiber, without_parking};

/// Whether the caller is a plain thread: neither a fiber nor a carrier, so that no fiber runs later because it blocks.
///
/// ```
/// use carefree_runtime::{run, wait::on_plain_thread};
/// assert!(on_plain_thread());
/// assert!(!run(on_plain_thread));
/// ```
#[cfg(not(loom))]
pub fn on_plain_thread() -> bool {
    crate::carrier::carrier::here().is_none()
}
