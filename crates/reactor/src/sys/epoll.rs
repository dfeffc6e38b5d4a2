//! epoll: the kernel reports which descriptors are ready, and the driver makes the calls.
//!
//! For kernels and containers that refuse io_uring. Calls that may wait even when the descriptor is
//! ready are left to threads.

mod line;
mod poller;
mod watcher;

pub(super) use poller::{Events, Poller};
pub(crate) use watcher::Watcher;
