//! Waiting for a thread to end. (Fibers are joined through their handles.)
//!
//! libc learns of a thread's end from the kernel, which wakes a futex of libc's when it clears the
//! thread's number. Nobody could wake a fiber there, so another thread waits in its stead.

use std::ffi::{c_int, c_void};

use carefree_runtime::{offload, pthread, standard};

use crate::fiber::{self, guarded};

type Thread = libc::pthread_t;
type Time = *const libc::timespec;
type Place = *mut *mut c_void;

unsafe extern "C" {
    fn pthread_tryjoin_np(thread: Thread, result: Place) -> c_int;
}

/// Runs `join` on another thread, unless the thread has ended already or is the caller itself.
///
/// # Safety
/// As for `pthread_join`; `join` is that.
unsafe fn elsewhere(thread: Thread, result: Place, join: impl FnOnce(Place) -> c_int) -> c_int {
    /// A pointer, and a call with it, for another thread while this one waits.
    struct Sent<T>(T);
    // SAFETY: nobody else uses it meanwhile.
    unsafe impl<T> Send for Sent<T> {}
    impl<T> Sent<T> {
        fn get(self) -> T {
            self.0
        }
    }

    // SAFETY: the caller's promise.
    match unsafe { pthread_tryjoin_np(thread, result) } {
        libc::EBUSY => {}
        ended => return ended,
    }
    // SAFETY: no preconditions.
    if thread == unsafe { libc::pthread_self() } {
        return libc::EDEADLK;
    }
    let sent = Sent((join, result));
    offload(move || {
        let (join, result) = sent.get();
        join(result)
    })
}

interpose! { lean anywhere
    /// `pthread_join(3)` of a thread.
    fn pthread_join(thread: Thread, result: Place) -> c_int, linked "__pthread_join" {
        if thread == standard::token() as Thread {
            return 0;
        }
        if pthread::join(thread as usize) {
            if !result.is_null() {
                // SAFETY: the caller's promise. What std's threads return to libc.
                unsafe { result.write(std::ptr::null_mut()) };
            }
            return 0;
        }
        if !fiber::on_fiber() {
            // SAFETY: the caller's promise.
            return unsafe { original(thread, result) };
        }
        // SAFETY: the caller's promise.
        unsafe { guarded(|| elsewhere(thread, result, |result| original(thread, result))) }
    }
}

interpose! {
    /// `pthread_timedjoin_np(3)` of a thread.
    fn pthread_timedjoin_np(thread: Thread, result: Place, time: Time) -> c_int,
        linked "___pthread_timedjoin_np"
    {
        // SAFETY: the caller's promise.
        unsafe { elsewhere(thread, result, |result| original(thread, result, time)) }
    }
}

interpose! {
    /// `pthread_clockjoin_np(3)` of a thread.
    fn pthread_clockjoin_np(
        thread: Thread,
        result: Place,
        clock: libc::clockid_t,
        time: Time,
    ) -> c_int, linked "___pthread_clockjoin_np" {
        // SAFETY: the caller's promise.
        unsafe { elsewhere(thread, result, |result| original(thread, result, clock, time)) }
    }
}
