//! Every system call of the reactor fails once, in every way that the manual pages name.
//!
//! A scenario is run repeatedly; each time the next of its system calls fails, until none is
//! left. It must end with a clean error or continue as if nothing had happened: nothing may be lost,
//! left open or hang.

// `#[test]` with a time limit.
#[macro_use]
extern crate carefree_testing;

#[path = "common/symbols.rs"]
mod symbols;

use carefree_reactor::op::CURRENT;
use carefree_reactor::{Attempt, Completion, Completions, Driver, Kind, Op, clock, faults};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How a call may fail, by the manual pages and by seccomp filters.
fn errors(number: libc::c_long) -> &'static [i32] {
    match number {
        libc::SYS_io_uring_setup => {
            &[libc::EPERM, libc::ENOSYS, libc::ENOMEM, libc::EMFILE, libc::EINVAL]
        }
        libc::SYS_io_uring_register => &[libc::EINVAL, libc::ENOMEM],
        libc::SYS_io_uring_enter => &[libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM],
        libc::SYS_mmap => &[libc::ENOMEM, libc::EAGAIN],
        libc::SYS_eventfd2 => &[libc::EMFILE, libc::ENFILE, libc::ENOMEM],
        libc::SYS_epoll_create1 => &[libc::EMFILE, libc::ENOMEM],
        libc::SYS_epoll_ctl => &[libc::ENOMEM, libc::ENOSPC],
        libc::SYS_epoll_pwait => &[libc::EINTR],
        libc::SYS_epoll_pwait2 => &[libc::EINTR, libc::ENOSYS, libc::EPERM],
        libc::SYS_ppoll => &[libc::EINTR, libc::ENOMEM],
        libc::SYS_futex => &[libc::EINTR, libc::EAGAIN],
        libc::SYS_preadv2 => &[libc::EINTR, libc::EAGAIN, libc::EOPNOTSUPP, libc::ENOSYS],
        libc::SYS_recvfrom => &[libc::EINTR, libc::EAGAIN, libc::ENOMEM],
        libc::SYS_sendto => &[libc::EINTR, libc::EAGAIN, libc::ENOBUFS],
        libc::SYS_accept4 => &[libc::EINTR, libc::EAGAIN, libc::EMFILE, libc::ECONNABORTED],
        libc::SYS_pwritev2 => &[libc::EINTR, libc::EAGAIN, libc::EOPNOTSUPP, libc::ENOSYS],
        libc::SYS_recvmsg => &[libc::EINTR, libc::EAGAIN, libc::ENOMEM],
        libc::SYS_sendmsg => &[libc::EINTR, libc::EAGAIN, libc::ENOBUFS],
        libc::SYS_pidfd_open => &[libc::EMFILE, libc::ENOMEM, libc::ENOSYS],
        libc::SYS_waitid => &[libc::EINTR],
        libc::SYS_getsockopt => &[libc::ENOBUFS],
        libc::SYS_fstat => &[libc::EOVERFLOW],
        libc::SYS_prctl => &[libc::EPERM],
        _ => &[],
    }
}

/// Counts the calls that may fail, and makes one of them fail.
#[derive(Default)]
struct Fault {
    /// Which call is to fail, from 1.
    nth: u32,
    /// The index of its way to fail.
    way: usize,
    counted: Cell<u32>,
    /// What failed: the call, the error, and the number of its ways to fail.
    failed: Cell<Option<(libc::c_long, i32, usize)>>,
}

impl Fault {
    fn ask(&self, number: libc::c_long) -> Option<i32> {
        let errors = errors(number);
        if errors.is_empty() {
            return None;
        }
        self.counted.set(self.counted.get() + 1);
        if self.counted.get() != self.nth {
            return None;
        }
        // Timing makes the calls differ slightly from run to run.
        let errno = *errors.get(self.way)?;
        self.failed.set(Some((number, errno, errors.len())));
        Some(errno)
    }
}

