//! Spans of time in C's types, as nanoseconds.

use std::ffi::c_int;

use carefree_runtime::clock::{self, NEVER};

use crate::call::user::User;

const SECOND: u64 = 1_000_000_000;

/// A span of time; [`NEVER`] if it is too long to count. `EINVAL` if it is not valid.
pub(crate) fn span(time: &libc::timespec) -> Result<u64, c_int> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| libc::EINVAL)?;
    match u64::try_from(time.tv_nsec) {
        Ok(nanos) if nanos < SECOND => {
            Ok(seconds.checked_mul(SECOND).and_then(|all| all.checked_add(nanos)).unwrap_or(NEVER))
        }
        _ => Err(libc::EINVAL),
    }
}

/// Nanoseconds in C's type.
pub(crate) fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec { tv_sec: (nanos / SECOND) as _, tv_nsec: (nanos % SECOND) as _ }
}

/// The time that a caller points to; `None` for a null pointer.
///
/// # Errors
/// `EFAULT` if it cannot be read.
pub(crate) fn given(time: User<libc::timespec>) -> Result<Option<libc::timespec>, c_int> {
    if time.is_null() {
        return Ok(None);
    }
    time.read().map(Some)
}

/// The end of a span that begins now; [`NEVER`] for a null pointer.
///
/// # Errors
/// `EFAULT` if it cannot be read, `EINVAL` if it is not valid.
pub(crate) fn deadline(time: User<libc::timespec>) -> Result<u64, c_int> {
    match given(time)? {
        Some(time) => span(&time).map(from_now),
        None => Ok(NEVER),
    }
}

/// The moment `nanos` from now.
pub(crate) fn from_now(nanos: u64) -> u64 {
    clock::now().saturating_add(nanos)
}

/// The moment so many milliseconds from now; [`NEVER`] for a negative number.
pub(crate) fn deadline_of_millis(millis: c_int) -> u64 {
    u64::try_from(millis).map_or(NEVER, |millis| from_now(millis * 1_000_000))
}

/// Nanoseconds until `deadline`.
pub(crate) fn left(deadline: u64) -> u64 {
    if deadline == NEVER { NEVER } else { deadline.saturating_sub(clock::now()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_checked_and_do_not_overflow() {
        let of = |tv_sec, tv_nsec| span(&libc::timespec { tv_sec, tv_nsec });
        assert_eq!(of(2, 3), Ok(2_000_000_003));
        assert_eq!(of(0, 999_999_999), Ok(999_999_999));
        assert_eq!(of(i64::MAX, 0), Ok(NEVER));
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
            assert_eq!(of(seconds, nanos), Err(libc::EINVAL));
        }
        let back = timespec(2_000_000_003);
        assert_eq!((back.tv_sec, back.tv_nsec), (2, 3));
    }
}
