//! Helpers of the contract's tests.

use super::modes;
use carefree_reactor::{Completion, Completions, Driver, Kind, Op, Unsupported, clock};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// How long a test waits for what must come: long, since the machine may be loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A driver, and its completions.
pub(crate) struct Bench {
    pub(crate) driver: Driver,
    done: HashMap<u64, i32>,
}

/// A driver, in the mode that is forced if one is.
pub(crate) fn driver(kind: Kind) -> Driver {
    modes::enter();
    let driver = Driver::new(kind).unwrap_or_else(|error| panic!("{kind}: {error}"));
    assert_eq!(driver.kind(), kind);
    driver
}

impl Bench {
    pub(crate) fn new(kind: Kind) -> Bench {
        Bench { driver: driver(kind), done: HashMap::new() }
    }

    /// Submits an operation whose memory the test keeps valid.
    pub(crate) fn submit(&mut self, token: u64, op: Op) -> Result<(), Unsupported> {
        // SAFETY: the tests keep buffers valid until the completion has come.
        unsafe {
            if modes::holds_nothing() && self.driver.submit_unheld(token, &op).is_ok() {
                return Ok(());
            }
            self.driver.submit(token, &op)
        }
    }

    pub(crate) fn start(&mut self, token: u64, op: Op) {
        self.submit(token, op).unwrap_or_else(|_| panic!("{} is unsupported", op.name()));
    }

    pub(crate) fn note(&mut self, out: Completions) {
        for &Completion { token, result } in out.iter() {
            let before = self.done.insert(token, result);
            assert_eq!(before, None, "two completions of {token}");
        }
    }

    pub(crate) fn poll(&mut self) {
        let mut out = Completions::new();
        self.driver.poll(&mut out);
        self.note(out);
    }

    /// Waits for the completion of an operation; returns its result.
    pub(crate) fn finish(&mut self, token: u64) -> i32 {
        let end = clock::after(PATIENCE);
        loop {
            if let Some(result) = self.done.remove(&token) {
                return result;
            }
            assert!(clock::now() < end, "operation {token} does not end");
            let mut out = Completions::new();
            // The mock does not sleep but skips to the deadline.
            let limit = (self.driver.kind() != Kind::Mock).then_some(end);
            self.driver.wait(limit, &mut out);
            self.note(out);
        }
    }

    /// Submits an operation and waits for its completion.
    pub(crate) fn run(&mut self, op: Op) -> i32 {
        const TOKEN: u64 = 1 << 40;
        self.start(TOKEN, op);
        self.finish(TOKEN)
    }

    /// The result of an operation if it has completed.
    pub(crate) fn result(&mut self, token: u64) -> Option<i32> {
        self.poll();
        self.done.remove(&token)
    }

    /// Asserts that an operation is still under way, though the kernel had time to end it.
    pub(crate) fn is_waiting(&mut self, token: u64) {
        for _ in 0..3 {
            let mut out = Completions::new();
            let soon = clock::add(self.driver.now(), Duration::from_millis(2));
            self.driver.wait(Some(soon), &mut out);
            self.note(out);
            assert_eq!(self.done.get(&token), None, "operation {token} has ended");
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.driver.pending(), 0, "operations are left pending");
            assert!(self.done.is_empty(), "completions left behind: {:?}", self.done);
        }
    }
}

/// Defines a test for each backend.
macro_rules! over_all {
    ($($name:ident)*) => {
        mod uring {
            $(#[test] fn $name() { super::$name(carefree_reactor::Kind::Uring); })*
        }
        mod epoll {
            $(#[test] fn $name() { super::$name(carefree_reactor::Kind::Epoll); })*
        }
        mod mock {
            $(#[test] fn $name() { super::$name(carefree_reactor::Kind::Mock); })*
        }
    };
}
pub(crate) use over_all;

pub(crate) fn read(fd: &impl AsRawFd, buffer: &mut [u8]) -> Op {
    read_at(fd, buffer, carefree_reactor::op::CURRENT)
}

pub(crate) fn read_at(fd: &impl AsRawFd, buffer: &mut [u8], offset: u64) -> Op {
    let (buffer, length) = (buffer.as_mut_ptr(), buffer.len());
    Op::Read { fd: fd.as_raw_fd(), buffer, length, offset }
}

pub(crate) fn write(fd: &impl AsRawFd, buffer: &[u8]) -> Op {
    write_at(fd, buffer, carefree_reactor::op::CURRENT)
}

pub(crate) fn write_at(fd: &impl AsRawFd, buffer: &[u8], offset: u64) -> Op {
    let (buffer, length) = (buffer.as_ptr(), buffer.len());
    Op::Write { fd: fd.as_raw_fd(), buffer, length, offset }
}

pub(crate) fn receive(fd: &impl AsRawFd, buffer: &mut [u8], flags: i32) -> Op {
    let (buffer, length) = (buffer.as_mut_ptr(), buffer.len());
    Op::Receive { fd: fd.as_raw_fd(), buffer, length, flags }
}

pub(crate) fn send(fd: &impl AsRawFd, buffer: &[u8], flags: i32) -> Op {
    let (buffer, length) = (buffer.as_ptr(), buffer.len());
    Op::Send { fd: fd.as_raw_fd(), buffer, length, flags }
}

pub(crate) fn poll(fd: &impl AsRawFd, events: i16) -> Op {
    Op::Poll { fd: fd.as_raw_fd(), events: events as u32 }
}

pub(crate) fn accept(fd: &impl AsRawFd) -> Op {
    let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
    Op::Accept { fd: fd.as_raw_fd(), address, length, flags: libc::SOCK_CLOEXEC }
}

/// The reading and the writing end.
pub(crate) fn pipe() -> std::io::Result<(File, File)> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two new descriptors, which nothing else owns.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// Moves `file` to a number that no other test's file gets, not even while the number is free again.
pub(crate) fn at_a_number_of_its_own(file: impl Into<OwnedFd>) -> OwnedFd {
    // Far from those that the kernel gives by itself.
    static NEXT: AtomicI32 = AtomicI32::new(800);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: a new descriptor, which nothing else owns.
    unsafe {
        let fd = libc::fcntl(file.into().as_raw_fd(), libc::F_DUPFD_CLOEXEC, number);
        assert_eq!(fd, number, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

/// Pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
