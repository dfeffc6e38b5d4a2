//! `setuid` and its kin.
//!
//! To the kernel, a thread has these numbers, and libc has all threads that it knows change theirs. It makes the
//! call for its caller apart from the others. A fiber is none of the kernel's: its carrier would make the call
//! twice, the second time with other rights, and `setuid` does different things by these. So a thread makes it
//! for the fiber.

use std::ffi::c_int;

use carefree_runtime::offload;
use libc::{gid_t, uid_t};

use crate::call::user::User;

/// Defines functions that a thread calls for the fiber.
macro_rules! by_a_thread {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        interpose! { steady
            #[doc = concat!("`", stringify!($name), "(2)`, by a thread.")]
            safe fn $name($($argument: $type),*) -> c_int {
                offload(|| original($($argument),*))
            }
        }
    )*};
}

by_a_thread! {
    setuid(user: uid_t);
    setgid(group: gid_t);
    seteuid(user: uid_t);
    setegid(group: gid_t);
    setreuid(real: uid_t, effective: uid_t);
    setregid(real: gid_t, effective: gid_t);
    setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    setgroups(count: usize, groups: User<gid_t>);
}
