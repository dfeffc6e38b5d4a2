//! Asking the kernel which files are ready, by the system call that a sandbox lets through.
//!
//! The newer calls take a set of signals and a time to the nanosecond. A sandbox may know only the
//! older ones, which some architectures have besides, and count milliseconds.

use std::os::fd::RawFd;

use super::raw::syscall;
use crate::clock;

/// Whether it is the system call that was refused, by an old kernel or a sandbox. The calls of this
/// module fail with none of these errors of their own.
pub(crate) fn is_refusal(errno: i32) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// Nanoseconds in milliseconds, rounded up: not to be back before the time. -1 for `None`.
fn millis(nanos: Option<u64>) -> usize {
    nanos.map_or(-1, |nanos| i32::try_from(nanos.div_ceil(1_000_000)).unwrap_or(i32::MAX)) as usize
}

/// `poll` for so many nanoseconds, or for as long as it takes.
pub(crate) fn poll(files: &mut [libc::pollfd], nanos: Option<u64>) -> Result<usize, i32> {
    let [place, count] = [files.as_mut_ptr() as usize, files.len()];
    let span = nanos.map(clock::timespec);
    let limit = span.as_ref().map_or(0, |span| &raw const *span as usize);
    // SAFETY: that many structures to read and write, and the time, all living until the call
    // returns. Without a mask the last argument is not looked at.
    let polled = unsafe { syscall(libc::SYS_ppoll, [place, count, limit, 0, size_of::<u64>(), 0]) };
    #[cfg(target_arch = "x86_64")]
    if polled.is_err_and(is_refusal) {
        // SAFETY: the same structures.
        return unsafe { syscall(libc::SYS_poll, [place, count, millis(nanos), 0, 0, 0]) };
    }
    polled
}

/// What has happened on an epoll instance, waiting for so many nanoseconds, in milliseconds, or for
/// as long as it takes.
pub(crate) fn epoll(
    fd: RawFd,
    events: &mut [libc::epoll_event],
    nanos: Option<u64>,
) -> Result<usize, i32> {
    let [place, count] = [events.as_mut_ptr() as usize, events.len()];
    let args = [fd as usize, place, count, millis(nanos), 0, size_of::<u64>()];
    // SAFETY: the kernel writes at most that many events. Without a mask the last argument is not
    // looked at.
    let waited = unsafe { syscall(libc::SYS_epoll_pwait, args) };
    #[cfg(target_arch = "x86_64")]
    if waited.is_err_and(is_refusal) {
        // SAFETY: as above.
        return unsafe { syscall(libc::SYS_epoll_wait, args) };
    }
    waited
}
