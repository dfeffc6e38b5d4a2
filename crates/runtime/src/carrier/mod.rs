//! Kernel threads that run fibers (*carriers*): their queues, timers and operations in flight, the buckets
//! of fibers that wait, and how these are woken.
//!
//! [`policy`] decides where a fiber is queued that has become ready.

pub(crate) mod bucket;
#[cfg(not(loom))]
pub(crate) mod calls;
#[cfg_attr(loom, path = "../model/carrier.rs")]
#[allow(clippy::module_inception, reason = "the folder is named for it")]
pub(crate) mod carrier;
#[cfg_attr(loom, path = "../model/census.rs")]
pub(crate) mod census;
#[cfg_attr(loom, path = "../model/clock.rs")]
pub mod clock;
#[cfg(not(loom))]
pub(crate) mod completion;
pub(crate) mod errand;
pub(crate) mod handover;
#[cfg(not(loom))]
pub(crate) mod io;
#[cfg(not(loom))]
pub mod launch;
#[cfg(not(loom))]
pub(crate) mod local;
#[cfg(not(loom))]
pub mod lookout;
#[cfg(not(loom))]
pub(crate) mod looks;
#[cfg(not(loom))]
pub(crate) mod meter;
#[cfg(not(loom))]
pub(crate) mod pace;
pub(crate) mod policy;
#[cfg_attr(feature = "rejected-deque", path = "deque.rs")]
pub(crate) mod queue;
#[cfg(all(test, not(loom)))]
mod queueing;
#[cfg(not(loom))]
pub(crate) mod quiet;
pub(crate) mod record;
#[cfg(not(loom))]
pub(crate) mod reserve;
#[cfg(not(loom))]
pub(crate) mod round;
#[cfg(not(loom))]
pub(crate) mod runtimes;
#[cfg(not(loom))]
pub(crate) mod shared;
#[cfg(not(loom))]
pub(crate) mod stats;
#[cfg_attr(loom, path = "../model/switch.rs")]
pub(crate) mod switch;
#[cfg(not(loom))]
pub(crate) mod table;
pub(crate) mod timers;
pub(crate) mod wake;
