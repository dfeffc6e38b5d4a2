//! Bad pointers: a call answers `EFAULT` for them on a fiber as on a thread.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::{mem, ptr};

use libc::{iovec, mmsghdr, msghdr, timespec};

use crate::common::{checked, on_one_carrier};

/// Memory that can be read and written, followed by an unmapped page.
struct Edge {
    memory: *mut c_void,
    length: usize,
}

const PAGE: usize = 4096;

impl Edge {
    fn new() -> Edge {
        Edge::after(PAGE)
    }

    /// `length` mapped bytes, in whole pages.
    fn after(length: usize) -> Edge {
        // SAFETY: new pages, of which the last is made unreadable.
        unsafe {
            let memory = libc::mmap(
                ptr::null_mut(),
                length + PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(memory.wrapping_byte_add(length), PAGE, libc::PROT_NONE), 0);
            Edge { memory, length }
        }
    }

    /// A value of which only the first `there` bytes are mapped.
    fn part<T>(&self, there: usize) -> *mut T {
        self.memory.wrapping_byte_add(self.length - there).cast()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // SAFETY: the pages made above, which have no other users.
        unsafe { libc::munmap(self.memory, self.length + PAGE) };
    }
}

type Calls = Vec<(&'static str, Result<i64, c_int>)>;

/// The answer of each call to a bad pointer, when there is nothing to read and room to write.
fn calls() -> Calls {
    let edge = Edge::new();
    let (left, _right) = UnixStream::pair().unwrap();
    let socket = left.as_raw_fd();
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    let [from, to] = ends;
    let mut byte = 0u8;
    let buffer = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut answers = Calls::new();
    for nowhere in [ptr::null_mut::<c_void>(), 8 as *mut c_void, edge.part::<c_void>(0)] {
        // SAFETY: the kernel reads and writes what is there, and says what is not.
        unsafe {
            let mut header: msghdr = mem::zeroed();
            header.msg_iov = nowhere.cast();
            header.msg_iovlen = 2;
            let mut message: mmsghdr = mem::zeroed();
            message.msg_hdr = header;
            let all = libc::MSG_WAITALL;
            let both = libc::MSG_WAITALL | libc::MSG_PEEK;
            let soon = timespec { tv_sec: 0, tv_nsec: 1000 };
            let mut say = |name, result: i64| answers.push((name, checked(result)));
            // Several times: after failed tries, a call on the file waits before it tries.
            for _ in 0..6 {
                for count in [1, 2] {
                    say("readv", libc::readv(from, nowhere.cast(), count) as i64);
                    say("readv of a socket", libc::readv(socket, nowhere.cast(), count) as i64);
                }
                let flags = libc::RWF_HIPRI;
                say("preadv2", libc::preadv2(from, nowhere.cast(), 1, -1, flags) as i64);
                say("recvmsg", libc::recvmsg(socket, nowhere.cast(), 0) as i64);
                say("recvmsg, buffers", libc::recvmsg(socket, &raw mut header, 0) as i64);
                say("recvmsg, all", libc::recvmsg(socket, nowhere.cast(), all) as i64);
                say("recvmsg, all, buffers", libc::recvmsg(socket, &raw mut header, all) as i64);
                say("recvmsg, look", libc::recvmsg(socket, nowhere.cast(), both) as i64);
                say("recvmsg, look, buffers", libc::recvmsg(socket, &raw mut header, both) as i64);
            }
            say("writev", libc::writev(to, nowhere.cast(), 1) as i64);
            say("writev of two", libc::writev(socket, nowhere.cast(), 2) as i64);
            say("sendmsg", libc::sendmsg(socket, nowhere.cast(), 0) as i64);
            say("sendmsg, buffers", libc::sendmsg(socket, &raw const header, 0) as i64);
            say("sendmmsg", libc::sendmmsg(socket, nowhere.cast(), 1, 0).into());
            let null = ptr::null_mut();
            say("recvmmsg", libc::recvmmsg(socket, nowhere.cast(), 1, 0, null).into());
            say("recvmmsg, buffers", libc::recvmmsg(socket, &raw mut message, 1, 0, null).into());
            say("poll", libc::poll(nowhere.cast(), 1, -1).into());
            if !nowhere.is_null() {
                let time = nowhere.cast::<timespec>();
                say("recvmmsg, time", libc::recvmmsg(socket, &raw mut message, 1, 0, time).into());
                let set = nowhere.cast();
                let mut zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
                let (none, zero) = (ptr::null_mut(), &raw mut zero);
                say("select", libc::select(8, set, none, none, zero).into());
                say("select", libc::select(8, none, none, set, zero).into());
                let mut file = libc::pollfd { fd: from, events: libc::POLLIN, revents: 0 };
                let mask = nowhere.cast();
                say("ppoll", libc::ppoll(&raw mut file, 1, &raw const soon, mask).into());
                say("sendfile", libc::sendfile(socket, from, nowhere.cast(), 1) as i64);
                say("sigtimedwait", {
                    let mut signals = mem::zeroed();
                    libc::sigemptyset(&raw mut signals);
                    libc::sigtimedwait(&raw const signals, null.cast(), time).into()
                });
            }
            say("nanosleep", libc::nanosleep(nowhere.cast(), ptr::null_mut()).into());
            let clock = libc::CLOCK_MONOTONIC;
            for flags in [0, libc::TIMER_ABSTIME] {
                let slept = libc::clock_nanosleep(clock, flags, nowhere.cast(), ptr::null_mut());
                answers.push(("clock_nanosleep", Err(slept)));
            }
        }
    }
    // Memory that is mapped in part.
    for there in [1, 8, 15] {
        // SAFETY: the kernel reads and writes what is there, and says what is not.
        unsafe {
            let mut say = |name, result: i64| answers.push((name, checked(result)));
            for _ in 0..6 {
                say("readv, a part", libc::readv(from, edge.part(there), 1) as i64);
            }
            say("nanosleep, a part", libc::nanosleep(edge.part(there), ptr::null_mut()).into());
        }
    }
    // SAFETY: nothing owns them.
    unsafe {
        // Memory that is mapped up to the last byte.
        let last = edge.part::<iovec>(size_of::<iovec>());
        last.write(buffer);
        assert_eq!(libc::write(to, b"x".as_ptr().cast(), 1), 1);
        answers.push(("readv, all of it", checked(libc::readv(from, last, 1) as i64)));
        libc::close(from);
        libc::close(to);
    }
    answers
}

#[test]
fn they_are_answered_as_on_a_thread() {
    let on_a_thread = calls();
    let wrong = |answers: &Calls| {
        let wrong = answers.iter().filter(|(_, answer)| *answer != Err(libc::EFAULT));
        wrong.map(|(name, answer)| format!("{name}: {answer:?}")).collect::<Vec<_>>()
    };
    assert_eq!(wrong(&on_a_thread), ["readv, all of it: Ok(1)"], "on a thread");
    let on_a_fiber = on_one_carrier(calls);
    assert_eq!(wrong(&on_a_fiber), ["readv, all of it: Ok(1)"], "on a fiber");
    assert_eq!(on_a_fiber.len(), on_a_thread.len());
}

/// A child whose status could not be written is reaped all the same.
#[test]
fn nor_is_the_end_of_a_child_told_to_nowhere() {
    let answers = on_one_carrier(|| {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let nowhere = ptr::dangling_mut::<libc::siginfo_t>();
        // SAFETY: the kernel says what is not there.
        let told = unsafe { libc::waitid(libc::P_PID, child.id(), nowhere, libc::WEXITED) };
        (checked(told), child.wait().map_err(|error| error.raw_os_error()).err())
    });
    assert_eq!(answers, (Err(libc::EFAULT), Some(Some(libc::ECHILD))));
}

/// Sends two messages over a stream, the first of which ends at a bad pointer after many bytes. Returns how
/// many were sent, how long the first was, and what the other end got. If the socket is `full` when the call
/// begins, the call waits; else it has room.
fn send_up_to_a_bad_pointer(full: bool) -> (Result<i64, c_int>, u32, Vec<u8>) {
    const THERE: usize = 100 * PAGE;
    let edge = Edge::after(THERE);
    let (left, mut right) = UnixStream::pair().unwrap();
    let before = if full { fill(&left) } else { 0 };
    let reader = std::thread::spawn(move || {
        let mut came = Vec::new();
        right.read_to_end(&mut came).unwrap();
        came.split_off(before)
    });
    let mut byte = *b"b";
    let mut buffers = [
        iovec { iov_base: edge.part(THERE), iov_len: THERE + PAGE },
        iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 },
    ];
    let mut messages = buffers.each_mut().map(|buffer| {
        // SAFETY: zeros are a message without anything.
        let mut message: mmsghdr = unsafe { mem::zeroed() };
        message.msg_hdr.msg_iov = buffer;
        message.msg_hdr.msg_iovlen = 1;
        message
    });
    // SAFETY: two messages; the kernel says what is not there.
    let sent = unsafe { libc::sendmmsg(left.as_raw_fd(), messages.as_mut_ptr(), 2, 0) };
    drop(left);
    (checked(sent), messages[0].msg_len, reader.join().unwrap())
}

/// Writes zeros until the socket has no room; returns how many.
fn fill(mut socket: &UnixStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let zeros = [0; PAGE];
    let mut bytes = 0;
    while let Ok(more) = socket.write(&zeros) {
        bytes += more;
    }
    socket.set_nonblocking(false).unwrap();
    bytes
}

#[test]
fn no_message_follows_one_that_ends_at_a_bad_pointer() {
    for full in [false, true] {
        for lane in ["thread", "fiber"] {
            let (sent, length, came) = match lane {
                "thread" => send_up_to_a_bad_pointer(full),
                _ => on_one_carrier(move || send_up_to_a_bad_pointer(full)),
            };
            assert_eq!((sent, length as usize), (Ok(1), came.len()), "on a {lane}, full: {full}");
            assert!(length > 0 && came.iter().all(|byte| *byte == 0), "on a {lane}, full: {full}");
        }
    }
}
