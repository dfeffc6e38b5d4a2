//! A scheduling policy, and whether the kernel would refuse it.

use std::ffi::c_int;

use carefree_ground::kernel;
use libc::sched_param;

/// A policy and its priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) number: i32,
    pub(crate) priority: i32,
}

impl Policy {
    /// That of threads which ask for none.
    pub(crate) const USUAL: Policy = Policy { number: libc::SCHED_OTHER, priority: 0 };

    /// That of the calling kernel thread.
    pub(crate) fn of_kernel_thread() -> Policy {
        let mut parameters = sched_param { sched_priority: 0 };
        let place = (&raw mut parameters) as usize;
        // SAFETY: there is room for the answer.
        let (number, told) = unsafe {
            let number = kernel::call(libc::SYS_sched_getscheduler, [0; 6]);
            (number, kernel::call(libc::SYS_sched_getparam, [0, place, 0, 0, 0, 0]))
        };
        match (number, told) {
            (Ok(number), Ok(_)) => {
                Policy { number: number as i32, priority: parameters.sched_priority }
            }
            _ => Policy::USUAL,
        }
    }

    /// An `errno` if the kernel would refuse it, or 0.
    pub(crate) fn check(self, before: Policy) -> c_int {
        match self.number & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE => {
                if self.priority == 0 {
                    0
                } else {
                    libc::EINVAL
                }
            }
            libc::SCHED_FIFO | libc::SCHED_RR if !(1..=99).contains(&self.priority) => libc::EINVAL,
            libc::SCHED_FIFO | libc::SCHED_RR => {
                let lowers = before.number == self.number && self.priority <= before.priority;
                if lowers || self.priority as u64 <= limit() || is_privileged() {
                    0
                } else {
                    libc::EPERM
                }
            }
            _ => libc::EINVAL,
        }
    }
}

/// The highest realtime priority of a process without rights.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: there is room for the answer.
    unsafe { libc::getrlimit(libc::RLIMIT_RTPRIO, &raw mut limit) };
    limit.rlim_cur
}

/// Whether the process has the right to any priority: `CAP_SYS_NICE`.
pub(super) fn is_privileged() -> bool {
    const VERSION: u32 = 0x2008_0522;
    const SYS_NICE: u32 = 23;
    let header = [VERSION, 0];
    let mut sets = [[0u32; 3]; 2];
    let arguments = [header.as_ptr() as usize, sets.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: a header of version 3, and room for its two parts.
    let told = unsafe { kernel::call(libc::SYS_capget, arguments) };
    told.is_ok() && sets[0][0] & 1 << SYS_NICE != 0
}
