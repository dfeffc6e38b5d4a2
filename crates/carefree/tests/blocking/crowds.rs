//! Many fibers that wait for one file.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::IntoRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

use libc::c_int;

use crate::common::*;

/// Two ends of something, for as long as the process lasts: from the second one comes what is written to the first.
type Ends = [c_int; 2];

fn pipe() -> Ends {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    [ends[1], ends[0]]
}

/// One that each read takes 1 from.
fn eventfd() -> Ends {
    // SAFETY: no memory is involved.
    [unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE) }; 2]
}

fn unix_stream() -> Ends {
    UnixStream::pair().map(|(one, other)| [one, other].map(IntoRawFd::into_raw_fd)).unwrap()
}

fn unix_datagram() -> Ends {
    UnixDatagram::pair().map(|(one, other)| [one, other].map(IntoRawFd::into_raw_fd)).unwrap()
}

fn tcp() -> Ends {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [one, listener.accept().unwrap().0].map(IntoRawFd::into_raw_fd)
}

fn udp() -> Ends {
    let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    [one, other].map(IntoRawFd::into_raw_fd)
}

/// Writes 1, and reads it.
fn write(fd: c_int) {
    let number = 1u64;
    // SAFETY: eight bytes.
    assert_eq!(unsafe { libc::write(fd, (&raw const number).cast(), 8) }, 8);
}

fn read(fd: c_int) {
    let mut number = 0u64;
    // SAFETY: eight bytes.
    assert_eq!(unsafe { libc::read(fd, (&raw mut number).cast(), 8) }, 8);
}

fn receive(fd: c_int) {
    let mut number = 0u64;
    // SAFETY: eight bytes.
    assert_eq!(unsafe { libc::recv(fd, (&raw mut number).cast(), 8, 0) }, 8);
}

fn receive_message(fd: c_int) {
    let mut number = 0u64;
    let mut part = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: 8 };
    // SAFETY: zeros are a message, which has room for eight bytes.
    let got = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        libc::recvmsg(fd, &raw mut message, 0)
    };
    assert_eq!(got, 8);
}

#[test]
fn what_comes_is_had_by_the_reader_that_came_first() {
    type Way = (&'static str, fn() -> Ends, fn(c_int));
    const WAYS: &[Way] = &[
        ("pipe, read", pipe, read),
        ("eventfd, read", eventfd, read),
        ("stream, read", unix_stream, read),
        ("stream, recv", unix_stream, receive),
        ("datagrams, recvmsg", unix_datagram, receive_message),
        ("TCP, recv", tcp, receive),
        ("TCP, recvmsg", tcp, receive_message),
        ("UDP, recv", udp, receive),
    ];
    for &(way, ends, take) in WAYS {
        for readers in [2, 20] {
            let [one, other] = ends();
            let served = served(readers, move || take(other), move || write(one));
            assert_eq!(served, Vec::from_iter(0..readers), "{way}");
        }
    }
}

#[test]
fn room_in_a_pipe_is_had_by_the_writer_that_came_first() {
    /// A page of the kernel's: there is room for the next one when this has been read.
    static PAGE: [u8; 4096] = [0; 4096];
    for writers in [2, 20] {
        let [one, other] = pipe();
        // SAFETY: no memory is involved.
        let room = unsafe { libc::fcntl(one, libc::F_GETPIPE_SZ) } as usize;
        // SAFETY: reads what is there.
        let put = move || unsafe { libc::write(one, PAGE.as_ptr().cast(), PAGE.len()) };
        (0..room / PAGE.len()).for_each(|_| assert_eq!(put(), 4096));
        let take = move || {
            let mut page = PAGE;
            // SAFETY: room for a page.
            let got = unsafe { libc::read(other, page.as_mut_ptr().cast(), page.len()) };
            assert_eq!(got, 4096);
        };
        let served = served(writers, move || assert_eq!(put(), 4096), take);
        assert_eq!(served, Vec::from_iter(0..writers));
    }
}
