//! Blocking calls of `std` on fibers.

mod busy;
mod common;
mod files;
mod forking;
mod messages;
mod modes;
mod names;
mod nonblocking;
mod processes;
mod ready;
mod sleep;
mod sockets;
