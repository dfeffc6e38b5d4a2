//! What the runtime says of itself: the watchdog's reports, and dumps.

#[cfg(not(loom))]
pub(crate) mod dump;
#[cfg(not(loom))]
pub(crate) mod mapped;
#[cfg(not(loom))]
pub(crate) mod watch;
