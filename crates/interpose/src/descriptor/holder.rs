//! Which files a ring must not hold.
//!
//! A ring is torn down some milliseconds after its process has ended, and until then the kernel holds
//! the files of the operations that wait in it. With most files, that only delays an end or a hang-up a
//! little. But the next process would be refused
//!
//! * an address: of a listener, of a socket that is no stream, or of one that was bound before it was
//!   connected;
//! * a device, many of which have one user at a time;
//! * a file that is locked, by `flock` or by a lock of the open file's.
//!
//! So fibers wait for these without a ring that holds them
//! ([`Driver::submit_unheld`](carefree_reactor::Driver::submit_unheld)), as over epoll every file is.
//! `cargo test -p carefree --test killed -- --ignored --nocapture` prints what the next process sees
//! of each, and when.

use std::ffi::c_int;

use crate::descriptor::option::option;

/// What may hold a file that a fiber waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Holder {
    /// Not asked yet.
    Unknown,
    /// A ring: it may outlive the process.
    Ring,
    /// The process alone.
    Process,
    /// The process alone; it is a listener whose connections a ring may hold.
    Listener,
}

impl Holder {
    pub(crate) fn from_number(number: u8) -> Holder {
        match number {
            1 => Holder::Ring,
            2 => Holder::Process,
            3 => Holder::Listener,
            _ => Holder::Unknown,
        }
    }

    /// Asks the kernel of a socket.
    pub(crate) fn of_socket(fd: c_int) -> Holder {
        if option(fd, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
            Holder::Process
        } else if option(fd, libc::SO_ACCEPTCONN) != Ok(0) {
            Holder::Listener
        } else {
            Holder::Ring
        }
    }
}
