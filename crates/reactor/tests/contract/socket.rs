//! Sockets: connections, datagrams, resets.

use super::kit::*;
use super::modes::holds_files;
use carefree_reactor::{Completions, Kind, Op, clock};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

over_all! {
    a_receive_waits_for_data
    both_directions_of_one_socket_wait_at_once
    many_wait_on_one_socket_and_each_gets_its_share
    flags_are_respected
    no_call_receives_more_than_the_kernel_transfers_at_once
    an_accept_waits_for_a_connection
    a_connect_arrives_or_is_refused
    a_reset_is_an_error
    datagrams_keep_their_boundaries
    a_shutdown_ends_a_receive
    a_large_send_continues_while_the_peer_reads
    an_error_that_stays_ends_no_wait_over_and_over
    a_poll_for_nothing_is_told_of_a_hang_up_after_a_read
    urgent_data_ends_a_poll_for_it_alone
}

fn a_receive_waits_for_data(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut buffer = [0; 8];
    bench.start(1, receive(&here, &mut buffer, 0));
    bench.is_waiting(1);
    there.write_all(b"abc").unwrap();
    assert_eq!(bench.finish(1), 3);
    assert_eq!(&buffer[..3], b"abc");
}

fn both_directions_of_one_socket_wait_at_once(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut buffer = [0; 8];
    bench.start(1, receive(&here, &mut buffer, 0));
    let chunk = [5; 8192];
    let mut sent = 0usize;
    let blocked = loop {
        let token = 100 + sent as u64;
        bench.start(token, send(&here, &chunk, 0));
        let mut result = None;
        for _ in 0..20 {
            result = bench.result(token);
            if result.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match result {
            Some(count) => sent += count as usize,
            None => break token,
        }
    };
    bench.is_waiting(1);
    bench.is_waiting(blocked);
    there.write_all(b"in").unwrap();
    assert_eq!(bench.finish(1), 2);
    bench.is_waiting(blocked);
    let mut sink = vec![0; sent];
    there.read_exact(&mut sink).unwrap();
    let last = bench.finish(blocked);
    assert!(last > 0 && last <= 8192, "{last}");
}

fn many_wait_on_one_socket_and_each_gets_its_share(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, there) = UnixDatagram::pair().unwrap();
    let mut buffers = [[0u8; 4]; 5];
    for (token, buffer) in buffers.iter_mut().enumerate() {
        bench.start(token as u64, receive(&here, buffer, 0));
    }
    bench.is_waiting(0);
    for letter in b"abcde" {
        there.send(&[*letter]).unwrap();
    }
    for token in 0..5 {
        assert_eq!(bench.finish(token), 1);
    }
    let mut letters = buffers.map(|buffer| buffer[0]);
    letters.sort_unstable();
    assert_eq!(&letters, b"abcde");
}

fn flags_are_respected(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut buffer = [0; 8];
    there.write_all(b"abc").unwrap();
    assert_eq!(bench.run(receive(&here, &mut buffer, libc::MSG_PEEK)), 3);
    assert_eq!(bench.run(receive(&here, &mut buffer, 0)), 3);
    assert_eq!(bench.run(receive(&here, &mut buffer, libc::MSG_DONTWAIT)), -libc::EAGAIN);
    // All bytes requested, though they arrive in pieces.
    bench.start(1, receive(&here, &mut buffer, libc::MSG_WAITALL));
    there.write_all(b"1234").unwrap();
    bench.is_waiting(1);
    there.write_all(b"5678").unwrap();
    assert_eq!(bench.finish(1), 8);
    assert_eq!(&buffer, b"12345678");
    // The available bytes at the end of the stream.
    bench.start(1, receive(&here, &mut buffer, libc::MSG_WAITALL));
    there.write_all(b"90").unwrap();
    bench.is_waiting(1);
    drop(there);
    assert_eq!(bench.finish(1), 2);
    assert_eq!(bench.run(send(&here, &buffer, libc::MSG_NOSIGNAL)), -libc::EPIPE);
}

fn no_call_receives_more_than_the_kernel_transfers_at_once(kind: Kind) {
    if kind == Kind::Uring {
        return; // It counts no bytes that are dropped, and goes on beyond the length (Linux 6.18).
    }
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = listener.accept().unwrap().0;
    let writer = std::thread::spawn(move || {
        let some = vec![0; 1 << 20];
        while there.write_all(&some).is_ok() {}
    });
    // With this flag TCP drops the bytes.
    let flags = libc::MSG_WAITALL | libc::MSG_TRUNC;
    // Addresses alone: an emulator of another processor checks them.
    let length = 3 << 30;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
    assert_ne!(place, libc::MAP_FAILED);
    let op = Op::Receive { fd: here.as_raw_fd(), buffer: place.cast(), length, flags };
    bench.start(1, op);
    assert_eq!(bench.finish(1), 0x7fff_f000);
    // SAFETY: nothing uses it any more.
    unsafe { libc::munmap(place, length) };
    drop(here);
    writer.join().unwrap();
}

fn an_accept_waits_for_a_connection(kind: Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: plain old data.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&address) as libc::socklen_t;
    let op = Op::Accept {
        fd: listener.as_raw_fd(),
        address: (&raw mut address).cast(),
        length: &raw mut length,
        flags: libc::SOCK_CLOEXEC,
    };
    bench.start(1, op);
    bench.is_waiting(1);
    let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let fd = bench.finish(1);
    assert!(fd >= 0, "{fd}");
    assert_eq!(u16::from_be(address.sin_port), there.local_addr().unwrap().port());
    // SAFETY: F_GETFD accesses no memory.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
    // SAFETY: a new descriptor, which nothing else owns.
    let mut here = unsafe { TcpStream::from_raw_fd(fd) };
    there.write_all(b"hi").unwrap();
    let mut buffer = [0; 2];
    here.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"hi");
}

