//! Connections that the peer resets when a call has sent or received a part of its bytes.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::{marker, mem};

use carefree::spawn;

use crate::common::*;

/// Sends from a buffer of so many bytes.
type Send = unsafe fn(c_int, *const u8, usize) -> isize;

/// The calls that send.
const SENDS: [(&str, Send); 5] = [
    // SAFETY: the buffer has `length` bytes, as the type demands.
    ("write", |fd, from, length| unsafe { libc::write(fd, from.cast(), length) }),
    // SAFETY: the buffer has `length` bytes, as the type demands.
    ("send", |fd, from, length| unsafe { libc::send(fd, from.cast(), length, 0) }),
    ("writev", |fd, from, length| {
        let halves = halves(from, length);
        // SAFETY: the buffer has `length` bytes, as the type demands.
        unsafe { libc::writev(fd, halves.as_ptr(), 2) }
    }),
    ("sendmsg", |fd, from, length| {
        let mut halves = halves(from, length);
        // SAFETY: the buffer has `length` bytes, as the type demands; zeros are a header without anything.
        unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = halves.as_mut_ptr();
            message.msg_iovlen = 2;
            libc::sendmsg(fd, &raw const message, 0)
        }
    }),
    ("sendmmsg", |fd, from, length| {
        let mut halves = halves(from, length);
        // SAFETY: the buffer has `length` bytes, as the type demands; zeros are a header without anything.
        unsafe {
            let mut message: libc::mmsghdr = mem::zeroed();
            message.msg_hdr.msg_iov = halves.as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
            match libc::sendmmsg(fd, &raw mut message, 1, 0) {
                1 => message.msg_len as isize,
                sent => sent as isize,
            }
        }
    }),
];

fn halves(from: *const u8, length: usize) -> [libc::iovec; 2] {
    let half = length / 2;
    let at = |place: usize| from.wrapping_add(place).cast_mut().cast();
    [
        libc::iovec { iov_base: at(0), iov_len: half },
        libc::iovec { iov_base: at(half), iov_len: length - half },
    ]
}

/// The results of a call that sends more than the socket takes, and of the next call: a part, or the error. (A
/// third call would raise a signal, which another test counts.)
fn answers(send: Send, connection: &TcpStream) -> [Result<bool, i32>; 2] {
    let bytes = vec![0u8; 64 << 20];
    [(); 2].map(|()| {
        // SAFETY: as many bytes.
        let sent = unsafe { send(connection.as_raw_fd(), bytes.as_ptr(), bytes.len()) };
        checked(sent as i64).map(|sent| (sent as usize) < bytes.len())
    })
}

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Resets the connection when some of what was sent has come.
fn reset(mut far: TcpStream) {
    far.read_exact(&mut [0]).unwrap();
    linger_no_more(&far);
}

/// Resets the connection from this end.
fn linger_no_more(far: &TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a time as the option wants it.
    let set = unsafe {
        let (place, length) = ((&raw const at_once).cast(), size_of_val(&at_once) as u32);
        libc::setsockopt(far.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, place, length)
    };
    assert_eq!(set, 0);
}

/// The call that has sent a part returns it, and the next call reports why it ended there.
#[test]
fn what_ended_a_part_is_the_next_calls() {
    let expected = [Ok(true), Err(libc::ECONNRESET)];
    for (name, send) in SENDS {
        let (near, far) = connection();
        let resets = thread::spawn(move || reset(far));
        assert_eq!(answers(send, &near), expected, "{name} on a thread");
        resets.join().unwrap();

        // On one carrier, so that the reset comes when the call has parked.
        let told = on_one_carrier(move || {
            let (near, far) = connection();
            let resets = spawn(move || reset(far));
            let told = answers(send, &near);
            resets.join().unwrap();
            told
        });
        assert_eq!(told, expected, "{name} on a fiber");
    }
}

/// Receives into a buffer of so many bytes.
type Receive = unsafe fn(c_int, *mut u8, usize) -> isize;

/// The calls that receive all that they ask for.
const RECEIVES: [(&str, Receive); 5] = [
    ("recv", |fd, to, length| {
        // SAFETY: the buffer has `length` bytes, as the type demands.
        unsafe { libc::recv(fd, to.cast(), length, libc::MSG_WAITALL) }
    }),
    ("recvfrom", |fd, to, length| {
        let (mut from, mut room) = ([0u8; 64], 64);
        let from = from.as_mut_ptr().cast();
        // SAFETY: the buffer has `length` bytes, as the type demands; there is as much room for the address as
        // is said.
        unsafe { libc::recvfrom(fd, to.cast(), length, libc::MSG_WAITALL, from, &raw mut room) }
    }),
    ("recv after a look", |fd, to, length| {
        // SAFETY: the buffer has `length` bytes, as the type demands.
        unsafe {
            let looked = libc::recv(fd, to.cast(), length, libc::MSG_PEEK | libc::MSG_WAITALL);
            if looked <= 0 {
                return looked;
            }
            assert_eq!(libc::recv(fd, to.cast(), length, libc::MSG_WAITALL), looked);
            looked
        }
    }),
    // SAFETY: the buffer has `length` bytes, as the type demands.
    ("recvmsg", |fd, to, length| unsafe { receive_message(fd, to, length, 0) }),
    // SAFETY: the buffer has `length` bytes, as the type demands.
    ("recvmsg with control data", |fd, to, length| unsafe { receive_message(fd, to, length, 64) }),
];

