//! `SO_RCVLOWAT`: how much has to be there before a socket is said to be readable.
//!
//! A call that wants less waits for what it wants alone. But no poll ends for it, nor does a reactor; a thread that may
//! block makes such a call. As few programs set the option, sockets are asked for it only once one was set.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::descriptor::option::option;

static IS_USED: AtomicBool = AtomicBool::new(false);

/// The program has set it for a socket.
pub(crate) fn note() {
    IS_USED.store(true, Ordering::Relaxed);
}

/// Whether a call on `fd` that wants `length` bytes wants less than a poll waits for.
#[inline]
pub(crate) fn is_above(fd: c_int, length: usize) -> bool {
    IS_USED.load(Ordering::Relaxed) && is_set_above(fd, length)
}

#[cold]
fn is_set_above(fd: c_int, length: usize) -> bool {
    option(fd, libc::SO_RCVLOWAT).is_ok_and(|least| least as usize > length)
}
