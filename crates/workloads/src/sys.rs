//! What a process asks of the kernel about itself: what it has used, its cores, its limits.

use std::io;
use std::net::TcpListener;
use std::ops::Sub;
use std::os::fd::AsRawFd;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{getrlimit, getrusage, setrlimit};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, geteuid};

pub(crate) use nix::sys::resource::Resource;
pub use nix::sys::resource::UsageWho;

/// What a process or thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Times the kernel took a thread off its core because it waited.
    pub voluntary: u64,
    /// Times it did so although the thread could have gone on: it yielded, or its time slice was
    /// over.
    pub involuntary: u64,
    /// Processor time in the program, nanoseconds.
    pub user_ns: u64,
    /// Processor time in the kernel, nanoseconds.
    pub system_ns: u64,
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage {
            voluntary: self.voluntary - before.voluntary,
            involuntary: self.involuntary - before.involuntary,
            user_ns: self.user_ns - before.user_ns,
            system_ns: self.system_ns - before.system_ns,
        }
    }
}

/// getrusage(2), which cannot fail for these parameters.
pub fn usage(who: UsageWho) -> Usage {
    let Ok(used) = getrusage(who) else { return Usage::default() };
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    Usage {
        voluntary: count(used.voluntary_context_switches()),
        involuntary: count(used.involuntary_context_switches()),
        user_ns: count(used.user_time().num_nanoseconds()),
        system_ns: count(used.system_time().num_nanoseconds()),
    }
}

/// The cores this process may run on, by number.
pub fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&core| set.is_set(core) == Ok(true)).collect()
}

/// Keeps the calling thread, and every thread it starts from now on, on one core.
///
/// # Errors
/// When the kernel refuses.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Has the kernel hold as many connections that are not accepted yet as `net.core.somaxconn`
/// allows. The standard library asks for 128, and the kernel drops what is beyond that: the client
/// tries again after a second.
pub(crate) fn raise_backlog(listener: &TcpListener) -> io::Result<()> {
    Ok(listen(listener, Backlog::MAXALLOWABLE)?)
}

/// Ends listening: every `accept` under way, and every later one, fails at once.
pub(crate) fn shut_down(listener: &TcpListener) {
    // It fails for sockets that do not listen; this one does.
    let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
}

/// A soft resource limit, `None` where there is no limit.
pub(crate) fn limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != nix::libc::RLIM_INFINITY).then_some(soft)
}

/// Raises the soft limit on open files to the hard one, and returns that.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// Whether the process runs as root, which the limit on processes does not bind.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_counted_as_a_voluntary_switch_of_the_waiting_thread() {
        let before = usage(UsageWho::RUSAGE_THREAD);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let used = usage(UsageWho::RUSAGE_THREAD) - before;
        assert!(used.voluntary > 0, "{used:?}");
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused() {
        assert!(pin_to(1 << 20).is_err());
    }
}
