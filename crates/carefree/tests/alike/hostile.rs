//! Signals, closes and sandboxes that interfere with calls. Each test has a process of its own.

use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, ptr};

use libc::{c_int, c_long};

use crate::common::*;

extern "C" fn nothing(_: c_int) {}

/// No signal ends a fiber's call, even if the handler was installed without `SA_RESTART`.
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

/// A read whose file is closed meanwhile reports that the file is not open.
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
        // The filter holds for the threads that are started from now on.
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

/// A sandbox that knows only the older calls for waiting gives fibers what it gives threads.
#[cfg(target_arch = "x86_64")]
#[test]
fn waits_whose_later_forms_a_sandbox_denies() {
    if alone("hostile::waits_whose_later_forms_a_sandbox_denies") {
        return;
    }
    let later =
        [libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    for denial in [libc::ENOSYS, libc::EPERM, libc::EACCES] {
        let denied = std::thread::spawn(move || {
            deny(&later, denial);
            let answers = alike(waits);
            for waited in &answers[..OLDER] {
                assert!(waited.is_ok(), "{answers:?}");
            }
            for refused in &answers[OLDER..] {
                assert_eq!(refused, &Err(denial), "{answers:?}");
            }
            let runtime = carefree::Runtime::builder().build().unwrap();
            runtime.run(a_pause_of_a_fiber);
        });
        denied.join().unwrap();
    }
}

/// How many of the answers of [`waits`], at their beginning, are those of the older calls.
#[cfg(target_arch = "x86_64")]
const OLDER: usize = 16;

/// The answers of all calls that wait for one of several files.
#[cfg(target_arch = "x86_64")]
fn waits(on: On) -> Vec<Result> {
    // SAFETY: no memory is involved.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    let (from, to) = pipe();
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
    // SAFETY: an event.
    let added = unsafe {
        let add = libc::EPOLL_CTL_ADD;
        libc::epoll_ctl(epoll.as_raw_fd(), add, from.as_raw_fd(), &raw mut event)
    };
    assert_eq!(added, 0);
    let poll = |millis: c_int| {
        let mut one = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: an array of one.
        let polled = checked(unsafe { libc::poll(&raw mut one, 1, millis) });
        polled.map(|count| count * 1000 + i64::from(one.revents))
    };
    let epoll_wait = |millis: c_int| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event.
        checked(unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, millis) })
            .map(|count| count * 1000 + event.u64 as i64)
    };
    // By its number: libc itself may use the later call.
    let select = |millis: c_int| {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: i64::from(millis) * 1000 };
        let time = if millis < 0 { ptr::null_mut() } else { &raw mut time };
        // SAFETY: sets of as many files, and a time or none.
        unsafe {
            let mut set: libc::fd_set = std::mem::zeroed();
            libc::FD_SET(from.as_raw_fd(), &raw mut set);
            let (most, none) = (from.as_raw_fd() + 1, ptr::null_mut::<libc::fd_set>());
            checked(libc::syscall(libc::SYS_select, most, &raw mut set, none, none, time))
        }
    };
    let mut answers = Vec::new();
    let calls: [&(dyn Fn(c_int) -> Result + Sync); 3] = [&poll, &epoll_wait, &select];
    for call in calls {
        // Nothing is ready, at once and after a while; then it becomes ready; then it is ready from the start.
        answers.extend([call(0), call(3)]);
        let mut came = None;
        on.run(vec![
            Box::new(|| came = Some(call(-1))),
            Box::new(|| assert_eq!(write(&to, c"x".as_ptr().cast(), 1), Ok(1))),
        ]);
        answers.extend([came.unwrap(), call(0), call(-1)]);
        assert_eq!(read(&from, (&raw mut event).cast(), 1), Ok(1));
    }
    answers.push(peek_for_all(on));
    assert_eq!(answers.len(), OLDER);
    let mut one = libc::pollfd { fd: to.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let (one, event, fd) = (&raw mut one, &raw mut event, epoll.as_raw_fd());
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (now, none, no_set) = (&raw const now, ptr::null(), ptr::null_mut());
    // SAFETY: an array of one, room for an event, no sets, and a time.
    unsafe {
        answers.push(checked(libc::ppoll(one, 1, now, none)));
        answers.push(checked(libc::pselect(0, no_set, no_set, no_set, now, none)));
        answers.push(checked(libc::epoll_pwait(fd, event, 1, 0, none)));
        answers.push(checked(libc::syscall(libc::SYS_epoll_pwait2, fd, event, 1, now, none, 8)));
    }
    answers
}

/// How many bytes a `MSG_PEEK` for two returns if the second comes later.
#[cfg(target_arch = "x86_64")]
fn peek_for_all(on: On) -> Result {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    let mut peeked = None;
    assert_eq!(write(&other, c"x".as_ptr().cast(), 1), Ok(1));
    on.run(vec![
        Box::new(|| {
            let mut bytes = [0u8; 2];
            let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
            // SAFETY: there is room for two bytes.
            let got = unsafe { libc::recv(one.as_raw_fd(), bytes.as_mut_ptr().cast(), 2, flags) };
            peeked = Some(checked(got));
        }),
        Box::new(|| {
            on.run(vec![Box::new(|| (0..3).for_each(|_| std::thread::yield_now()))]);
            assert_eq!(write(&other, c"x".as_ptr().cast(), 1), Ok(1));
        }),
    ]);
    peeked.unwrap()
}

/// `pause` on a fiber waits until it is cut short. (On a thread, nothing cuts it short.)
#[cfg(target_arch = "x86_64")]
fn a_pause_of_a_fiber() {
    // SAFETY: no memory is involved.
    let paused = carefree::timeout(Duration::from_millis(5), || unsafe { libc::pause() });
    assert_eq!(paused.ok(), None);
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

/// Futexes at addresses without memory, and other invalid waits for one.
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
                // SAFETY: the kernel says what is not there; the operation leaves the word as it is.
                answers.push(checked(unsafe {
                    libc::syscall(libc::SYS_futex, one, operation, 1, 1, other, 1 << 28)
                }));
            }
        }
        answers
    });
    assert!(answers.contains(&Err(libc::EFAULT)));
}
