//! The few system calls the lab makes itself, as safe functions.

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How often the kernel took a thread off its core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContextSwitches {
    /// The thread waited for something.
    pub(crate) voluntary: u64,
    /// The thread could have gone on: it yielded, or its time was up.
    pub(crate) involuntary: u64,
}

/// What a process or thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) switches: ContextSwitches,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

/// Whose usage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// The calling thread.
    Thread,
    /// The process: all its threads, those that have ended included.
    Process,
    /// The processes this one has waited for.
    Children,
}

/// getrusage(2).
pub(crate) fn usage(who: Who) -> Usage {
    let who = match who {
        Who::Thread => libc::RUSAGE_THREAD,
        Who::Process => libc::RUSAGE_SELF,
        Who::Children => libc::RUSAGE_CHILDREN,
    };
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a writable rusage for the length of the call, and zeroes are a valid one
    // should the call fail, which it cannot for these constants.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    counted(&usage)
}

fn counted(usage: &libc::rusage) -> Usage {
    let ns = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
    };
    Usage {
        switches: ContextSwitches {
            voluntary: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
            involuntary: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
        },
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
    }
}

/// The cores this process may run on, by number.
pub(crate) fn allowed_cores() -> Vec<usize> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the set is writable and as large as the call is told; zeroes are an empty set.
    let set = unsafe {
        libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), set.as_mut_ptr());
        set.assume_init()
    };
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: every number is below CPU_SETSIZE, so inside the set.
    (0..most).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Keeps the calling thread, and every thread it starts from now on, on one core.
pub(crate) fn pin_to(core: usize) -> io::Result<()> {
    if core >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: `core` is inside the set, and the set is as large as the call is told.
    let outcome = unsafe {
        libc::CPU_SET(core, &mut *set.as_mut_ptr());
        libc::sched_setaffinity(0, mem::size_of::<libc::cpu_set_t>(), set.as_ptr())
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel end this process when the one that started it ends, so that a lab that was
/// killed leaves nothing running behind.
pub(crate) fn end_with_parent() {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Has the kernel hold up to `most` connections that nobody has accepted yet; the system's own
/// limit (`net.core.somaxconn`) stands above it.
pub(crate) fn set_backlog(listener: &TcpListener, most: i32) -> io::Result<()> {
    // SAFETY: listen takes a descriptor, which `listener` keeps open, and touches no memory of
    // ours. On a socket that listens already it changes the number alone.
    match unsafe { libc::listen(listener.as_raw_fd(), most) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends listening: every `accept` under way, and every later one, fails at once.
pub(crate) fn shut_down(listener: &TcpListener) {
    // SAFETY: shutdown takes a descriptor, which `listener` keeps open, and touches no memory of
    // ours. It can fail for sockets that do not listen; this one does.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Waits for a child without blocking: its end and what it used, or `None` while it runs.
pub(crate) fn reap(child: u32) -> io::Result<Option<(ExitStatus, Usage)>> {
    let child = libc::pid_t::try_from(child).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places are writable for the length of the call.
    let found = unsafe { libc::wait4(child, &mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match found {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => {
            // SAFETY: wait4 has filled it in; it was zeroes, a valid one, before.
            let usage = unsafe { usage.assume_init() };
            Ok(Some((ExitStatus::from_raw(status), counted(&usage))))
        }
    }
}

/// Ends a child and whatever it has started in its process group.
pub(crate) fn end_group(child: u32) {
    if let Ok(child) = libc::pid_t::try_from(child) {
        // SAFETY: kill touches no memory. The group is the child's own, made when it was started,
        // and its number is not given to another while the child is not waited for.
        unsafe { libc::kill(-child, libc::SIGKILL) };
    }
}

/// What a child does between fork and exec: leaves nothing behind when the lab is killed, stays on
/// `core`, and goes through `door`, a control group's list of processes.
///
/// # Errors
/// Which of them could not be done.
pub(crate) fn prepare_child(core: Option<usize>, door: Option<&CStr>) -> io::Result<()> {
    end_with_parent();
    if let Some(core) = core {
        pin_to(core)?;
    }
    if let Some(door) = door {
        // SAFETY: the path ends in a NUL and outlives the call; the descriptor is ours to close.
        unsafe {
            let group = libc::open(door.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if group < 0 {
                return Err(io::Error::last_os_error());
            }
            // Zero stands for whoever writes it.
            let written = libc::write(group, c"0".as_ptr().cast(), 1);
            let error = io::Error::last_os_error();
            libc::close(group);
            if written != 1 {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The size of a page in bytes.
pub(crate) fn page_size() -> u64 {
    // SAFETY: sysconf has no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A soft resource limit, `None` where there is no limit.
pub(crate) fn limit(resource: Resource) -> Option<u64> {
    let resource = match resource {
        Resource::Processes => libc::RLIMIT_NPROC,
        Resource::OpenFiles => libc::RLIMIT_NOFILE,
        Resource::AddressSpace => libc::RLIMIT_AS,
    };
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is a writable rlimit for the length of the call.
    unsafe { libc::getrlimit(resource, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A resource with a limit of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    Processes,
    OpenFiles,
    AddressSpace,
}

/// Whether the process runs as root, whom the limit on processes does not bind.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// `Linux 6.18.44 x86_64`.
pub(crate) fn kernel() -> String {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `name` is writable; zeroes are empty strings should the call fail.
    let name = unsafe {
        libc::uname(name.as_mut_ptr());
        name.assume_init()
    };
    let text = |field: &[libc::c_char]| {
        let bytes: Vec<u8> =
            field.iter().map(|&c| c.to_ne_bytes()[0]).take_while(|&b| b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    format!("{} {} {}", text(&name.sysname), text(&name.release), text(&name.machine))
}

/// `glibc 2.36`, or the kind of libc where it does not tell its version.
pub(crate) fn libc_version() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: glibc returns a static, NUL-terminated string.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
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
        let before = usage(Who::Thread).switches;
        std::thread::sleep(std::time::Duration::from_millis(2));
        let after = usage(Who::Thread).switches;
        assert!(after.voluntary > before.voluntary, "{before:?} -> {after:?}");
    }

    #[test]
    fn a_pinned_thread_may_use_one_core_and_the_others_keep_theirs() {
        let all = allowed_cores();
        let last = *all.last().expect("a process has a core");
        let pinned = std::thread::spawn(move || {
            pin_to(last).expect("an allowed core");
            allowed_cores()
        });
        assert_eq!(pinned.join().expect("pinned"), [last]);
        assert_eq!(allowed_cores(), all);
    }

    #[test]
    fn a_core_that_cannot_be_is_refused() {
        assert!(pin_to(1 << 20).is_err());
    }
}
