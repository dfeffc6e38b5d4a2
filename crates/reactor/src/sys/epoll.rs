//! epoll: the kernel says which descriptors are ready, and the driver makes the calls.
//!
//! For kernels and containers that refuse io_uring. What cannot be made without waiting once a
//! descriptor is ready is left to threads.

mod line;
mod poller;
mod watcher;

pub(super) use poller::{Events, Poller};
pub(crate) use watcher::Watcher;
