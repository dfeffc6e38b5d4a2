//! Blocking calls of `std` on fibers.

mod busy;
mod common;
mod modes;
mod ready;
mod sleep;
mod nonblocking;
mod sockets;
