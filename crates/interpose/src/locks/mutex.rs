//! `pthread_mutex_*`: see [`crate::locks::object`].
//!
//! A fiber locks a mutex under its own thread number, so recursive, error-checking and robust mutexes behave as
//! on threads. (Fibers that share their carrier's thread-local storage share its number, and a recursive mutex
//! cannot tell them apart.)
//!
//! For a mutex with priority inheritance a thread waits in the kernel, which must know the owner's number: for one
//! that a fiber holds it would wait for ever, and libc ends the process if the mutex is robust as well. So where
//! threads are hosted, those that stay the kernel's wait for such mutexes as fibers do. (Another process cannot.)

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_context::tls;
use carefree_ground::kernel;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use carefree_runtime::hosted;

use crate::call::fiber;
use crate::call::user::User;
use crate::locks::kinds::kinds;
use crate::locks::object::{Unseen, Wait, wake_one};
use crate::locks::unseen_unlock;
use crate::time::deadline::{Clock, absolute_of};

type Mutex = libc::pthread_mutex_t;

interpose! { lean anywhere
    /// `pthread_mutex_lock(3)`.
    safe fn pthread_mutex_lock(mutex: User<Mutex>) -> c_int, linked "__pthread_mutex_lock" {
        if !waits_as_fibers_do(mutex) {
            return original(mutex);
        }
        lock(mutex, || Ok(NEVER))
    }
}

interpose! { lean
    /// `pthread_mutex_trylock(3)`.
    safe fn pthread_mutex_trylock(mutex: User<Mutex>) -> c_int, linked "__pthread_mutex_trylock" {
        try_lock(mutex)
    }
}

interpose! { lean anywhere
    /// `pthread_mutex_timedlock(3)`.
    safe fn pthread_mutex_timedlock(mutex: User<Mutex>, time: User<libc::timespec>) -> c_int,
        linked "__pthread_mutex_timedlock"
    {
        if !waits_as_fibers_do(mutex) {
            return original(mutex, time);
        }
        lock(mutex, || absolute_of(time, Clock::Realtime))
    }
}

interpose! { lean anywhere
    /// `pthread_mutex_clocklock(3)`.
    safe fn pthread_mutex_clocklock(
        mutex: User<Mutex>,
        clock: libc::clockid_t,
        time: User<libc::timespec>,
    ) -> c_int, linked "__pthread_mutex_clocklock" {
        if !waits_as_fibers_do(mutex) {
            return original(mutex, clock, time);
        }
        // (The time is not looked at where the mutex is free.)
        match Clock::from_id(clock) {
            Ok(clock) => lock(mutex, || absolute_of(time, clock)),
            Err(errno) => errno,
        }
    }
}

interpose! { lean anywhere
    /// `pthread_mutex_unlock(3)`.
    safe fn pthread_mutex_unlock(mutex: User<Mutex>) -> c_int, linked "__pthread_mutex_unlock" {
        let result = original(mutex);
        // Uses only the address: the next owner may destroy the mutex.
        wake_one(mutex.address());
        result
    }
}

/// Whether the caller waits for a mutex in the runtime's lot: a fiber, or a thread of the kernel's beside hosted ones
/// if the kernel would have to know the owner.
#[inline(always)]
pub(crate) fn waits_as_fibers_do(mutex: User<Mutex>) -> bool {
    fiber::on_fiber() || hosted::is_beside() && kinds().mutex_inherits.is_set(mutex, false)
}

/// Locks a mutex for the calling fiber. `deadline` is computed only if the fiber must wait.
pub(crate) fn lock(mutex: User<Mutex>, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    let result = try_lock(mutex);
    if result != libc::EBUSY {
        return result;
    }
    wait(mutex, deadline)
}

