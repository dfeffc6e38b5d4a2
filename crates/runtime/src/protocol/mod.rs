//! Protocols between threads, and what they are written with. Nothing here knows of fibers.

pub(crate) mod bias;
pub(crate) mod episode;
pub(crate) mod flight;
#[cfg(not(loom))]
pub(crate) mod generation;
#[cfg(not(loom))]
pub(crate) mod injector;
pub(crate) mod reason;
#[cfg(not(loom))]
pub(crate) mod ring;
pub(crate) mod signal;
pub(crate) mod sleepers;
pub(crate) mod sync;
pub(crate) mod work;
