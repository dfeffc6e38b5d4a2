//! Scheduling policies and priorities of threads.
//!
//! A fiber runs where a carrier takes it, so a policy has no effect on it. What a program asks for is remembered,
//! inherited by new threads and told, and refused where the kernel would refuse it. (A thread that asks for a
//! realtime policy by its attributes stays a thread, and has it.)

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::ops::RangeInclusive;

use carefree_ground::kernel;
use libc::{pid_t, pthread_t, sched_param};

use crate::place;
use crate::thread::affinity;
use crate::thread::identity::with_number;
use crate::thread::niceness::{self, setpriority};
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

/// The priority that a program names, as the kernel reads it.
///
/// # Safety
/// Parameters, where that can be read.
unsafe fn wanted(parameters: *const sched_param) -> Result<c_int, c_int> {
    if parameters.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as this function demands.
    unsafe { place::read(parameters) }.map(|parameters| parameters.sched_priority)
}

/// -1 with `errno`, or 0.
fn answer(errno: c_int) -> c_int {
    if errno == 0 {
        return 0;
    }
    set_errno(errno);
    -1
}

/// How the kernel's `struct sched_attr` begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    niceness: i32,
    priority: u32,
}

/// A flag of [`Attributes`]: the policy stays as it is.
const KEEP_POLICY: u64 = 8;
/// A flag of [`Attributes`]: priority and niceness stay as they are.
const KEEP_PARAMETERS: u64 = 16;

/// Gives a thread a policy and a niceness: an `errno`, or 0.
fn set_attributes(record: &Record, wanted: &Attributes) -> c_int {
    // From what the first version of these had to a page; 0 is the former.
    const SIZES: RangeInclusive<u32> = 48..=4096;
    if wanted.size != 0 && !SIZES.contains(&wanted.size) {
        return libc::E2BIG;
    }
    let now = *record.policy.lock();
    let keeps = |flag| wanted.flags & flag != 0;
    let number = if keeps(KEEP_POLICY) { now.number } else { wanted.policy as i32 };
    let priority = if keeps(KEEP_PARAMETERS) { now.priority } else { wanted.priority as i32 };
    let has_niceness = priority == 0 && !keeps(KEEP_PARAMETERS);
    if has_niceness && niceness::is_refused(record, wanted.niceness) {
        return libc::EPERM;
    }
    let errno = set(record, Policy { number, priority });
    if errno == 0 && has_niceness {
        return niceness::set(record, wanted.niceness);
    }
    errno
}

/// A system call by its number, of those that tell or change how a hosted thread is scheduled: what `syscall(2)`
/// returns.
///
/// # Safety
/// As for the system call.
pub(super) unsafe fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, ..] = arguments;
    let (process, policy) = (a as pid_t, b as c_int);
    // SAFETY: as this function demands, for all of them.
    let result = unsafe {
        match number {
            libc::SYS_setpriority => setpriority(a as c_uint, b as libc::id_t, c as c_int),
            libc::SYS_getpriority => niceness::told(a as c_uint, b as libc::id_t)?,
            libc::SYS_sched_setscheduler => {
                sched_setscheduler(process, policy, c as *const sched_param)
            }
            libc::SYS_sched_getscheduler => sched_getscheduler(process),
            libc::SYS_sched_setparam => sched_setparam(process, b as *const sched_param),
            libc::SYS_sched_getparam => sched_getparam(process, b as *mut sched_param),
            libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity => {
                affinity::by_number(number, process, b, c)?
            }
            // (No policy that these calls alone can set is for fibers.)
            libc::SYS_sched_setattr if c == 0 => {
                if b == 0 {
                    return Some(answer(libc::EINVAL).into());
                }
                match place::read(b as *const Attributes) {
                    Ok(wanted) => {
                        answer(with_number(process, |record| set_attributes(record, &wanted))?)
                    }
                    Err(errno) => answer(errno),
                }
            }
            libc::SYS_sched_getattr => {
                let of = |record: &Record| (*record.policy.lock(), niceness::of(record));
                let (policy, niceness) = with_number(process, of)?;
                // What else it tells is the carrier's.
                if let Err(errno) = kernel::call(number, [0, b, c, d, 0, 0]) {
                    return Some(answer(errno).into());
                }
                let told = &mut *(b as *mut Attributes);
                told.policy = policy.number as u32;
                told.priority = policy.priority as u32;
                told.niceness = if policy.priority == 0 { niceness.into() } else { 0 };
                0
            }
            _ => return None,
        }
    };
    Some(result.into())
}

/// The same call by libc's function, which glibc has from 2.41 on: what that returns.
///
/// # Safety
/// As for the system call.
unsafe fn by_name(number: c_long, arguments: [usize; 6]) -> c_int {
    // SAFETY: as this function demands.
    let hosted = unsafe { by_number(number, arguments) };
    // (Programs that look for the function find it with any libc.)
    let of_kernel = || {
        // SAFETY: as this function demands.
        match unsafe { kernel::call(number, arguments) } {
            Ok(_) => 0,
            Err(errno) => answer(errno).into(),
        }
    };
    let result = hosted.unwrap_or_else(of_kernel);
    result as c_int
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
            let Some((thread, record)) = record::find(thread) else {
                return next(thread, policy, parameters);
            };
            if thread.has_ended() {
                return libc::ESRCH;
            }
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
                Some((thread, _)) if thread.has_ended() => libc::ESRCH,
                Some((_, record)) => {
                    let set = |priority| set(record, Policy { number: policy, priority });
                    wanted(parameters).map_or_else(|errno| errno, set)
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
                Some((thread, _)) if thread.has_ended() => libc::ESRCH,
                Some((_, record)) => {
                    let number = record.policy.lock().number;
                    set(record, Policy { number, priority })
                }
            }
        }
    }

    /// `sched_setattr(2)`.
    fn sched_setattr(process: pid_t, attributes: *mut c_void, flags: c_uint) -> c_int {
        let arguments = [process as usize, attributes as usize, flags as usize, 0, 0, 0];
        // SAFETY: the caller's arguments.
        unsafe { by_name(libc::SYS_sched_setattr, arguments) }
    }

    /// `sched_getattr(2)`.
    fn sched_getattr(process: pid_t, attributes: *mut c_void, size: c_uint, flags: c_uint) -> c_int {
        let arguments =
            [process as usize, attributes as usize, size as usize, flags as usize, 0, 0];
        // SAFETY: the caller's arguments.
        unsafe { by_name(libc::SYS_sched_getattr, arguments) }
    }

    /// `sched_setscheduler(2)`.
    fn sched_setscheduler(
        process: pid_t,
        policy: c_int,
        parameters: *const sched_param,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let priority = match wanted(parameters) {
                Ok(priority) => priority,
                Err(errno) => return answer(errno),
            };
            let wanted = Policy { number: policy, priority };
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
        // SAFETY: the caller's arguments.
        unsafe {
            let priority = match wanted(parameters) {
                Ok(priority) => priority,
                Err(errno) => return answer(errno),
            };
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
                // The kernel says whether the place can be written to, by writing the carrier's there.
                let arguments = [0, parameters as usize, 0, 0, 0, 0];
                // SAFETY: the caller's argument, which the kernel has written to.
                unsafe {
                    if let Err(errno) = kernel::call(libc::SYS_sched_getparam, arguments) {
                        return answer(errno);
                    }
                    (*parameters).sched_priority = priority;
                }
                0
            }
            // SAFETY: the caller's arguments.
            None => unsafe { next(process, parameters) },
        }
    }
}
