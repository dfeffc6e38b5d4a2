//! Numbers of threads: each hosted thread has one of its own, which no other had before.

use std::ffi::c_int;

use carefree_ground::kernel;
use carefree_runtime::hosted::{self, Held};

use crate::signal;
use crate::thread::record::{self, Record};

/// The hosted thread with this number.
pub(crate) fn find_number(number: c_int) -> Option<Held> {
    if !hosted::is_hosting() {
        return None;
    }
    hosted::find_where(|thread| thread.number() == number)
}

/// Calls `f` with the hosted thread of this number, or the calling one for 0. (A child of `vfork` looks like the latter,
/// but is a process, of which the kernel knows.)
pub(super) fn with_number<T>(number: c_int, f: impl FnOnce(&Record) -> T) -> Option<T> {
    if signal::is_child() {
        return None;
    }
    match number {
        0 => record::current().map(|(_, record)| f(record)),
        number => find_number(number).map(|thread| f(record::of(*thread))),
    }
}

stand_in! {
    /// `gettid(2)`.
    fn gettid() -> c_int {
        match record::current() {
            Some((me, _)) => me.number(),
            // SAFETY: takes nothing.
            None => unsafe { kernel::call(libc::SYS_gettid, [0; 6]) }.unwrap_or(0) as c_int,
        }
    }
}
