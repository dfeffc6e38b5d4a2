//! Files that are always ready, and operations for which only the kernel's workers can wait.

use super::kit::*;
use super::modes::holds_files;
use carefree_reactor::{Kind, Op};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

over_all! {
    files_are_read_and_written_at_an_offset
    watchable_virtual_files_are_read
    files_are_opened
    bytes_are_spliced
    a_futex_waits_for_its_wake
    an_epoll_instance_hands_out_its_events
    the_end_of_a_process_is_waited_for
    a_terminal_is_read_and_written
    a_timer_is_read_when_it_expires
}

fn files_are_read_and_written_at_an_offset(kind: Kind) {
    let mut bench = Bench::new(kind);
    // SAFETY: a new descriptor, which nothing else owns.
    let file = unsafe {
        let fd = libc::memfd_create(c"contract".as_ptr(), libc::MFD_CLOEXEC);
        OwnedFd::from_raw_fd(fd)
    };
    let mut buffer = [0; 4];
    if bench.submit(1, write_at(&file, b"abcdef", 10)).is_err() {
        // Left to threads, all of it.
        assert!(bench.submit(1, read(&file, &mut buffer)).is_err());
        assert!(bench.submit(1, Op::Sync { fd: file.as_raw_fd(), data_only: true }).is_err());
        return;
    }
    assert_eq!(bench.finish(1), 6);
    assert_eq!(bench.run(read_at(&file, &mut buffer, 12)), 4);
    assert_eq!(&buffer, b"cdef");
    assert_eq!(bench.run(read_at(&file, &mut buffer, 16)), 0);
    assert_eq!(bench.run(write(&file, b"01")), 2);
    assert_eq!(bench.run(write(&file, b"23")), 2);
    assert_eq!(bench.run(read_at(&file, &mut buffer, 0)), 4);
    assert_eq!(&buffer, b"0123");
    assert_eq!(bench.run(Op::Sync { fd: file.as_raw_fd(), data_only: true }), 0);
    assert_eq!(bench.run(Op::Sync { fd: file.as_raw_fd(), data_only: false }), 0);
}

/// epoll reports changes of this file, for which a read does not wait.
fn watchable_virtual_files_are_read(kind: Kind) {
    let mut bench = Bench::new(kind);
    let file = File::open("/proc/self/mounts").unwrap();
    let mut buffer = [0; 16];
    if bench.submit(1, read(&file, &mut buffer)).is_err() {
        // Left to threads.
        return;
    }
    assert!(bench.finish(1) > 0);
}

fn files_are_opened(kind: Kind) {
    let mut bench = Bench::new(kind);
    let path = c"/proc/self/status".as_ptr();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let op = Op::Open { directory: libc::AT_FDCWD, path, flags, mode: 0 };
    if bench.submit(1, op).is_err() {
        return assert_ne!(kind, Kind::Uring);
    }
    let fd = bench.finish(1);
    assert!(fd >= 0, "{fd}");
    // SAFETY: a new descriptor, which nothing else owns.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut buffer = [0; 5];
    assert_eq!(bench.run(read(&file, &mut buffer)), 5);
    assert_eq!(&buffer, b"Name:");
    let path = c"/nowhere/at/all".as_ptr();
    let op = Op::Open { directory: libc::AT_FDCWD, path, flags, mode: 0 };
    assert_eq!(bench.run(op), -libc::ENOENT);
}

fn bytes_are_spliced(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (from, mut source) = pipe().unwrap();
    let (mut sink, to) = pipe().unwrap();
    let op = Op::Splice {
        from: from.as_raw_fd(),
        from_offset: -1,
        to: to.as_raw_fd(),
        to_offset: -1,
        length: 100,
        flags: 0,
    };
    if bench.submit(1, op).is_err() {
        return assert_ne!(kind, Kind::Uring);
    }
    bench.is_waiting(1);
    source.write_all(b"abc").unwrap();
    assert_eq!(bench.finish(1), 3);
    let mut buffer = [0; 3];
    sink.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"abc");
}

fn an_epoll_instance_hands_out_its_events(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (source, mut sink) = pipe().unwrap();
    let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
    // SAFETY: a new descriptor, which nothing else owns; and an event that is there.
    let instance = unsafe {
        let instance = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
        let (fd, add) = (instance.as_raw_fd(), libc::EPOLL_CTL_ADD);
        assert_eq!(libc::epoll_ctl(fd, add, source.as_raw_fd(), &raw mut wanted), 0);
        instance
    };
    let mut got = [libc::epoll_event { events: 0, u64: 0 }; 2];
    let op = Op::EpollWait { fd: instance.as_raw_fd(), events: got.as_mut_ptr(), most: 2 };
    if bench.submit(1, op).is_err() {
        // Polled for instead; io_uring has it since Linux 6.15.
        return;
    }
    bench.is_waiting(1);
    sink.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), 1);
    assert_eq!({ got[0].u64 }, 7);
    // At once, where there are some.
    got[0].u64 = 0;
    assert_eq!(bench.run(op), 1);
    assert_eq!({ got[0].u64 }, 7);
    let no_instance = Op::EpollWait { fd: source.as_raw_fd(), events: got.as_mut_ptr(), most: 2 };
    assert_eq!(bench.run(no_instance), -libc::EINVAL);
}

