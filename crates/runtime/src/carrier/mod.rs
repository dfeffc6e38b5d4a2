//! Kernel threads that run fibers: queues, timers, operations in flight, the buckets of those that wait.
//!
//! A fiber that becomes ready comes here, and here it is decided which runs next ([`policy`]).

pub(crate) mod bucket;
#[cfg(not(loom))]
pub(crate) mod calls;
#[cfg_attr(loom, path = "../model/carrier.rs")]
#[allow(clippy::module_inception, reason = "what the room is named for")]
pub(crate) mod carrier;
#[cfg_attr(loom, path = "../model/census.rs")]
pub(crate) mod census;
#[cfg_attr(loom, path = "../model/clock.rs")]
pub mod clock;
#[cfg(not(loom))]
pub(crate) mod completion;
pub(crate) mod errand;
#[cfg(not(loom))]
pub(crate) mod io;
#[cfg(not(loom))]
pub mod launch;
#[cfg(not(loom))]
pub mod lookout;
pub(crate) mod policy;
#[cfg(not(loom))]
pub(crate) mod queue;
pub(crate) mod record;
#[cfg(not(loom))]
pub(crate) mod round;
#[cfg(not(loom))]
pub(crate) mod runtimes;
#[cfg(not(loom))]
pub(crate) mod shared;
pub(crate) mod timers;
pub(crate) mod wake;