/// The tests count descriptors, so only one may run at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs `scenario` with its n-th system call failing in each of its ways, for all n. Returns the
/// number of faults.
fn walk(scenario: impl Fn(&str)) -> u32 {
    let _alone = alone();
    let mut faults = 0;
    let (mut nth, mut way) = (1, 0);
    loop {
        let fault = Rc::new(Fault { nth, way, ..Fault::default() });
        let before = descriptors();
        faults::set(Some({
            let fault = Rc::clone(&fault);
            Box::new(move |number| fault.ask(number))
        }));
        scenario(&format!("call {nth}, way {way}"));
        faults::set(None);
        assert_eq!(descriptors(), before, "{:?} leaves descriptors open", fault.failed.get());
        let Some((_, _, ways)) = fault.failed.get() else {
            if fault.counted.get() < nth {
                return faults;
            }
            (nth, way) = (nth + 1, 0);
            continue;
        };
        faults += 1;
        (nth, way) = if way + 1 < ways { (nth, way + 1) } else { (nth + 1, 0) };
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A driver under test.
struct Bench<'w> {
    driver: Driver,
    done: HashMap<u64, i32>,
    /// The fault, for messages.
    what: &'w str,
}

impl Bench<'_> {
    fn submit(&mut self, token: u64, op: Op) -> bool {
        // SAFETY: the scenario keeps buffers valid until the completion has come.
        unsafe { self.driver.submit(token, &op) }.is_ok()
    }

    fn finish(&mut self, token: u64) -> i32 {
        let end = clock::after(Duration::from_secs(10));
        loop {
            if let Some(result) = self.done.remove(&token) {
                return result;
            }
            assert!(clock::now() < end, "{}: operation {token} does not end", self.what);
            self.wait(Some(end));
        }
    }

    fn poll(&mut self) {
        let mut out = Completions::new();
        self.driver.poll(&mut out);
        self.note(out);
    }

    fn wait(&mut self, deadline: Option<u64>) -> bool {
        let mut out = Completions::new();
        let woken = self.driver.wait(deadline, &mut out);
        self.note(out);
        woken
    }

    fn note(&mut self, out: Completions) {
        for &Completion { token, result } in out.iter() {
            let before = self.done.insert(token, result);
            assert_eq!(before, None, "{}: two completions of {token}", self.what);
        }
    }

    /// Whether the result is the expected one. Otherwise it must be an error, and there are no more
    /// errors than faults.
    fn check(&self, result: i32, wanted: i32) -> bool {
        assert!(result == wanted || result < 0, "{}: {result} for {wanted}", self.what);
        result == wanted
    }
}

/// Uses everything: waits for data, space and connections; cancels; sleeps until a deadline
/// and until a wake-up; many completions at once.
fn scenario(kind: Kind, what: &str) {
    // More than a ring holds. The other backends make a call for each, and each may fail.
    let many = if kind == Kind::Uring { 1_500 } else { 10 };
    let driver = match Driver::new(kind) {
        Ok(driver) => driver,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut bench = Bench { driver, done: HashMap::new(), what };
    let (here, mut there) = UnixStream::pair().unwrap();
    let fd = here.as_raw_fd();
    let mut buffer = [0u8; 8];
    let (start, length) = (buffer.as_mut_ptr(), buffer.len());

    // Data that arrives later.
    for op in [
        Op::Read { fd, buffer: start, length, offset: CURRENT },
        Op::Receive { fd, buffer: start, length, flags: 0 },
        Op::Receive { fd, buffer: start, length: 3, flags: libc::MSG_WAITALL },
    ] {
        let taken = bench.submit(1, op);
        bench.poll();
        there.write_all(b"abc").unwrap();
        if !(taken && { bench.finish(1) == 3 }) {
            (&here).read_exact(&mut [0; 3]).unwrap();
        }
    }
    if bench.submit(1, Op::Send { fd, buffer: start, length, flags: 0 }) {
        let result = bench.finish(1);
        if bench.check(result, 8) {
            there.read_exact(&mut [0; 8]).unwrap();
        }
    }

    // Datagrams, and a write.
    let mut piece = libc::iovec { iov_base: start.cast(), iov_len: 2 };
    // SAFETY: plain old data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    for op in [
        Op::SendMessage { fd, message: &raw const message, flags: 0 },
        Op::WriteVectored { fd, iov: &raw const piece, count: 1, offset: CURRENT, flags: 0 },
    ] {
        if bench.submit(1, op) {
            let result = bench.finish(1);
            if bench.check(result, 2) {
                there.read_exact(&mut [0; 2]).unwrap();
            }
        }
    }
    there.write_all(b"ab").unwrap();
    let receive = Op::ReceiveMessage { fd, message: &raw mut message, flags: 0 };
    let taken = bench.submit(1, receive);
    if !(taken && { bench.finish(1) == 2 }) {
        (&here).read_exact(&mut [0; 2]).unwrap();
    }

    // The end of a process.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let info = std::ptr::null_mut();
    let options = libc::WEXITED | libc::WNOWAIT;
    if bench.submit(1, Op::WaitId { kind: libc::P_PID, id: child.id(), info, options }) {
        let result = bench.finish(1);
        bench.check(result, 0);
    }
    child.wait().unwrap();

    // A connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, none) = (std::ptr::null_mut(), std::ptr::null_mut());
    let accept =
        Op::Accept { fd: listener.as_raw_fd(), address, length: none, flags: libc::SOCK_CLOEXEC };
    if bench.submit(1, accept) {
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = bench.finish(1);
        if accepted >= 0 {
            // SAFETY: a new descriptor, which nothing else owns.
            drop(unsafe { OwnedFd::from_raw_fd(accepted) });
        }
    }

    // The end of a wait.
    let read = Op::Read { fd, buffer: start, length, offset: CURRENT };
    if bench.submit(1, read) {
        bench.poll();
        bench.driver.cancel(1);
        let result = bench.finish(1);
        bench.check(result, -libc::ECANCELED);
    }
    let taken = bench.submit(1, read);
    let soon = clock::after(Duration::from_micros(300));
    while bench.driver.now() < soon {
        bench.wait(Some(soon));
    }
    let waker = bench.driver.waker();
    let waking = std::thread::spawn(move || waker.wake());
    while !bench.wait(None) {}
    waking.join().unwrap();
    there.write_all(b"x").unwrap();
    if taken {
        let result = bench.finish(1);
        bench.check(result, 1);
    }

    // Many at once.
    let many: Vec<u64> = (0..many)
        .filter(|&token| bench.submit(token, Op::Poll { fd, events: libc::POLLOUT as u32 }))
        .collect();
    for token in many {
        let result = bench.finish(token);
        bench.check(result, libc::POLLOUT.into());
    }
    assert_eq!(bench.driver.pending(), 0, "{what}");

    // Operations that are pending when the driver is dropped.
    let read = Op::Read { fd, buffer: start, length, offset: CURRENT };
    bench.submit(1, read);
    bench.poll();
    drop(bench);
}

