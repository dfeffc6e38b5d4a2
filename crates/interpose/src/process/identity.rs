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

interpose! { steady
    /// `setuid(2)`.
    safe fn setuid(user: uid_t) -> c_int {
        offload(|| original(user))
    }
}

interpose! { steady
    /// `setgid(2)`.
    safe fn setgid(group: gid_t) -> c_int {
        offload(|| original(group))
    }
}

interpose! { steady
    /// `seteuid(2)`.
    safe fn seteuid(user: uid_t) -> c_int {
        offload(|| original(user))
    }
}

interpose! { steady
    /// `setegid(2)`.
    safe fn setegid(group: gid_t) -> c_int {
        offload(|| original(group))
    }
}

interpose! { steady
    /// `setreuid(2)`.
    safe fn setreuid(real: uid_t, effective: uid_t) -> c_int {
        offload(|| original(real, effective))
    }
}

interpose! { steady
    /// `setregid(2)`.
    safe fn setregid(real: gid_t, effective: gid_t) -> c_int {
        offload(|| original(real, effective))
    }
}

interpose! { steady
    /// `setresuid(2)`.
    safe fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        offload(|| original(real, effective, saved))
    }
}

interpose! { steady
    /// `setresgid(2)`.
    safe fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        offload(|| original(real, effective, saved))
    }
}

interpose! { steady
    /// `setgroups(2)`.
    safe fn setgroups(count: usize, groups: User<gid_t>) -> c_int {
        offload(|| original(count, groups))
    }
}
