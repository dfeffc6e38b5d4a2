//! System calls that a hosted thread makes by their numbers, of those that concern threads.

use std::ffi::{c_int, c_long};

use carefree_ground::kernel;

use crate::clone;
use crate::signal;
use crate::thread::identity::find_number;
use crate::thread::{cpu_time, lateness, record, rights, scheduling};

/// A system call by its number, which a hosted thread makes; `None` if it is none of those that concern
/// threads.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let (me, _) = record::current()?;
    let [a, b, c, d, ..] = arguments;
    match number {
        libc::SYS_gettid => Some(me.number().into()),
        libc::SYS_tgkill => {
            let thread = find_number(b as c_int).filter(|_| signal::is_own(a as c_int))?;
            Some(answer(signal::send(*thread, c as c_int)))
        }
        libc::SYS_tkill => {
            let thread = find_number(a as c_int)?;
            Some(answer(signal::send(*thread, b as c_int)))
        }
        // The kernel would clear that address when the carrier ends, in place of the one that libc waits at.
        libc::SYS_set_tid_address => Some(me.number().into()),
        // The kernel's list is the carrier's; the runtime releases the robust mutexes that a fiber holds at
        // its end. A list that is not libc's is not looked at.
        libc::SYS_set_robust_list if b == size_of::<[usize; 3]>() => Some(0),
        libc::SYS_get_robust_list if a as c_int == me.number() => {
            // SAFETY: the caller's arguments, with the number that stands for the calling thread.
            Some(answer_of(unsafe { kernel::call(number, [0, b, c, 0, 0, 0]) }))
        }
        libc::SYS_execve | libc::SYS_execveat => {
            // SAFETY: as this function demands.
            Some(answer_of(signal::for_program_in_place(|| unsafe {
                kernel::call(number, arguments)
            })))
        }
        libc::SYS_rt_sigprocmask if d == size_of::<u64>() => {
            // SAFETY: as this function demands.
            Some(answer(unsafe {
                signal::change_by_number(a as c_int, b as *const u64, c as *mut u64)
            }))
        }
        // They may raise `SIGXFSZ`, which is handled before they return.
        libc::SYS_truncate | libc::SYS_ftruncate | libc::SYS_fallocate => {
            // SAFETY: as this function demands; this frame has nothing to drop.
            let result = unsafe {
                let result = kernel::call(number, arguments);
                signal::amid_call();
                result
            };
            Some(answer_of(result))
        }
        // SAFETY: as this function demands, for all of them.
        _ => unsafe {
            let cloned = clone::by_number(number, arguments).map(answer_of);
            let refused = cloned.or_else(|| rights::by_number(number, arguments).map(c_long::from));
            let scheduled = refused.or_else(|| scheduling::by_number(number, arguments));
            let scheduled = scheduled.or_else(|| lateness::by_number(number, arguments));
            let asked =
                scheduled.or_else(|| cpu_time::by_number(number, arguments).map(c_long::from));
            let timer = asked.or_else(|| signal::timer_by_number(number, arguments).map(answer));
            timer.or_else(|| signal::kill_by_number(number, arguments).map(answer))
        },
    }
}

/// What `syscall(2)` returns for what the kernel has.
fn answer_of(result: Result<usize, c_int>) -> c_long {
    match result {
        Ok(value) => value as c_long,
        Err(errno) => answer(errno),
    }
}

/// What the system call returns for an `errno`, or 0.
fn answer(errno: c_int) -> c_long {
    if errno == 0 {
        return 0;
    }
    record::set_errno(errno);
    -1
}
