//! The system calls about other processes, and about the machine, that the lab makes itself.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use carefree_workloads::sys::{Usage, UsageWho, pin_to, usage};
use nix::fcntl::{OFlag, open};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::time::clock_getcpuclockid;
use nix::unistd::{ForkResult, Pid, SysconfVar, fork, setsid, sysconf, write};

/// The end of a child and what it used, or `None` while it runs. No other child may be waited for
/// meanwhile: what it used would count as this one's.
pub(crate) fn reap(child: &mut Child) -> io::Result<Option<(ExitStatus, Usage)>> {
    let before = usage(UsageWho::RUSAGE_CHILDREN);
    Ok(child.try_wait()?.map(|status| (status, usage(UsageWho::RUSAGE_CHILDREN) - before)))
}

/// Whether a child has ended. It is still to be waited for: until then its number is its own.
pub(crate) fn has_ended(child: u32) -> bool {
    let Ok(number) = i32::try_from(child) else { return false };
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    !matches!(waitid(Id::Pid(Pid::from_raw(number)), flags), Ok(WaitStatus::StillAlive))
}

/// Processor time of a process's threads so far, also of those that have ended.
pub(crate) fn processor_time(process: u32) -> Option<Duration> {
    let process = i32::try_from(process).ok().filter(|&process| process > 0)?;
    let clock = clock_getcpuclockid(Pid::from_raw(process)).ok()?;
    Some(clock.now().ok()?.into())
}

/// Ends a process at once.
pub(crate) fn end(process: u32) {
    // Zero stands for this process's group, and in a control group for what is in another namespace.
    if let Some(process) = i32::try_from(process).ok().filter(|&process| process > 0) {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
}

/// Whether processes whose parent has ended become children of this one.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// Has processes that samples leave behind become children of this one, so that they can be found
/// and ended. From then on this process may have no children but the samples.
pub fn adopt_orphans() {
    let done = set_child_subreaper(true).is_ok();
    ADOPTS.store(done, Ordering::Relaxed);
}

/// Ends what a sample has left behind outside of its group, where it was adopted.
pub(crate) fn end_orphans() {
    if !ADOPTS.load(Ordering::Relaxed) {
        return;
    }
    // Children of those become ours when their parents have ended.
    for _ in 0..100 {
        let children = children();
        if children.is_empty() {
            return;
        }
        children.into_iter().for_each(end);
        let wait = || waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
        while let Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) = wait() {}
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The children of this process.
fn children() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let all: Vec<String> = threads.filter_map(of).collect();
    all.iter().flat_map(|text| text.split_whitespace()).filter_map(|n| n.parse().ok()).collect()
}

/// Ends a child that was started in a process group of its own and not waited for yet, and all
/// that it has started in that group.
pub(crate) fn end_group(child: u32) {
    if let Ok(child) = i32::try_from(child) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(child), Signal::SIGKILL);
    }
}

/// Has a command's process be a child's child, whose parent ends at once, in a session of its own: its
/// parent is whichever process adopts orphans here. The child that spawning returns is to be waited for.
pub(crate) fn detach(command: &mut Command) {
    let leave = || {
        // SAFETY: both processes go on with system calls alone, the child in `exec`.
        match unsafe { fork() }? {
            // SAFETY: it ends this process, and runs nothing of it.
            ForkResult::Parent { .. } => unsafe { nix::libc::_exit(0) },
            ForkResult::Child => setsid().map(drop).map_err(io::Error::from),
        }
    };
    // SAFETY: between fork and exec it makes system calls alone: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(leave) };
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
