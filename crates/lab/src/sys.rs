//! The few system calls that the lab makes itself.

use std::ffi::CStr;
use std::io;
use std::net::TcpListener;
use std::ops::Sub;
use std::os::fd::AsRawFd;
use std::process::{Child, ExitStatus};

use nix::fcntl::{OFlag, open};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{getrlimit, getrusage, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};
use nix::sys::stat::Mode;
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, SysconfVar, geteuid, sysconf, write};

pub(crate) use nix::sys::resource::{Resource, UsageWho};

/// What a process or thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Times the kernel took a thread off its core because it waited.
    pub(crate) voluntary: u64,
    /// Times it did so although the thread could have gone on: it yielded, or its time slice was
    /// over.
    pub(crate) involuntary: u64,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
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
pub(crate) fn usage(who: UsageWho) -> Usage {
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
pub(crate) fn allowed_cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&core| set.is_set(core) == Ok(true)).collect()
}

/// Keeps the calling thread, and every thread it starts from now on, on one core.
pub(crate) fn pin_to(core: usize) -> io::Result<()> {
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

/// The end of a child and what it used, or `None` while it runs. No other child may be waited for
/// meanwhile: what it used would count as this one's.
pub(crate) fn reap(child: &mut Child) -> io::Result<Option<(ExitStatus, Usage)>> {
    let before = usage(UsageWho::RUSAGE_CHILDREN);
    Ok(child.try_wait()?.map(|status| (status, usage(UsageWho::RUSAGE_CHILDREN) - before)))
}

/// Ends a child that was started in a process group of its own and not waited for yet, and all
/// that it has started in that group.
pub(crate) fn end_group(child: u32) {
    if let Ok(child) = i32::try_from(child) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(child), Signal::SIGKILL);
    }
}

/// What a child does between fork and exec: it has the kernel end it when the lab ends, even by
/// SIGKILL; stays on `core`; and enters a control group by `door`, the group's list of processes.
/// These are system calls alone: nothing is allocated, no lock is taken.
///
/// # Errors
/// Which of them could not be done.
pub(crate) fn prepare_child(core: Option<usize>, door: Option<&CStr>) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if let Some(core) = core {
        pin_to(core)?;
    }
    if let Some(door) = door {
        let group = open(door, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        // Zero stands for the process that writes it.
        write(&group, b"0")?;
    }
    Ok(())
}

/// The size of a page in bytes.
pub(crate) fn page_size() -> u64 {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096)
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

/// `Linux 6.18.44 x86_64`.
pub(crate) fn kernel() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| String::new(),
        |name| {
            let parts = [name.sysname(), name.release(), name.machine()];
            parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
        },
    )
}

/// `glibc 2.36`, or the kind of libc where it does not tell its version.
pub(crate) fn libc_version() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a static, NUL-terminated string.
        let version = unsafe { CStr::from_ptr(nix::libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    {
        "not glibc".to_owned()
    }
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
