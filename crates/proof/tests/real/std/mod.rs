//! The blocking parts of `std`.

mod fs;
mod process;
mod sync;
mod tcp;
mod threads;
mod udp;
mod unix;
