//! Blocking calls of `std` on fibers.

mod common;
mod modes;
mod ready;
mod sleep;
mod sockets;
