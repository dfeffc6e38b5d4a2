//! C11's locks and threads, which in libc are the pthread ones under other names.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;

use crate::call::user::User;
use crate::locks::{condition, mutex, object, once};
use crate::thread::join;
use crate::time::deadline::{Clock, absolute_of};

type Mutex = libc::pthread_mutex_t;
type Condition = libc::pthread_cond_t;
type Time<'u> = User<'u, libc::timespec>;

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
        result(condition::pthread_cond_wait::stand_in(condition, mutex))
    }
}

interpose! { lean anywhere
    /// `cnd_timedwait(3)`.
    safe fn cnd_timedwait(condition: User<Condition>, mutex: User<Mutex>, time: Time) -> c_int,
        linked "__cnd_timedwait"
    {
        result(condition::pthread_cond_timedwait::stand_in(condition, mutex, time))
    }
}

interpose! { lean anywhere
    /// `cnd_signal(3)`.
    safe fn cnd_signal(condition: User<Condition>) -> c_int, linked "__cnd_signal" {
        result(condition::pthread_cond_signal::stand_in(condition))
    }
}

interpose! { lean anywhere
    /// `cnd_broadcast(3)`.
    safe fn cnd_broadcast(condition: User<Condition>) -> c_int, linked "__cnd_broadcast" {
        result(condition::pthread_cond_broadcast::stand_in(condition))
    }
}

interpose! { lean anywhere
    /// `call_once(3)`.
    fn call_once(flag: *mut libc::pthread_once_t, routine: once::Routine) -> (),
        linked "__call_once"
    {
        // SAFETY: C11's flag is pthread's control, which the program has set to 0 at first, and it has given a
        // function to be called. (There is no error to report.)
        unsafe { once::pthread_once(flag, routine) };
    }
}

interpose! { lean anywhere
    /// `thrd_join(3)` of a thread, or of a fiber that a thread has created.
    safe fn thrd_join(thread: User, code: User<c_int>) -> c_int, linked "__thrd_join" {
        let mut returned = User::NULL;
        let joined = join::pthread_join::stand_in(thread, User::lend(&mut returned));
        if joined == 0 && !code.is_null() {
            // SAFETY: libc's function would write there unasked.
            unsafe { code.write_seen(returned.address() as c_int) };
        }
        result(joined)
    }
}
