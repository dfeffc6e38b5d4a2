//! Two numbers that the kernel keeps for each thread: its timer slack (`PR_SET_TIMERSLACK`), by which its waits
//! may end late, and its I/O priority (`ioprio_set`).
//!
//! Like niceness, they have no effect on fibers: they are remembered, inherited and told, and refused where the
//! kernel would refuse them. To the kernel they would be the carrier's. A child of a fork has them.

use std::ffi::{c_int, c_long};
use std::sync::atomic::Ordering;

use carefree_ground::kernel;

use crate::signal;
use crate::thread::identity::with_number;
use crate::thread::record::{self, Record, set_errno};
use crate::thread::settings::{Settings, THREAD};

/// A number that no process has.
const NO_PROCESS: usize = c_int::MAX as usize;

/// Gives a thread another timer slack. (More than 4 s are 4 s.)
fn set_slack(record: &Record, wanted: usize) {
    let Settings { slack, first_slack, .. } = &record.settings;
    let nanoseconds = match wanted {
        0 => first_slack.load(Ordering::Relaxed),
        wanted => u32::try_from(wanted).unwrap_or(u32::MAX),
    };
    slack.store(nanoseconds, Ordering::Relaxed);
}

/// Gives a thread another I/O priority: what `syscall(2)` returns.
fn set_file_priority(record: &Record, wanted: usize) -> c_long {
    // The kernel looks at the priority first, and then for the process.
    // SAFETY: accesses no memory, and changes nothing: there is no such process.
    let told = unsafe { kernel::call(libc::SYS_ioprio_set, [THREAD, NO_PROCESS, wanted, 0, 0, 0]) };
    match told {
        Err(errno) if errno != libc::ESRCH => {
            set_errno(errno);
            -1
        }
        _ => {
            record.settings.file_priority.store(wanted as i32, Ordering::Relaxed);
            0
        }
    }
}

/// A system call by its number, of those that tell or change these: what `syscall(2)` returns.
pub(super) fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_long> {
    let [a, b, c, ..] = arguments;
    match number {
        libc::SYS_prctl | libc::SYS_ioprio_set | libc::SYS_ioprio_get if signal::is_child() => {
            // (A child of `vfork` is a process, and what it sets is its own.)
            None
        }
        libc::SYS_prctl => {
            let (_, record) = record::current()?;
            match a as c_int {
                libc::PR_SET_TIMERSLACK => {
                    set_slack(record, b);
                    Some(0)
                }
                libc::PR_GET_TIMERSLACK => {
                    Some(record.settings.slack.load(Ordering::Relaxed).into())
                }
                _ => None,
            }
        }
        libc::SYS_ioprio_set if a == THREAD => {
            with_number(b as c_int, |record| set_file_priority(record, c))
        }
        libc::SYS_ioprio_get if a == THREAD => {
            let of = |record: &Record| record.settings.file_priority.load(Ordering::Relaxed);
            with_number(b as c_int, of).map(c_long::from)
        }
        _ => None,
    }
}
