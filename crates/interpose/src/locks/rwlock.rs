//! `pthread_rwlock_*`: see [`crate::locks::object`].
//!
//! Readers and writers wait under different tags. An unlock wakes all readers, which can go on together, and
//! one writer, whose unlock wakes the next.
//!
//! A writer that waits in libc turns readers away, if the lock is of the kind that prefers writers; one that waits
//! here is counted for that ([`is_wanted`]).

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_context::tls;
use carefree_reactor::clock::NEVER;
use carefree_runtime::{Reason, lot};

use crate::call::user::User;
use crate::locks::kinds::kinds;
use crate::locks::object::{Unseen, Wait, is_waited_after_release};
use crate::time::deadline::{Clock, absolute_of};

type Lock = libc::pthread_rwlock_t;
type Time<'u> = User<'u, libc::timespec>;

const READER: u32 = 1;
const WRITER: u32 = 2;

unsafe extern "C" {
    fn pthread_rwlock_trywrlock(lock: *mut Lock) -> c_int;
}

interpose! { lean
    /// `pthread_rwlock_rdlock(3)`.
    safe fn pthread_rwlock_rdlock(lock: User<Lock>) -> c_int, linked "__pthread_rwlock_rdlock" {
        take(lock, READER, || Ok(NEVER))
    }
}

interpose! { lean
    /// `pthread_rwlock_tryrdlock(3)`.
    safe fn pthread_rwlock_tryrdlock(lock: User<Lock>) -> c_int,
        linked "___pthread_rwlock_tryrdlock"
    {
        attempt(lock, READER)
    }
}

interpose! { lean
    /// `pthread_rwlock_wrlock(3)`.
    safe fn pthread_rwlock_wrlock(lock: User<Lock>) -> c_int, linked "__pthread_rwlock_wrlock" {
        take(lock, WRITER, || Ok(NEVER))
    }
}

interpose! { lean
    /// `pthread_rwlock_timedrdlock(3)`.
    safe fn pthread_rwlock_timedrdlock(lock: User<Lock>, time: Time) -> c_int,
        linked "___pthread_rwlock_timedrdlock"
    {
        take(lock, READER, || absolute_of(time, Clock::Realtime))
    }
}

interpose! { lean
    /// `pthread_rwlock_clockrdlock(3)`.
    safe fn pthread_rwlock_clockrdlock(lock: User<Lock>, clock: libc::clockid_t, time: Time) -> c_int,
        linked "___pthread_rwlock_clockrdlock"
    {
        take(lock, READER, || absolute_of(time, Clock::from_id(clock)?))
    }
}

interpose! { lean anywhere
    /// `pthread_rwlock_timedwrlock(3)`.
    safe fn pthread_rwlock_timedwrlock(lock: User<Lock>, time: Time) -> c_int,
        linked "___pthread_rwlock_timedwrlock"
    {
        {
            if crate::call::fiber::on_fiber() {
                return take(lock, WRITER, || absolute_of(time, Clock::Realtime));
            }
            wake_if_given_up(lock, original(lock, time))
        }
    }
}

interpose! { lean anywhere
    /// `pthread_rwlock_clockwrlock(3)`.
    safe fn pthread_rwlock_clockwrlock(lock: User<Lock>, clock: libc::clockid_t, time: Time) -> c_int,
        linked "___pthread_rwlock_clockwrlock"
    {
        {
            if crate::call::fiber::on_fiber() {
                return take(lock, WRITER, || absolute_of(time, Clock::from_id(clock)?));
            }
            wake_if_given_up(lock, original(lock, clock, time))
        }
    }
}

interpose! { lean anywhere
    /// `pthread_rwlock_unlock(3)`.
    safe fn pthread_rwlock_unlock(lock: User<Lock>) -> c_int, linked "__pthread_rwlock_unlock" {
        let result = original(lock);
        wake(lock);
        result
    }
}

/// A waiting writer may keep readers out, if the lock is of that kind. If it gives up, they can go on.
fn wake_if_given_up(lock: User<Lock>, result: c_int) -> c_int {
    if result != 0 {
        wake(lock);
    }
    result
}

#[inline(always)]
fn wake(lock: User<Lock>) {
    let key = lock.address();
    if is_waited_after_release(key) {
        lot::unpark_matching(key, usize::MAX, |tag| tag == READER);
        lot::unpark_matching(key, 1, |tag| tag == WRITER);
    }
}

/// Whether the calling fiber holds the lock for writing, and would wait for itself.
///
/// The trying functions do not report that. `timedrdlock` does, and with a time in the past it does not wait.
/// (Fibers that share their carrier's number cannot be told apart, so this is not asked.)
fn is_writer(lock: User<Lock>) -> bool {
    if tls::mode().layout().is_none() {
        return false;
    }
    let mut long_ago = libc::timespec { tv_sec: -1, tv_nsec: 0 };
    match pthread_rwlock_timedrdlock::original(lock, User::lend(&mut long_ago)) {
        libc::EDEADLK => true,
        0 => {
            // It has become free. It is unlocked again, because the caller may want it for writing.
            // SAFETY: the same lock, which was just taken.
            unsafe { pthread_rwlock_unlock(lock) };
            false
        }
        _ => false,
    }
}

/// How many fibers wait for a lock as writers, by its address: locks may share a place.
static WRITERS: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn writers(lock: User<Lock>) -> &'static AtomicU32 {
    // A lock has 56 bytes.
    &WRITERS[(lock.address() / 64) % WRITERS.len()]
}

/// Whether a reader has to leave the lock to a fiber that waits for it as a writer. (It may be a writer of another
/// lock at the same place: readers look again.)
#[inline(always)]
fn is_wanted(lock: User<Lock>) -> bool {
    writers(lock).load(Ordering::Relaxed) != 0 && kinds().lock_prefers_writers.is_set(lock, false)
}

/// Locks it for the calling fiber, or says that it is busy.
fn attempt(lock: User<Lock>, tag: u32) -> c_int {
    match tag {
        READER if is_wanted(lock) => libc::EBUSY,
        READER => pthread_rwlock_tryrdlock::original(lock),
        // SAFETY: a lock that the program has given and libc has set up.
        _ => unsafe { pthread_rwlock_trywrlock(lock.pointer()) },
    }
}

/// Locks it for the calling fiber.
fn take(lock: User<Lock>, tag: u32, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    let result = attempt(lock, tag);
    if result != libc::EBUSY {
        return result;
    }
    if is_writer(lock) {
        return libc::EDEADLK;
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(errno) => return errno,
    };
    let shared = kinds().lock_shared.is_set(lock, true);
    let wanted = tag == READER && kinds().lock_prefers_writers.is_set(lock, false);
    let unseen = Unseen::if_shared(shared || wanted);
    let key = lock.address();
    let wait = Wait { key, tag, reason: Reason::ReadWriteLock, deadline, unseen };
    if tag == WRITER {
        writers(lock).fetch_add(1, Ordering::Relaxed);
    }
    let taken = wait.until(|| Some(attempt(lock, tag)).filter(|r| *r != libc::EBUSY));
    if tag == WRITER {
        writers(lock).fetch_sub(1, Ordering::Relaxed);
    }
    taken.unwrap_or(libc::ETIMEDOUT)
}
