//! Blocking calls of `std` on fibers.

mod modes;
mod sockets;