#[cold]
#[inline(never)]
fn wait(mutex: User<Mutex>, deadline: impl FnOnce() -> Result<u64, c_int>) -> c_int {
    let kinds = kinds();
    let (shared, robust, checked, inherits) = (
        kinds.mutex_shared.is_set(mutex, true),
        kinds.mutex_robust.is_set(mutex, true),
        kinds.mutex_checked.is_set(mutex, false),
        kinds.mutex_inherits.is_set(mutex, true),
    );
    if checked && !inherits {
        // `trylock` does not report that the caller holds the mutex already. `timedlock` does, and with a
        // time in the past it does not wait.
        let mut long_ago = libc::timespec { tv_sec: -1, tv_nsec: 0 };
        match pthread_mutex_timedlock::original(mutex, User::lend(&mut long_ago)) {
            libc::ETIMEDOUT | libc::EINVAL => {}
            result => return result,
        }
    }
    if checked && inherits && is_own(mutex) {
        return libc::EDEADLK;
    }
    let deadline = match deadline() {
        Ok(deadline) => deadline,
        Err(errno) => return errno,
    };
    let wait = Wait {
        key: mutex.address(),
        tag: 0,
        reason: Reason::Mutex,
        deadline,
        unseen: match shared || robust {
            true => Unseen::Always,
            false => Unseen::While(unseen_unlock::gives_back),
        },
    };
    let taken = wait.until(|| Some(try_lock(mutex)).filter(|result| *result != libc::EBUSY));
    taken.unwrap_or(libc::ETIMEDOUT)
}

/// Locks a mutex for the calling fiber if it is free.
#[inline(always)]
fn try_lock(mutex: User<Mutex>) -> c_int {
    let result = pthread_mutex_trylock::original(mutex);
    match result {
        libc::EOWNERDEAD | libc::ENOTRECOVERABLE => {
            own(mutex, result);
            result
        }
        libc::ESRCH | libc::EINVAL => try_without_ceiling(mutex),
        _ => result,
    }
}

/// Locks a mutex with a priority ceiling if it is free. libc would first raise the caller's priority to the ceiling, and
/// has failed: the kernel does not know the thread's number, or not the policy that the thread has set. But libc has
/// noted the ceiling, and raises the priority no more while the note is there. Nothing takes that attempt's note away.
#[cold]
#[inline(never)]
fn try_without_ceiling(mutex: User<Mutex>) -> c_int {
    pthread_mutex_trylock::original(mutex)
}

/// The part of a mutex's word that is the owner's number.
const OWNER: u32 = 0x3fff_ffff;

/// The word that the kernel and libc access by atomic instructions.
fn word_of<'a>(mutex: User<Mutex>) -> &'a AtomicU32 {
    // SAFETY: a mutex that the program has given and libc has set up. It begins with that word.
    unsafe { AtomicU32::from_ptr(mutex.pointer().cast()) }
}

/// Whether the calling fiber or thread has locked a mutex that inherits priorities.
fn is_own(mutex: User<Mutex>) -> bool {
    let Some(layout) = tls::known() else { return false };
    // SAFETY: the caller's own.
    let own = unsafe { layout.id_of(libc::pthread_self() as *mut u8) };
    word_of(mutex).load(Ordering::Relaxed) & OWNER == own
}

/// Makes the calling fiber the owner of a mutex whose owner has ended, where the kernel has made its carrier that;
/// or gives up one that cannot be recovered.
///
/// libc leaves both to the kernel if the mutex inherits priorities as well. (No thread waits in the kernel when it
/// is taken so: it would have been given the mutex.) And its trying function leaves any that cannot be recovered
/// locked.
#[cold]
#[inline(never)]
fn own(mutex: User<Mutex>, result: c_int) {
    const WAITERS: u32 = 0x8000_0000;
    let inherits = kinds().mutex_inherits.is_set(mutex, false);
    let Some(layout) = tls::known() else { return };
    // SAFETY: takes nothing.
    let Ok(carrier) = (unsafe { kernel::call(libc::SYS_gettid, [0; 6]) }) else { return };
    // SAFETY: the calling fiber's own.
    let fiber = unsafe { layout.id_of(libc::pthread_self() as *mut u8) };
    let word = word_of(mutex);
    let before = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |value| match result {
        libc::EOWNERDEAD if inherits && value & OWNER == carrier as u32 => {
            Some(value & !OWNER | fiber)
        }
        libc::ENOTRECOVERABLE if value & OWNER == fiber => Some(0),
        _ => None,
    });
    if result == libc::ENOTRECOVERABLE && before.is_ok_and(|value| value & WAITERS != 0) {
        // Robust mutexes are waited for as if they were shared.
        let arguments = [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
        // SAFETY: wakes one waiter; the kernel does not access the word.
        let _ = unsafe { kernel::call(libc::SYS_futex, arguments) };
    }
}
