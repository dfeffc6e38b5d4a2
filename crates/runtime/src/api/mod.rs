//! What a program calls: spawning, scopes, sleeping, permits, time limits.

#[cfg(not(loom))]
pub(crate) mod large;
#[cfg(not(loom))]
pub(crate) mod life;
#[cfg(not(loom))]
pub(crate) mod rest;
#[cfg(not(loom))]
pub(crate) mod scope;
#[cfg(not(loom))]
pub(crate) mod semaphore;
#[cfg(not(loom))]
pub(crate) mod spawn;
pub(crate) mod timeout;
