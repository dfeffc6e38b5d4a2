//! What the kernel tells of another thread of this process.

use std::ffi::CStr;
use std::fmt;

use carefree_ground::file;
use carefree_ground::mapped::Mapped;
use carefree_ground::text::Text;

/// Nanoseconds a thread has run, and was ready to run but did not get a processor. Both are
/// complete while the thread sleeps in the kernel.
pub(super) fn ran_and_waited(thread: i32) -> Option<(u64, u64)> {
    let text = of_thread(thread, "schedstat")?;
    let mut numbers = std::str::from_utf8(&text)
        .ok()?
        .split_ascii_whitespace()
        .map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// What the kernel tells of a thread in `file`.
fn of_thread(thread: i32, file: &str) -> Option<Mapped<u8>> {
    let path = Text::of(format_args!("/proc/self/task/{thread}/{file}\0"));
    file::read(CStr::from_bytes_with_nul(path.as_bytes()).ok()?)
}

/// Where a thread sleeps in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asleep {
    /// The number and arguments of the system call; none when it waits for memory.
    pub(super) call: Option<(i64, [u64; 6])>,
    pub(super) stack_pointer: u64,
    pub(super) program_counter: u64,
}

/// Where a thread sleeps; `None` if it runs, or would if a processor were free.
pub(super) fn asleep(thread: i32) -> Option<Asleep> {
    parse(std::str::from_utf8(&of_thread(thread, "syscall")?).ok()?)
}

fn parse(text: &str) -> Option<Asleep> {
    let mut words = text.split_ascii_whitespace();
    // Of a running thread there is only the word "running".
    let number = words.next()?.parse::<i64>().ok()?;
    let mut hexadecimal =
        || words.next()?.strip_prefix("0x").and_then(|word| u64::from_str_radix(word, 16).ok());
    let call = if number < 0 {
        None
    } else {
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = hexadecimal()?;
        }
        Some((number, arguments))
    };
    Some(Asleep { call, stack_pointer: hexadecimal()?, program_counter: hexadecimal()? })
}

/// The names of system calls that wait; of the first argument, whether it is a descriptor.
const CALLS: &[(libc::c_long, &str, bool)] = &[
    (libc::SYS_read, "read", true),
    (libc::SYS_write, "write", true),
    (libc::SYS_readv, "readv", true),
    (libc::SYS_writev, "writev", true),
    (libc::SYS_pread64, "pread", true),
    (libc::SYS_pwrite64, "pwrite", true),
    (libc::SYS_preadv, "preadv", true),
    (libc::SYS_pwritev, "pwritev", true),
    (libc::SYS_recvfrom, "recv", true),
    (libc::SYS_sendto, "send", true),
    (libc::SYS_recvmsg, "recvmsg", true),
    (libc::SYS_sendmsg, "sendmsg", true),
    (libc::SYS_recvmmsg, "recvmmsg", true),
    (libc::SYS_sendmmsg, "sendmmsg", true),
    (libc::SYS_accept, "accept", true),
    (libc::SYS_accept4, "accept", true),
    (libc::SYS_connect, "connect", true),
    (libc::SYS_fsync, "fsync", true),
    (libc::SYS_fdatasync, "fdatasync", true),
    (libc::SYS_flock, "flock", true),
    (libc::SYS_fcntl, "fcntl", true),
    (libc::SYS_ioctl, "ioctl", true),
    (libc::SYS_epoll_pwait, "epoll_pwait", true),
    (libc::SYS_copy_file_range, "copy_file_range", true),
    (libc::SYS_splice, "splice", true),
    (libc::SYS_sendfile, "sendfile", false),
    (libc::SYS_ppoll, "ppoll", false),
    (libc::SYS_pselect6, "pselect", false),
    (libc::SYS_nanosleep, "nanosleep", false),
    (libc::SYS_clock_nanosleep, "clock_nanosleep", false),
    (libc::SYS_futex, "futex", false),
    (libc::SYS_wait4, "wait4", false),
    (libc::SYS_waitid, "waitid", false),
    (libc::SYS_openat, "openat", false),
    (libc::SYS_rt_sigtimedwait, "sigtimedwait", false),
    (libc::SYS_rt_sigsuspend, "sigsuspend", false),
    (libc::SYS_msgsnd, "msgsnd", false),
    (libc::SYS_msgrcv, "msgrcv", false),
    (libc::SYS_semop, "semop", false),
    (libc::SYS_semtimedop, "semtimedop", false),
    (libc::SYS_clone, "clone", false),
    (libc::SYS_clone3, "clone", false),
    (libc::SYS_mmap, "mmap", false),
    (libc::SYS_munmap, "munmap", false),
    (libc::SYS_madvise, "madvise", false),
    (libc::SYS_io_uring_enter, "io_uring_enter", true),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, "poll", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, "select", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, "epoll_wait", true),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, "open", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_pause, "pause", false),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_vfork, "vfork", false),
];

