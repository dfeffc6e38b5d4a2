//! Connections that the peer resets while a call has sent a part of its bytes.

use std::ffi::c_int;
use std::io::Read;
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use carefree::spawn;

use crate::common::*;

type Send = unsafe fn(c_int, *const u8, usize) -> isize;

/// The calls that send.
const SENDS: [(&str, Send); 4] = [
    // SAFETY: the caller's promise.
    ("write", |fd, from, length| unsafe { libc::write(fd, from.cast(), length) }),
    // SAFETY: as above.
    ("send", |fd, from, length| unsafe { libc::send(fd, from.cast(), length, 0) }),
    ("writev", |fd, from, length| {
        let halves = halves(from, length);
        // SAFETY: the caller's promise.
        unsafe { libc::writev(fd, halves.as_ptr(), 2) }
    }),
    ("sendmsg", |fd, from, length| {
        let mut halves = halves(from, length);
        // SAFETY: the caller's promise; zeros are a header without anything.
        unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = halves.as_mut_ptr();
            message.msg_iovlen = 2;
            libc::sendmsg(fd, &raw const message, 0)
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

/// What a call that sends more than the socket takes says, and the next one: whether it was a part, or
/// the error. (A third one would raise a signal, which another test counts.)
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
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: a time as the option wants it.
    let set = unsafe {
        let (place, length) = ((&raw const at_once).cast(), size_of_val(&at_once) as u32);
        libc::setsockopt(far.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, place, length)
    };
    assert_eq!(set, 0);
}

/// The call that has sent a part says how much, and the next one why it ended there.
#[test]
fn what_ended_a_part_is_the_next_calls() {
    let expected = [Ok(true), Err(libc::ECONNRESET)];
    for (name, send) in SENDS {
        let (near, far) = connection();
        let resets = thread::spawn(move || reset(far));
        assert_eq!(answers(send, &near), expected, "{name} on a thread");
        resets.join().unwrap();

        // On one carrier: it is reset when the call has parked.
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
