//! Threads that are fibers: creating, joining, ending, naming, and what the kernel would say of them.

mod affinity;
mod alive;
mod attributes;
mod cancel;
mod cpu_time;
mod create;
pub(crate) mod exempt;
mod exit;
mod frame;
mod identity;
mod inheritance;
mod join;
pub(crate) mod lateness;
mod libraries;
mod main;
mod name;
mod niceness;
mod own_stack;
pub(crate) mod policy;
mod processors;
pub(crate) mod record;
mod rights;
mod scheduling;
mod settings;
mod syscall;

pub(crate) use alive::number as alive;
pub(crate) use attributes::complete as complete_attributes;
pub(crate) use cancel::{
    ends_anywhere, leave_syscall, leave_wait, resume_syscall, resume_wait, test as test_cancel,
    within_syscall,
};
pub(crate) use cpu_time::{owner as clock_owner, shown as time_shown};
pub(crate) use create::{Call, create, default_stack};
pub(crate) use exit::run_main;
pub(crate) use identity::find_number;
pub(crate) use join::{detach, join};
pub(crate) use libraries::{
    are_kernels, look_again as look_for_libraries, renew as renew_libraries,
};
pub(crate) use name::{
    get_name, of as name_of, renew as renew_names, set_kernels as name_kernels, set_name,
};
pub(crate) use settings::Kept;
pub(crate) use syscall::by_number;

/// Where a thread's function, and the program's `main`, return to: above these, a thread's stack is this library's.
pub(crate) fn return_addresses() -> [usize; 2] {
    [frame::return_address(), main::return_address()]
}