#[test]
fn uring_survives_every_fault() {
    let faults = walk(|what| scenario(Kind::Uring, what));
    assert!(faults > 40, "only {faults}");
}

#[test]
fn epoll_survives_every_fault() {
    let faults = walk(|what| scenario(Kind::Epoll, what));
    assert!(faults > 60, "only {faults}");
}

#[test]
fn the_mock_survives_every_fault() {
    let faults = walk(|what| scenario(Kind::Mock, what));
    assert!(faults > 40, "only {faults}");
}

#[test]
fn executed_programs_inherit_no_descriptors() {
    let _alone = alone();
    // With each one's flags.
    let open = || -> HashMap<i32, i32> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        let numbers: Vec<i32> = entries
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        // SAFETY: F_GETFD accesses no memory.
        let flags = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) };
        // Without the directory that is being read.
        numbers.into_iter().map(|fd| (fd, flags(fd))).filter(|&(_, flags)| flags >= 0).collect()
    };
    let before = open();
    let drivers = [Kind::Uring, Kind::Epoll, Kind::Mock].map(|kind| Driver::new(kind).unwrap());
    let mut after = open();
    after.retain(|fd, _| !before.contains_key(fd));
    assert_eq!(after.len(), 6, "a bell each, a ring, and twice an epoll");
    for (fd, flags) in after {
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "descriptor {fd}");
        assert!(fd >= 32, "{fd} is a number for the program's files");
    }
    drop(drivers);
    assert_eq!(open(), before, "drivers close all descriptors");
}

/// Two threads notice the same connection on a blocking listener. Even if they are slow to call
/// `accept`, neither may find the connection taken, as it would wait for the next one.
#[test]
fn a_noticed_connection_is_accepted_before_another_thread_notices_it() {
    let _alone = alone();
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let (tell, accepted) = std::sync::mpsc::channel();
    let (tell_waker, wakers) = std::sync::mpsc::channel();
    let threads = [0, 1].map(|_| {
        let (listener, tell, tell_waker) = (listener.clone(), tell.clone(), tell_waker.clone());
        std::thread::spawn(move || {
            faults::set(Some(Box::new(|number| {
                if number == libc::SYS_accept4 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                None
            })));
            let driver = Driver::new(Kind::Epoll).unwrap();
            tell_waker.send(driver.waker()).unwrap();
            let mut bench = Bench { driver, done: HashMap::new(), what: "accept" };
            let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            let accept =
                Op::Accept { fd: listener.as_raw_fd(), address, length, flags: libc::SOCK_CLOEXEC };
            assert!(bench.submit(1, accept));
            while !bench.wait(None) {
                if let Some(fd) = bench.done.remove(&1) {
                    assert!(fd >= 0, "{fd}");
                    // SAFETY: a new descriptor, which nothing else owns.
                    tell.send(unsafe { OwnedFd::from_raw_fd(fd) }).unwrap();
                    assert!(bench.submit(1, accept));
                }
            }
        })
    });
    for _ in 0..20 {
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        accepted.recv_timeout(Duration::from_secs(10)).expect("one of them accepts");
    }
    for waker in wakers.iter().take(2) {
        waker.wake();
    }
    let end = clock::after(Duration::from_secs(10));
    for thread in threads {
        while !thread.is_finished() {
            assert!(clock::now() < end, "a thread blocks in accept");
            std::thread::sleep(Duration::from_millis(1));
        }
        thread.join().unwrap();
    }
}

