//! How threads settle things by a word of memory: each protocol with its proof and, where loom can run
//! it, a model. Nothing here knows of fibers.

pub(crate) mod bias;
pub(crate) mod episode;
pub(crate) mod flight;
#[cfg(not(loom))]
pub(crate) mod generation;
#[cfg(not(loom))]
pub(crate) mod injector;
pub(crate) mod parcel;
pub(crate) mod reason;
pub(crate) mod ring;
pub(crate) mod set;
pub(crate) mod signal;
pub(crate) mod sleepers;
pub(crate) mod sync;
pub(crate) mod work;
