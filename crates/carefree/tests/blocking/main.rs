//! Blocking calls of `std` and libc on fibers, made as programs make them.
//!
//! They stand in `carefree` and not in `interpose` because they go by the public interface: a program links
//! `carefree` alone, and that must bring the stand-ins along. `modes` runs them again over the other reactor,
//! on one carrier, and with shared thread-local storage.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod alternate_stacks;
mod busy;
mod closing;
mod common;
mod crowds;
mod cuts;
mod files;
mod flags;
mod forking;
mod frugal;
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
mod replaced;
mod resets;
mod signals;
mod sleep;
mod sockets;
mod start;
mod transfer;
mod variants;
mod virtual_time;
mod waitall;
mod words;