/// Whether a thread waits for one of libc's internal locks, such as malloc's. (Other locks park fibers.)
/// glibc waits for these by a futex call without a time limit, on a word that is 2 while others wait.
pub(super) fn waits_within_libc(asleep: &Asleep) -> bool {
    const OPERATION: u64 = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    matches!(asleep.call, Some((libc::SYS_futex, [_, OPERATION, 2, 0, _, _])))
}

/// Where a thread sleeps, in words.
impl fmt::Display for Asleep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((number, arguments)) = self.call else {
            return out.write_str("for memory to be read from disk");
        };
        if waits_within_libc(self) {
            return out.write_str("in futex, for a lock of libc's own");
        }
        match CALLS.iter().find(|call| call.0 == number) {
            Some((_, name, true)) => write!(out, "in {name} on descriptor {}", arguments[0] as i32),
            Some((_, name, false)) => write!(out, "in {name}"),
            None => write!(out, "in system call {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_understood() {
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("0 0x5 0x1"), None);
        let fault = parse("-1 0x7ffc10 0x55aa\n").unwrap();
        assert_eq!((fault.call, fault.program_counter), (None, 0x55aa));
        assert_eq!(fault.to_string(), "for memory to be read from disk");
        let read =
            format!("{} 0x5 0x1 0x2 0x3 0x4 0xffffffffffffffff 0x7ffc10 0x55aa\n", libc::SYS_read);
        let read = parse(&read).unwrap();
        assert_eq!(read.call, Some((libc::SYS_read, [5, 1, 2, 3, 4, u64::MAX])));
        assert_eq!((read.stack_pointer, read.program_counter), (0x7ffc10, 0x55aa));
        assert_eq!(read.to_string(), "in read on descriptor 5");
        let futex = |operation, value, timeout| Asleep {
            call: Some((libc::SYS_futex, [0x7f00, operation, value, timeout, 0x1b, 0x80])),
            ..read
        };
        assert_eq!(futex(128, 2, 0).to_string(), "in futex, for a lock of libc's own");
        for other in [futex(0, 2, 0), futex(128, 1, 0), futex(128, 2, 0x7ffc00), futex(137, 2, 0)] {
            assert!(!waits_within_libc(&other), "{other:?}");
            assert_eq!(other.to_string(), "in futex");
        }
        let unknown = Asleep { call: Some((99_999, [0; 6])), ..read };
        assert_eq!(unknown.to_string(), "in system call 99999");
    }

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_runs() {
        use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
        static NUMBER: AtomicI32 = AtomicI32::new(0);
        static DONE: AtomicBool = AtomicBool::new(false);
        let sleeper = std::thread::spawn(|| {
            // SAFETY: gettid takes no arguments and always succeeds.
            NUMBER.store(unsafe { libc::gettid() }, Ordering::SeqCst);
            while !DONE.load(Ordering::SeqCst) {
                std::thread::park();
            }
        });
        let begun = std::time::Instant::now();
        let found = loop {
            assert!(begun.elapsed().as_secs() < 60, "it does not go to sleep");
            match NUMBER.load(Ordering::SeqCst) {
                0 => {}
                number => match asleep(number) {
                    Some(asleep) if asleep.call.is_some_and(|c| c.0 == libc::SYS_futex) => {
                        break asleep;
                    }
                    _ => {}
                },
            }
            std::thread::yield_now();
        };
        assert_eq!(found.to_string(), "in futex");
        DONE.store(true, Ordering::SeqCst);
        sleeper.thread().unpark();
        sleeper.join().unwrap();
    }
}
