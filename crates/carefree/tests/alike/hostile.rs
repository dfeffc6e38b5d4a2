//! Signals, closes and sandboxes that come in between. Each in a process of its own.

use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, ptr};

use libc::{c_int, c_long};

use crate::common::*;

extern "C" fn nothing(_: c_int) {}

/// No call of a fiber ends for a signal, though the handler was installed without `SA_RESTART`.
#[test]
fn signals_that_restart_nothing() {
    if alone("hostile::signals_that_restart_nothing") {
        return;
    }
    // SAFETY: a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for task in fs::read_dir("/proc/self/task").unwrap() {
                    let task = task.unwrap();
                    let is_carrier =
                        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| {
                            name.starts_with("carefree-") && name != "carefree-watch\n"
                        });
                    if is_carrier {
                        let number: c_long = task.file_name().to_str().unwrap().parse().unwrap();
                        // SAFETY: no memory is involved.
                        unsafe {
                            libc::syscall(libc::SYS_tgkill, libc::getpid(), number, libc::SIGUSR1)
                        };
                    }
                }
            }
        });
        carefree::run(|| {
            let (from, _to) = pipe();
            let fd = from.as_raw_fd();
            for _ in 0..3000 {
                let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: an array of one; sets of so many files.
                unsafe {
                    assert_eq!(checked(libc::poll(&raw mut one, 1, 0)), Ok(0));
                    let mut soon = libc::timeval { tv_sec: 0, tv_usec: 10 };
                    let (time, none) = (&raw mut soon, ptr::null_mut());
                    let mut set: libc::fd_set = std::mem::zeroed();
                    libc::FD_SET(fd, &raw mut set);
                    assert_eq!(
                        checked(libc::select(fd + 1, &raw mut set, none, none, time)),
                        Ok(0)
                    );
                }
            }
        });
        over.store(true, Ordering::Relaxed);
    });
}

/// A read that meets a close says that the file is not open.
#[test]
fn reads_that_meet_a_close() {
    if alone("hostile::reads_that_meet_a_close") {
        return;
    }
    carefree::run(|| {
        for round in 0..3000 {
            let (from, _to) = pipe();
            let fd = from.into_raw_fd();
            let reading = carefree::spawn(move || {
                let mut byte = 0u8;
                read(&fd, (&raw mut byte).cast(), 1)
            });
            (0..round % 3).for_each(|_| carefree::yield_now());
            // SAFETY: the number is ours.
            assert_eq!(unsafe { libc::close(fd) }, 0);
            assert_eq!(reading.join().unwrap(), Err(libc::EBADF));
        }
    });
}

/// Files and pipes are read and written where a sandbox knows only the older calls.
#[test]
fn later_forms_that_a_sandbox_denies() {
    if alone("hostile::later_forms_that_a_sandbox_denies") {
        return;
    }
    let folder = Folder::new();
    let path = folder.path().join("file");
    for denial in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let path = path.clone();
        // The filter is of the threads that are started after it.
        let denied = std::thread::spawn(move || {
            deny(&[libc::SYS_preadv2, libc::SYS_pwritev2], denial);
            let runtime = carefree::Runtime::builder().build().unwrap();
            runtime.run(|| {
                let text = text(300_000);
                fs::write(&path, &text).unwrap();
                assert!(fs::read(&path).unwrap() == text);
                let (mut from, mut to) = pipe();
                let writing = carefree::spawn(move || {
                    carefree::sleep(Duration::from_millis(5));
                    std::io::Write::write_all(&mut to, &text).unwrap();
                    text
                });
                let mut got = Vec::new();
                std::io::Read::read_to_end(&mut from, &mut got).unwrap();
                assert!(got == writing.join().unwrap());
            });
        });
        denied.join().unwrap();
    }
}

/// Denies the calling thread, and those that it starts, these system calls.
fn deny(calls: &[c_long], errno: c_int) {
    let step =
        |code: u32, yes, no, k: u32| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, *call as u32));
        filter.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    filter.push(step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter that lives as long as the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0), 0);
    }
}

/// Words that are not there, and what else is wrong with a wait for one.
#[test]
fn futexes_at_bad_places() {
    let answers = alike(|_| {
        let word = 5u32;
        let (good, odd) = (&raw const word as usize, &raw const word as usize + 1);
        let wrong = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 };
        let wrong = &raw const wrong as usize;
        let mut answers = Vec::new();
        for operation in [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET] {
            for place in [0, 8, usize::MAX - 7, 1 << 63, odd, good] {
                for time in [0, 8, wrong] {
                    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
                    // SAFETY: the kernel says what is not there; the word has another value.
                    answers.push(checked(unsafe {
                        libc::syscall(libc::SYS_futex, place, operation, 4, time, 0, !0u32)
                    }));
                }
            }
        }
        for operation in [libc::FUTEX_WAKE_OP, libc::FUTEX_CMP_REQUEUE] {
            for (one, other) in [(good, 0), (0, good), (odd, good), (good, odd), (good, 8)] {
                let operation = operation | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: as above; the word is left as it is.
                answers.push(checked(unsafe {
                    libc::syscall(libc::SYS_futex, one, operation, 1, 1, other, 1 << 28)
                }));
            }
        }
        answers
    });
    assert!(answers.contains(&Err(libc::EFAULT)));
}
