//! The locks of C streams, if a program takes them itself.
//!
//! `printf` and its kin take the lock of their stream within libc, unseen, and hold it for the call only. If a
//! program takes the lock by `flockfile` and then waits, they block their carriers. Nothing here can prevent
//! that.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;

use crate::locks::object::{Unseen, Wait, wake_one};

unsafe extern "C" {
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
}

/// `flockfile` returns nothing.
type Nothing = ();

interpose! { lean
    /// `flockfile(3)`.
    fn flockfile(stream: *mut libc::FILE) -> Nothing, linked "__flockfile" {
        // SAFETY: the caller's promise.
        let attempt = || unsafe { ftrylockfile(stream) == 0 };
        if !attempt() {
            let key = stream as usize;
            // libc's own functions unlock it unseen.
            let unseen = Unseen::Always;
            let wait = Wait { key, tag: 0, reason: Reason::Stream, deadline: NEVER, unseen };
            wait.until(|| attempt().then_some(()));
        }
    }
}

interpose! { lean anywhere
    /// `funlockfile(3)`.
    fn funlockfile(stream: *mut libc::FILE) -> Nothing, linked "__funlockfile" {
        // SAFETY: the caller's promise.
        unsafe { original(stream) };
        wake_one(stream as usize);
    }
}
