//! C11's locks and threads, which in libc are the pthread ones under other names.

use std::ffi::{c_int, c_void};
use std::ptr;

use carefree_reactor::clock::NEVER;

use crate::call::user::User;
use crate::locks::{condition, mutex, object, once};
use crate::thread::join;
use crate::time::deadline::{Clock, absolute_of};

type Mutex = libc::pthread_mutex_t;
type Condition = libc::pthread_cond_t;
type Time = User<libc::timespec>;

/// C11's result for an `errno`: `thrd_success` and its kin, by their values in glibc and musl.
fn result(errno: c_int) -> c_int {
    match errno {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

interpose! { lean
    /// `mtx_lock(3)`.
    safe fn mtx_lock(mutex: User<Mutex>) -> c_int, linked "__mtx_lock" {
        result(mutex::lock(mutex, || Ok(NEVER)))
    }
}

interpose! { lean
    /// `mtx_timedlock(3)`.
    safe fn mtx_timedlock(mutex: User<Mutex>, time: Time) -> c_int, linked "__mtx_timedlock" {
        result(mutex::lock(mutex, || absolute_of(time, Clock::Realtime)))
    }
}

interpose! { lean anywhere
    /// `mtx_unlock(3)`.
    safe fn mtx_unlock(mutex: User<Mutex>) -> c_int, linked "__mtx_unlock" {
        let result = original(mutex);
        object::wake_one(mutex.address());
        result
    }
}

interpose! { lean anywhere
    /// `cnd_wait(3)`.
    safe fn cnd_wait(condition: User<Condition>, mutex: User<Mutex>) -> c_int, linked "__cnd_wait" {
        // SAFETY: the same objects, which are pthread's.
        result(unsafe { condition::pthread_cond_wait(condition, mutex) })
    }
}

interpose! { lean anywhere
    /// `cnd_timedwait(3)`.
    safe fn cnd_timedwait(condition: User<Condition>, mutex: User<Mutex>, time: Time) -> c_int,
        linked "__cnd_timedwait"
    {
        // SAFETY: the same objects, which are pthread's.
        result(unsafe { condition::pthread_cond_timedwait(condition, mutex, time) })
    }
}

interpose! { lean anywhere
    /// `cnd_signal(3)`.
    safe fn cnd_signal(condition: User<Condition>) -> c_int, linked "__cnd_signal" {
        // SAFETY: the same objects, which are pthread's.
        result(unsafe { condition::pthread_cond_signal(condition) })
    }
}

interpose! { lean anywhere
    /// `cnd_broadcast(3)`.
    safe fn cnd_broadcast(condition: User<Condition>) -> c_int, linked "__cnd_broadcast" {
        // SAFETY: the same objects, which are pthread's.
        result(unsafe { condition::pthread_cond_broadcast(condition) })
    }
}

interpose! { lean anywhere
    /// `call_once(3)`.
    fn call_once(flag: *mut libc::pthread_once_t, routine: once::Routine) -> (),
        linked "__call_once"
    {
        // SAFETY: the caller's promise. It cannot fail.
        unsafe { once::pthread_once(flag, routine) };
    }
}

interpose! {
    /// `thrd_join(3)` of a thread.
    fn thrd_join(thread: libc::pthread_t, code: *mut c_int) -> c_int, linked "__thrd_join" {
        let mut returned: *mut c_void = ptr::null_mut();
        // SAFETY: `thrd_join` asks for a thread that is joined once, as `pthread_join` does; the place for
        // the result is ours.
        let joined = unsafe { join::pthread_join(thread, &raw mut returned) };
        if joined == 0 && !code.is_null() {
            // SAFETY: `thrd_join` asks for room for an `int` there, or a null pointer.
            unsafe { *code = returned as usize as c_int };
        }
        result(joined)
    }
}
