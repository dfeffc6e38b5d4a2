//! Blocking calls of `std` on fibers.

mod busy;
mod common;
mod modes;
mod nonblocking;
mod ready;
mod sleep;
mod sockets;
