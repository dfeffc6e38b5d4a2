//! What is told of a signal that this process has sent.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::{pid_t, siginfo_t};

/// How a `siginfo_t` begins, where it is of a signal that a process has sent.
#[repr(C)]
struct Sent {
    signal: c_int,
    errno: c_int,
    code: c_int,
    padding: c_int,
    process: pid_t,
    user: libc::uid_t,
    value: usize,
}
const _: () = assert!(size_of::<Sent>() <= size_of::<siginfo_t>());

/// What is told of a signal of this process's, with a value for `SI_QUEUE`.
pub(super) fn told(signal: c_int, code: c_int, value: usize) -> siginfo_t {
    let mut info = MaybeUninit::<siginfo_t>::zeroed();
    // SAFETY: a `siginfo_t` begins with this; zeros are valid for the rest.
    unsafe {
        let (process, user) = (libc::getpid(), libc::getuid());
        let sent = Sent { signal, errno: 0, code, padding: 0, process, user, value };
        info.as_mut_ptr().cast::<Sent>().write(sent);
        info.assume_init()
    }
}