/// A kernel that is out of memory refuses several times in a row. Entries in the backlog follow
/// later, even if nothing else happens.
#[test]
fn entries_refused_repeatedly_are_submitted_in_the_end() {
    let _alone = alone();
    for refusals in 1..6 {
        let Ok(driver) = Driver::new(Kind::Uring) else {
            return eprintln!("skipped: there is no io_uring here");
        };
        let mut bench = Bench { driver, done: HashMap::new(), what: "refused" };
        let (silent, _silent) = UnixStream::pair().unwrap();
        let (ready, mut writer) = UnixStream::pair().unwrap();
        writer.write_all(b"x").unwrap();
        let poll =
            |file: &UnixStream| Op::Poll { fd: file.as_raw_fd(), events: libc::POLLIN as u32 };
        // One more than the ring holds.
        for token in 1..=256 {
            assert!(bench.submit(token, poll(&silent)));
        }
        let left = Cell::new(refusals);
        faults::set(Some(Box::new(move |number| {
            let refuse = number == libc::SYS_io_uring_enter && left.get() > 0;
            refuse.then(|| left.set(left.get() - 1)).map(|()| libc::EAGAIN)
        })));
        assert!(bench.submit(257, poll(&ready)));
        assert_eq!(bench.finish(257), i32::from(libc::POLLIN), "{refusals} refusals");
        faults::set(None);
    }
}

/// The peer sends its last bytes and closes after the call has found nothing, and before the check
/// for the end.
#[test]
fn data_just_before_the_end_is_received() {
    let _alone = alone();
    type Make = fn(i32, *mut libc::iovec, *mut libc::msghdr) -> Op;
    let ways: [Make; 4] = [
        |fd, iov, _| {
            // SAFETY: the vector and its buffer live until the call returns.
            let (buffer, length) = unsafe { ((*iov).iov_base.cast(), (*iov).iov_len) };
            Op::Receive { fd, buffer, length, flags: 0 }
        },
        |fd, iov, _| {
            // SAFETY: the vector and its buffer live until the call returns.
            let (buffer, length) = unsafe { ((*iov).iov_base.cast(), (*iov).iov_len) };
            Op::Read { fd, buffer, length, offset: CURRENT }
        },
        |fd, iov, _| Op::ReadVectored { fd, iov, count: 1, offset: CURRENT, flags: 0 },
        |fd, _, message| Op::ReceiveMessage { fd, message, flags: 0 },
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut buffer = [0u8; 8];
        let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 8 };
        // SAFETY: plain old data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
        let op = way(here.as_raw_fd(), &raw mut iov, &raw mut message);
        let mut there = Some(there);
        faults::set(Some(Box::new(move |number| {
            if number == libc::SYS_ppoll {
                if let Some(mut there) = there.take() {
                    there.write_all(b"last").unwrap();
                }
            }
            None
        })));
        // SAFETY: everything that it refers to is alive.
        let tried = unsafe { op.attempt() };
        faults::set(None);
        assert_eq!(tried, Attempt::Done(4), "way {n}");
        assert_eq!(&buffer[..4], b"last");
        // SAFETY: everything that it refers to is alive.
        assert_eq!(unsafe { op.attempt() }, Attempt::Done(0), "way {n}");
    }
}

/// The ring reports events of unheld operations only once.
#[test]
fn a_signal_does_not_hide_events() {
    let _alone = alone();
    let Ok(driver) = Driver::new(Kind::Uring) else {
        return eprintln!("skipped: there is no io_uring here");
    };
    let mut bench = Bench { driver, done: HashMap::new(), what: "signal" };
    let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let mut buffer = [0u8; 8];
    let read = Op::Read {
        fd: here.as_raw_fd(),
        buffer: buffer.as_mut_ptr(),
        length: buffer.len(),
        offset: CURRENT,
    };
    // SAFETY: the buffer is not used until the completion has come.
    unsafe { bench.driver.submit_unheld(1, &read) }.unwrap();
    bench.poll();
    there.send(b"word").unwrap();
    let signals = Cell::new(1);
    faults::set(Some(Box::new(move |number| {
        let hit = number == libc::SYS_epoll_pwait && signals.replace(0) > 0;
        hit.then_some(libc::EINTR)
    })));
    assert_eq!(bench.finish(1), 4);
    faults::set(None);
    assert_eq!(&buffer[..4], b"word");
}