/// `recvmsg` into two buffers, with so much room for control data.
unsafe fn receive_message(fd: c_int, to: *mut u8, length: usize, control: usize) -> isize {
    let mut halves = halves(to, length);
    let mut room = [0u64; 8];
    assert!(control <= size_of_val(&room));
    // SAFETY: the buffer has `length` bytes, as the type demands; zeros are a header without anything.
    unsafe {
        let mut message: libc::msghdr = mem::zeroed();
        message.msg_iov = halves.as_mut_ptr();
        message.msg_iovlen = 2;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = control as _;
        libc::recvmsg(fd, &raw mut message, libc::MSG_WAITALL)
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Reset,
    Closed,
    /// Shut down in one direction.
    ShutDown,
}

/// When it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// Before anything is received.
    Before,
    /// When the call has received what there was, and waits for more.
    Amid,
}

/// Asks a socket for a number of bytes.
fn bytes(connection: c_int, question: libc::Ioctl) -> c_int {
    let mut bytes: c_int = 0;
    // SAFETY: room for the answer.
    assert_eq!(unsafe { libc::ioctl(connection, question, &raw mut bytes) }, 0);
    bytes
}

/// Sends a part to `near`, and ends the connection. The result must be kept until the test has ended.
fn send_part(mut far: TcpStream, near: c_int, end: End, when: When) -> Option<TcpStream> {
    far.write_all(b"part").unwrap();
    while bytes(far.as_raw_fd(), libc::TIOCOUTQ) > 0
        || (when == When::Amid && bytes(near, libc::FIONREAD) > 0)
    {
        thread::yield_now();
    }
    match end {
        End::Reset => linger_no_more(&far),
        End::Closed => {}
        End::ShutDown => {
            far.shutdown(Shutdown::Write).unwrap();
            return Some(far);
        }
    }
    None
}

/// The results of three calls, each of which asks for twice as much as is sent.
fn receive_thrice(
    receive: Receive,
    end: End,
    when: When,
    on: impl FnOnce(Box<dyn FnOnce() -> Option<TcpStream> + marker::Send>) -> Join,
) -> [Result<i64, i32>; 3] {
    let (near, far) = connection();
    let fd = near.as_raw_fd();
    let mut ends = Some(on(Box::new(move || send_part(far, fd, end, when))));
    let kept = if when == When::Before { ends.take().and_then(|ends| ends()) } else { None };
    let told = [(); 3].map(|()| {
        let mut bytes = [0u8; 8];
        // SAFETY: there is room for as many bytes.
        let got = checked(unsafe { receive(fd, bytes.as_mut_ptr(), bytes.len()) } as i64);
        assert!(got != Ok(4) || &bytes == b"part\0\0\0\0");
        got
    });
    drop((kept, ends.map(|ends| ends())));
    told
}

/// Waits for a thread or fiber, and returns its result.
type Join = Box<dyn FnOnce() -> Option<TcpStream>>;

/// The call that has received a part returns it, and the next call reports why it ended there.
#[test]
fn what_ended_a_received_part_is_the_next_calls() {
    for end in [End::Reset, End::Closed, End::ShutDown] {
        let next = if end == End::Reset { Err(libc::ECONNRESET) } else { Ok(0) };
        for when in [When::Before, When::Amid] {
            for (name, receive) in RECEIVES {
                if when == When::Amid && name == "recv after a look" {
                    // The call takes nothing while it waits.
                    continue;
                }
                let said = format!("{name}, {end:?} {when:?}");
                let told = receive_thrice(receive, end, when, |f| {
                    let ends = thread::spawn(f);
                    Box::new(|| ends.join().unwrap())
                });
                assert_eq!(told, [Ok(4), next, Ok(0)], "{said}, on a thread");

                let told = on_one_carrier(move || {
                    receive_thrice(receive, end, when, |f| {
                        let ends = spawn(f);
                        Box::new(|| ends.join().unwrap())
                    })
                });
                assert_eq!(told, [Ok(4), next, Ok(0)], "{said}, on a fiber");
            }
        }
    }
}
