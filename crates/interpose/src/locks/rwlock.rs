//! `pthread_rwlock_*`: see [`crate::locks::object`].
//!
//! Readers and writers wait under different tags. An unlock wakes all readers, which can go on together, and
//! one writer, whose unlock wakes the next.
//!
//! A writer that waits in libc turns readers away, if the lock is of the kind that prefers writers; one that waits
//! here is counted for that ([`Wanted`]).

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_context::tls;
use carefree_reactor::clock::NEVER;
use carefree_runtime::{Reason, lot};

use crate::call::user::User;
use crate::locks::kinds::kinds;
use crate::locks::object::{Unseen, Wait, is_waited_after_release};
use crate::time::deadline::{Clock, absolute_of, check_of};
use crate::wait::starvation::let_woken_run;

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
        take_until(lock, READER, time, Ok(Clock::Realtime))
    }
}

interpose! { lean
    /// `pthread_rwlock_clockrdlock(3)`.
    safe fn pthread_rwlock_clockrdlock(lock: User<Lock>, clock: libc::clockid_t, time: Time) -> c_int,
        linked "___pthread_rwlock_clockrdlock"
    {
        take_until(lock, READER, time, Clock::from_id(clock))
    }
}

interpose! { lean anywhere
    /// `pthread_rwlock_timedwrlock(3)`.
    safe fn pthread_rwlock_timedwrlock(lock: User<Lock>, time: Time) -> c_int,
        linked "___pthread_rwlock_timedwrlock"
    {
        {
            if crate::call::fiber::on_fiber() {
                return take_until(lock, WRITER, time, Ok(Clock::Realtime));
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
                return take_until(lock, WRITER, time, Clock::from_id(clock));
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
        let readers = lot::unpark_matching(key, usize::MAX, |tag| tag == READER);
        if readers + lot::unpark_matching(key, 1, |tag| tag == WRITER) > 0 {
            let_woken_run(key);
        }
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

/// Locks that prefer writers and for which fibers wait as writers: the address, and how many, in a word. A lock's
/// address chooses the place; where that is another lock's, its writers are not preferred.
static WANTED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Bits of the count. The address takes the others: locks are aligned to eight bytes.
const COUNT: u32 = 15;
const MOST: u64 = (1 << COUNT) - 1;

fn place_of(lock: User<Lock>) -> (&'static AtomicU64, u64) {
    // A lock has 56 bytes.
    (&WANTED[lock.address() / 64 % WANTED.len()], (lock.address() as u64 / 8) << COUNT)
}

/// A fiber that waits for a lock as a writer, which readers leave to it; until this is dropped.
struct Wanted(&'static AtomicU64);

impl Wanted {
    /// `None` if the lock does not prefer writers, or its place is another's.
    fn new(lock: User<Lock>) -> Option<Wanted> {
        if !kinds().lock_prefers_writers.is_set(lock, false) {
            return None;
        }
        let (place, address) = place_of(lock);
        let one_more = |word: u64| match word {
            0 => Some(address | 1),
            _ => (word & !MOST == address && word & MOST < MOST).then(|| word + 1),
        };
        place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Wanted(place))
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let one_less = |word: u64| Some(if word & MOST > 1 { word - 1 } else { 0 });
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

/// Whether a reader has to leave the lock to a fiber that waits for it as a writer.
#[inline(always)]
fn is_wanted(lock: User<Lock>) -> bool {
    let (place, address) = place_of(lock);
    let word = place.load(Ordering::Relaxed);
    word != 0 && word & !MOST == address
}

/// In the child of a fork the parent's fibers do not wait.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn forget_all() {
            WANTED.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        // SAFETY: the handler touches nothing but these words.
        unsafe { libc::pthread_atfork(None, None, Some(forget_all)) };
    }
    mind_forks
};

/// Locks it for the calling fiber, or says that it is busy.
fn attempt(lock: User<Lock>, tag: u32) -> c_int {
    match tag {
        READER if is_wanted(lock) => libc::EBUSY,
        READER => pthread_rwlock_tryrdlock::original(lock),
        // SAFETY: a lock that the program has given and libc has set up.
        _ => unsafe { pthread_rwlock_trywrlock(lock.pointer()) },
    }
}

/// [`take`] until a time, which is looked at first, as libc does.
fn take_until(lock: User<Lock>, tag: u32, time: Time, clock: Result<Clock, c_int>) -> c_int {
    let checked = clock.and_then(|clock| check_of(time).map(|()| clock));
    match checked {
        Ok(clock) => take(lock, tag, || absolute_of(time, clock)),
        Err(errno) => errno,
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
    let turned_away = tag == READER && kinds().lock_prefers_writers.is_set(lock, false);
    let unseen = Unseen::if_shared(shared || turned_away);
    let key = lock.address();
    let wait = Wait { key, tag, reason: Reason::ReadWriteLock, deadline, unseen };
    let wanted = if tag == WRITER { Wanted::new(lock) } else { None };
    let taken = wait.until(|| Some(attempt(lock, tag)).filter(|r| *r != libc::EBUSY));
    drop(wanted);
    taken.unwrap_or(libc::ETIMEDOUT)
}