fn a_futex_waits_for_its_wake(kind: Kind) {
    let mut bench = Bench::new(kind);
    let word = AtomicU32::new(7);
    let (address, mask) = (word.as_ptr().cast_const(), u32::MAX);
    if bench.submit(1, Op::FutexWait { address, value: 7, mask }).is_err() {
        // Left to threads; io_uring has it since Linux 6.7.
        return;
    }
    assert_eq!(bench.run(Op::FutexWait { address, value: 8, mask }), -libc::EAGAIN);
    bench.is_waiting(1);
    word.store(8, Ordering::SeqCst);
    // SAFETY: FUTEX_WAKE only uses the address, and accesses no memory.
    let woken = unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, 1) };
    assert_eq!(woken, 1);
    assert_eq!(bench.finish(1), 0);
}

fn the_end_of_a_process_is_waited_for(kind: Kind) {
    let mut bench = Bench::new(kind);
    let mut child =
        Command::new("sh").args(["-c", "read line; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
    // SAFETY: plain old data.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let wait = |id: u32, options: i32, info: *mut libc::siginfo_t| Op::WaitId {
        kind: libc::P_PID,
        id,
        info,
        options,
    };
    if bench.submit(1, wait(child.id(), libc::WEXITED, &raw mut info)).is_err() {
        // Left to threads; io_uring has it since Linux 6.7.
        child.kill().unwrap();
        child.wait().unwrap();
        return assert_eq!(kind, Kind::Uring);
    }
    bench.is_waiting(1);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(bench.finish(1), 0);
    // SAFETY: waitid fills in these.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    assert_eq!((pid as u32, status), (child.id(), 7));
    // The child was reaped: `waitpid` would not find it.
    assert!(child.wait().is_err());
    if holds_files(kind) {
        let gone = bench.run(wait(child.id(), libc::WEXITED, std::ptr::null_mut()));
        assert_eq!(gone, -libc::ECHILD);
    }
    // The next pidfd probably has the same number.
    let mut child = Command::new("true").spawn().unwrap();
    let result = bench.run(wait(child.id(), libc::WEXITED | libc::WNOWAIT, std::ptr::null_mut()));
    assert_eq!(result, 0);
    assert!(child.wait().unwrap().success(), "the child was not reaped");
}

fn a_terminal_is_read_and_written(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: two new descriptors, which nothing else owns.
    let (ours, theirs) = unsafe {
        let made = libc::openpty(&raw mut ours, &raw mut theirs, null, null.cast(), null.cast());
        assert_eq!(made, 0);
        (File::from_raw_fd(ours), File::from_raw_fd(theirs))
    };
    let mut buffer = [0; 100];
    bench.start(1, read(&theirs, &mut buffer));
    bench.is_waiting(1);
    (&ours).write_all(b"hello\n").unwrap();
    assert_eq!(bench.finish(1), 6);
    assert_eq!(&buffer[..6], b"hello\n");
    let result = bench.run(write(&theirs, &[b'x'; 300]));
    assert!((1..=300).contains(&result), "{result}");
    let mut echo = [0; 4];
    (&ours).read_exact(&mut echo).unwrap();
    assert_eq!(&echo[..3], b"hel", "it echoes");
}

fn a_timer_is_read_when_it_expires(kind: Kind) {
    let mut bench = Bench::new(kind);
    let span = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
    let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = libc::itimerspec { it_interval: never, it_value: span };
    // SAFETY: a new descriptor, which nothing else owns; the setting lives until the call returns.
    let timer = unsafe {
        let fd = libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC);
        assert_eq!(libc::timerfd_settime(fd, 0, &raw const setting, std::ptr::null_mut()), 0);
        OwnedFd::from_raw_fd(fd)
    };
    let mut count = [0; 8];
    assert_eq!(bench.run(read(&timer, &mut count)), 8);
    assert_eq!(u64::from_ne_bytes(count), 1);
    bench.start(1, read(&timer, &mut count));
    bench.is_waiting(1);
    bench.driver.cancel(1);
    assert_eq!(bench.finish(1), -libc::ECANCELED);
}
