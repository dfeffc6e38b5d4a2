//! What concerns the whole process: its runtimes, forks, shortage of memory, the search for deadlocks, counts.

#[cfg(not(loom))]
mod adding;
#[cfg(not(loom))]
pub(crate) mod deadlock;
#[cfg(not(loom))]
pub(crate) mod fork;
#[cfg(not(loom))]
pub(crate) mod global;
#[cfg(not(loom))]
pub(crate) mod look;
#[cfg(not(loom))]
pub(crate) mod metrics;
#[cfg(not(loom))]
pub(crate) mod monitor;
pub(crate) mod native;
#[cfg(not(loom))]
pub(crate) mod rescuer;
#[cfg(not(loom))]
mod rhythm;
#[cfg(not(loom))]
pub(crate) mod runtime;
#[cfg(not(loom))]
pub(crate) mod shortage;
