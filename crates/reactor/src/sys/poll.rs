//! Polling files, by whichever system call a sandbox permits.
//!
//! The newer calls take a signal mask and a time in nanoseconds. A sandbox may permit only the
//! older ones, which exist on some architectures and take milliseconds.

use std::os::fd::RawFd;

use super::raw::syscall;
use crate::clock;

/// Whether the error means that an old kernel or a sandbox refused the system call. The calls of this
/// module return none of these errors for other reasons.
pub(crate) fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// Nanoseconds in milliseconds, rounded up so as not to return too early. -1 for `None`.
fn millis(nanos: Option<u64>) -> usize {
    nanos.map_or(-1, |nanos| i32::try_from(nanos.div_ceil(1_000_000)).unwrap_or(i32::MAX)) as usize
}

/// `poll` for at most this many nanoseconds, or without a limit.
pub(crate) fn poll(files: &mut [libc::pollfd], nanos: Option<u64>) -> Result<usize, i32> {
    let [place, count] = [files.as_mut_ptr() as usize, files.len()];
    let span = nanos.map(clock::timespec);
    let limit = span.as_ref().map_or(0, |span| &raw const *span as usize);
    // SAFETY: the kernel reads and writes `count` structures and reads the time, which live until
    // the call returns. Without a mask it ignores the last argument.
    let polled = unsafe { syscall(libc::SYS_ppoll, [place, count, limit, 0, size_of::<u64>(), 0]) };
    #[cfg(target_arch = "x86_64")]
    if polled.is_err_and(is_refusal) {
        // SAFETY: the kernel reads and writes `count` structures.
        return unsafe { syscall(libc::SYS_poll, [place, count, millis(nanos), 0, 0, 0]) };
    }
    polled
}

/// `epoll_wait` for at most this many nanoseconds, rounded up to milliseconds, or without a limit.
pub(crate) fn epoll(
    fd: RawFd,
    events: &mut [libc::epoll_event],
    nanos: Option<u64>,
) -> Result<usize, i32> {
    let [place, count] = [events.as_mut_ptr() as usize, events.len()];
    let args = [fd as usize, place, count, millis(nanos), 0, size_of::<u64>()];
    // SAFETY: the kernel writes at most `count` events. Without a mask it ignores the last argument.
    let waited = unsafe { syscall(libc::SYS_epoll_pwait, args) };
    #[cfg(target_arch = "x86_64")]
    if waited.is_err_and(is_refusal) {
        // SAFETY: the kernel writes at most `count` events.
        return unsafe { syscall(libc::SYS_epoll_wait, args) };
    }
    waited
}