fn a_connect_arrives_or_is_refused(kind: Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be() },
        sin_zero: [0; 8],
    };
    let connect = |bench: &mut Bench| {
        // SAFETY: a new descriptor, which nothing else owns.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            TcpStream::from_raw_fd(fd)
        };
        let op = Op::Connect {
            fd: socket.as_raw_fd(),
            address: (&raw const address).cast(),
            length: size_of_val(&address) as libc::socklen_t,
        };
        bench.submit(1, op).ok().map(|()| (bench.finish(1), socket))
    };
    let Some((result, socket)) = connect(&mut bench) else {
        return assert_ne!(kind, Kind::Uring, "a ring can connect");
    };
    assert_eq!(result, 0);
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer, socket.local_addr().unwrap());
    drop(listener);
    assert_eq!(connect(&mut bench).unwrap().0, -libc::ECONNREFUSED);
}

fn a_reset_is_an_error(kind: Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, _) = listener.accept().unwrap();
    let mut buffer = [0; 2];
    bench.start(1, receive(&here, &mut buffer, 0));
    bench.is_waiting(1);
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the kernel only reads the option.
    let set = unsafe {
        let (value, size) = ((&raw const linger).cast(), size_of_val(&linger) as u32);
        libc::setsockopt(there.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size)
    };
    assert_eq!(set, 0);
    drop(there);
    assert_eq!(bench.finish(1), -libc::ECONNRESET);
}

fn datagrams_keep_their_boundaries(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, there) = UnixDatagram::pair().unwrap();
    let mut buffer = [0u8; 3];
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 3 };
    // SAFETY: plain old data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    let fd = here.as_raw_fd();
    bench.start(1, Op::ReceiveMessage { fd, message: &raw mut message, flags: 0 });
    bench.is_waiting(1);
    there.send(b"12345").unwrap();
    assert_eq!(bench.finish(1), 3);
    assert_eq!(&buffer, b"123");
    assert_eq!(message.msg_flags & libc::MSG_TRUNC, libc::MSG_TRUNC);

    message.msg_flags = 0;
    assert_eq!(bench.run(Op::SendMessage { fd, message: &raw const message, flags: 0 }), 3);
    let mut echo = [0; 8];
    assert_eq!(there.recv(&mut echo).unwrap(), 3);
}

fn a_shutdown_ends_a_receive(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, _there) = UnixStream::pair().unwrap();
    let mut buffer = [0; 2];
    bench.start(1, receive(&here, &mut buffer, 0));
    bench.is_waiting(1);
    here.shutdown(Shutdown::Read).unwrap();
    assert_eq!(bench.finish(1), 0);
}

fn a_large_send_continues_while_the_peer_reads(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut there) = UnixStream::pair().unwrap();
    let data: Vec<u8> = (0..2_000_000u32).map(|n| (n / 251) as u8).collect();
    let reader = std::thread::spawn({
        let length = data.len();
        move || {
            let mut got = vec![0; length];
            there.read_exact(&mut got).unwrap();
            got
        }
    });
    let mut sent = 0;
    while sent < data.len() {
        let count = bench.run(send(&here, &data[sent..], 0));
        assert!(count > 0, "{count}");
        if holds_files(kind) {
            assert_eq!(count as usize, data.len(), "a ring sends everything");
        }
        sent += count as usize;
    }
    assert!(reader.join().unwrap() == data);
}

/// A notice in a socket's error queue, which only a call for that queue takes out, does not end a receive.
fn an_error_that_stays_ends_no_wait_over_and_over(kind: Kind) {
    let mut bench = Bench::new(kind);
    let here = UdpSocket::bind("127.0.0.1:0").unwrap();
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    here.connect(gone).unwrap();
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    let value = (&raw const on).cast();
    // SAFETY: a number of this length.
    let failed = unsafe {
        libc::setsockopt(here.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, value, length)
    };
    assert_eq!(failed, 0);
    let mut buffer = [0; 8];
    bench.start(1, receive(&here, &mut buffer, 0));
    here.send(b"to nobody").unwrap();
    assert_eq!(bench.finish(1), -libc::ECONNREFUSED);
    let peer = UdpSocket::bind(gone).unwrap();
    for token in 2..5 {
        bench.start(token, receive(&here, &mut buffer, 0));
        let end = clock::add(bench.driver.now(), std::time::Duration::from_millis(20));
        let mut waits = 0;
        while bench.driver.now() < end {
            let mut out = Completions::new();
            bench.driver.wait(Some(end), &mut out);
            assert!(out.is_empty());
            waits += 1;
            // (A few times, before it knows that the error stays.)
            assert!(waits < 30, "the driver is woken for nothing");
        }
        peer.send_to(b"data", here.local_addr().unwrap()).unwrap();
        assert_eq!(bench.finish(token), 4);
    }
}

fn a_poll_for_nothing_is_told_of_a_hang_up_after_a_read(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 8];
    bench.start(1, poll(&reader, 0));
    bench.start(2, read(&reader, &mut buffer));
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(2), 1);
    bench.is_waiting(1);
    drop(writer);
    assert_eq!(bench.finish(1), libc::POLLHUP.into());
}

fn urgent_data_ends_a_poll_for_it_alone(kind: Kind) {
    let mut bench = Bench::new(kind);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, _) = listener.accept().unwrap();
    bench.start(1, poll(&here, libc::POLLPRI));
    bench.is_waiting(1);
    assert_eq!(bench.run(send(&there, b"u", libc::MSG_OOB)), 1);
    // (A ring tells what it was woken with, too.)
    assert_ne!(bench.finish(1) & i32::from(libc::POLLPRI), 0);
}
