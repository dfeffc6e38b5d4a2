//! The locks of C streams, if a program takes them itself.
//!
//! `printf` and its kin take the lock of their stream within libc, unseen, and hold it for the call only. If a
//! program takes the lock by `flockfile` and then waits, they block their carriers. Nothing here can prevent
//! that.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;

use crate::call::user::User;
use crate::locks::object::{Unseen, Wait, wake_one};

unsafe extern "C" {
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
}

/// `flockfile` returns nothing.
type Nothing = ();

interpose! { lean
    /// `flockfile(3)`.
    safe fn flockfile(stream: User<libc::FILE>) -> Nothing, linked "__flockfile" {
        // SAFETY: a stream that the program has given and libc has set up.
        let attempt = || unsafe { ftrylockfile(stream.pointer()) == 0 };
        if !attempt() {
            let key = stream.address();
            // libc's own functions unlock it unseen.
            let unseen = Unseen::Always;
            let wait = Wait { key, tag: 0, reason: Reason::Stream, deadline: NEVER, unseen };
            wait.until(|| attempt().then_some(()));
        }
    }
}

interpose! { lean anywhere
    /// `funlockfile(3)`.
    safe fn funlockfile(stream: User<libc::FILE>) -> Nothing, linked "__funlockfile" {
        original(stream);
        wake_one(stream.address());
    }
}
