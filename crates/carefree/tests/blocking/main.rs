//! Blocking calls of `std` on fibers.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod busy;
mod closing;
mod common;
mod cuts;
mod files;
mod flags;
mod forking;
mod ipc;
mod limits;
mod messages;
mod modes;
mod names;
mod nonblocking;
mod numbers;
mod pointers;
mod processes;
mod ready;
mod resets;
mod signals;
mod sleep;
mod sockets;
mod start;
mod transfer;
mod variants;
mod virtual_time;
