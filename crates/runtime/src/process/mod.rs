//! What there is once in a process: the runtimes, forks, the search for deadlocks.

#[cfg(not(loom))]
pub(crate) mod deadlock;
#[cfg(not(loom))]
pub(crate) mod fork;
#[cfg(not(loom))]
pub(crate) mod global;
#[cfg(not(loom))]
pub(crate) mod metrics;
#[cfg(not(loom))]
pub(crate) mod native;
#[cfg(not(loom))]
pub(crate) mod runtime;
#[cfg(not(loom))]
pub(crate) mod shortage;
