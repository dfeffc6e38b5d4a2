//! Blocking calls of `std` on fibers.

mod sockets;
