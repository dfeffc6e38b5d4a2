//! The system calls about other processes, and about the machine, that the lab makes itself.

use std::ffi::CStr;
use std::io;
use std::process::{Child, ExitStatus};

use carefree_workloads::sys::{Usage, UsageWho, pin_to, usage};
use nix::fcntl::{OFlag, open};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, SysconfVar, sysconf, write};

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
