//! What an open file's mode and time limits are, and when they were changed.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_ground::kernel;
use carefree_reactor::clock::NEVER;

use crate::call::sys;

/// What is remembered of an open file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trait {
    /// `O_NONBLOCK`.
    Mode = 0,
    /// `SO_RCVTIMEO` and `SO_SNDTIMEO`.
    Limits = 1,
}

/// How often a [`Trait`] was changed, of files that several numbers refer to.
static CHANGES: [AtomicU32; 2] = [const { AtomicU32::new(1) }; 2];

impl Trait {
    /// How often it was changed, of files that several numbers refer to.
    pub(super) fn changes(self) -> u32 {
        CHANGES[self as usize].load(Ordering::Acquire)
    }

    /// It may just have changed, of a file that several numbers refer to.
    pub(super) fn changed(self) {
        CHANGES[self as usize].fetch_add(1, Ordering::Release);
    }
}

/// A time limit of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// `SO_RCVTIMEO`: for what receives.
    Receive = 0,
    /// `SO_SNDTIMEO`: for what sends.
    Send = 1,
}

/// Asks the kernel whether `fd` is in blocking mode.
///
/// If the kernel does not tell, it is taken to be: of a number that was just closed the wait will say so
/// (`EBADF`), and where a sandbox denies the question, most files are.
pub(crate) fn is_blocking(fd: c_int) -> bool {
    sys::mode(fd).map_or(true, |mode| mode & libc::O_NONBLOCK == 0)
}

/// Asks the kernel for a time limit of a socket, in nanoseconds; [`NEVER`] for none.
pub(crate) fn limit_of(fd: c_int, limit: Limit) -> u64 {
    let option = match limit {
        Limit::Receive => libc::SO_RCVTIMEO,
        Limit::Send => libc::SO_SNDTIMEO,
    };
    let mut value = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<libc::timeval>() as libc::socklen_t;
    let arguments = [
        fd as usize,
        libc::SOL_SOCKET as usize,
        option as usize,
        &raw mut value as usize,
        &raw mut length as usize,
        0,
    ];
    // SAFETY: there is room for the answer, and its length is said.
    let asked = unsafe { kernel::call(libc::SYS_getsockopt, arguments) };
    if asked.is_err() || (value.tv_sec == 0 && value.tv_usec == 0) {
        return NEVER;
    }
    (value.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(value.tv_usec as u64 * 1000)
}
