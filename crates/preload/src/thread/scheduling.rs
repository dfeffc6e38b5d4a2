//! Scheduling policies and priorities of threads.
//!
//! A fiber runs where a carrier takes it, so a policy has no effect on it. What a program asks for is remembered,
//! inherited by new threads and told, and refused where the kernel would refuse it. (A thread that asks for a
//! realtime policy by its attributes stays a thread, and has it.)

use std::ffi::c_int;

use libc::{pid_t, pthread_t, sched_param};

use crate::thread::identity::find_number;
use crate::thread::policy::Policy;
use crate::thread::record::{self, Record, set_errno};

/// Gives a thread a policy: an `errno`, or 0.
fn set(record: &Record, policy: Policy) -> c_int {
    let mut now = record.policy.lock();
    let errno = policy.check(*now);
    if errno == 0 {
        *now = policy;
    }
    errno
}

/// Calls `f` with the hosted thread of this number, or the calling one for 0.
fn with_number<T>(number: pid_t, f: impl FnOnce(&Record) -> T) -> Option<T> {
    match number {
        0 => record::current().map(|(_, record)| f(record)),
        number => find_number(number).map(|thread| f(record::of(*thread))),
    }
}

/// -1 with `errno`, or 0.
fn answer(errno: c_int) -> c_int {
    if errno == 0 {
        return 0;
    }
    set_errno(errno);
    -1
}

stand_in! {
    /// `pthread_getschedparam(3)`.
    fn pthread_getschedparam(
        thread: pthread_t,
        policy: *mut c_int,
        parameters: *mut sched_param,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let Some((_, record)) = record::find(thread) else {
                return next(thread, policy, parameters);
            };
            let now = *record.policy.lock();
            policy.write(now.number);
            (*parameters).sched_priority = now.priority;
        }
        0
    }

    /// `pthread_setschedparam(3)`.
    fn pthread_setschedparam(
        thread: pthread_t,
        policy: c_int,
        parameters: *const sched_param,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                None => next(thread, policy, parameters),
                Some((_, record)) => {
                    let priority = (*parameters).sched_priority;
                    set(record, Policy { number: policy, priority })
                }
            }
        }
    }

    /// `pthread_setschedprio(3)`.
    fn pthread_setschedprio(thread: pthread_t, priority: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            match record::find(thread) {
                None => next(thread, priority),
                Some((_, record)) => {
                    let number = record.policy.lock().number;
                    set(record, Policy { number, priority })
                }
            }
        }
    }

    /// `sched_setscheduler(2)`.
    fn sched_setscheduler(
        process: pid_t,
        policy: c_int,
        parameters: *const sched_param,
    ) -> c_int {
        if parameters.is_null() {
            return answer(libc::EINVAL);
        }
        // SAFETY: the caller's arguments.
        unsafe {
            let wanted = Policy { number: policy, priority: (*parameters).sched_priority };
            match with_number(process, |record| set(record, wanted)) {
                Some(errno) => answer(errno),
                None => next(process, policy, parameters),
            }
        }
    }

    /// `sched_getscheduler(2)`.
    fn sched_getscheduler(process: pid_t) -> c_int {
        match with_number(process, |record| record.policy.lock().number) {
            Some(number) => number,
            // SAFETY: the caller's argument.
            None => unsafe { next(process) },
        }
    }

    /// `sched_setparam(2)`.
    fn sched_setparam(process: pid_t, parameters: *const sched_param) -> c_int {
        if parameters.is_null() {
            return answer(libc::EINVAL);
        }
        // SAFETY: the caller's arguments.
        unsafe {
            let priority = (*parameters).sched_priority;
            let change = |record: &Record| {
                let number = record.policy.lock().number;
                set(record, Policy { number, priority })
            };
            match with_number(process, change) {
                Some(errno) => answer(errno),
                None => next(process, parameters),
            }
        }
    }

    /// `sched_getparam(2)`.
    fn sched_getparam(process: pid_t, parameters: *mut sched_param) -> c_int {
        let told = with_number(process, |record| record.policy.lock().priority);
        match told {
            Some(_) if parameters.is_null() => answer(libc::EINVAL),
            Some(priority) => {
                // SAFETY: the caller's argument.
                unsafe { (*parameters).sched_priority = priority };
                0
            }
            // SAFETY: the caller's arguments.
            None => unsafe { next(process, parameters) },
        }
    }
}
