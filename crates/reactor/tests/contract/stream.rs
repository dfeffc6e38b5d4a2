//! Pipes: waiting for data, space and the end.

use super::kit::*;
use super::modes;
use carefree_reactor::op::CURRENT;
use carefree_reactor::{Kind, Op};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

over_all! {
    a_write_to_a_full_eventfd_is_done_or_refused
    a_read_waits_for_data
    a_read_returns_the_available_bytes_only
    a_read_ends_when_the_writers_are_gone
    a_write_waits_for_space
    a_write_to_a_broken_pipe_fails
    vectors_are_filled_in_order
    a_poll_reports_the_events
    a_closed_descriptor_is_an_error
    an_operation_that_must_not_wait_does_not
}

fn a_read_waits_for_data(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 8];
    bench.start(1, read(&reader, &mut buffer));
    bench.is_waiting(1);
    writer.write_all(b"abc").unwrap();
    assert_eq!(bench.finish(1), 3);
    assert_eq!(&buffer, b"abc\0\0\0\0\0");
}

fn a_read_returns_the_available_bytes_only(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(b"abcdef").unwrap();
    let mut buffer = [0; 4];
    assert_eq!(bench.run(read(&reader, &mut buffer)), 4);
    assert_eq!(&buffer, b"abcd");
    assert_eq!(bench.run(read(&reader, &mut buffer)), 2);
    assert_eq!(&buffer, b"efcd");
}

fn a_read_ends_when_the_writers_are_gone(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    bench.start(1, read(&reader, &mut buffer));
    bench.is_waiting(1);
    drop(writer);
    assert_eq!(bench.finish(1), 0);
    assert_eq!(bench.run(read(&reader, &mut buffer)), 0);
}

fn a_write_waits_for_space(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (mut reader, writer) = pipe().unwrap();
    let page = [7; 4096];
    let mut written = 0;
    // More than a pipe's buffer.
    loop {
        bench.start(1, write(&writer, &page));
        let mut result = None;
        for _ in 0..20 {
            result = bench.result(1);
            if result.is_some() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        match result {
            Some(count) => written += count as usize,
            None => break,
        }
        assert!(written <= 1 << 20, "the pipe is never full");
    }
    bench.is_waiting(1);
    let mut read = vec![0; written];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(bench.finish(1), 4096);
}

fn a_write_to_a_broken_pipe_fails(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    assert_eq!(bench.run(write(&writer, b"x")), -libc::EPIPE);
}

fn vectors_are_filled_in_order(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let (mut front, mut back) = ([0u8; 2], [0u8; 8]);
    let iov = [
        libc::iovec { iov_base: front.as_mut_ptr().cast(), iov_len: 2 },
        libc::iovec { iov_base: back.as_mut_ptr().cast(), iov_len: 8 },
    ];
    let offset = CURRENT;
    let fd = reader.as_raw_fd();
    let op = Op::ReadVectored { fd, iov: iov.as_ptr(), count: 2, offset, flags: 0 };
    bench.start(1, op);
    bench.is_waiting(1);
    writer.write_all(b"hello").unwrap();
    assert_eq!(bench.finish(1), 5);
    assert_eq!((&front, &back[..3]), (b"he", &b"llo"[..]));

    let fd = writer.as_raw_fd();
    let op = Op::WriteVectored { fd, iov: iov.as_ptr(), count: 2, offset, flags: 0 };
    assert_eq!(bench.run(op), 10);
    let mut echo = [0; 10];
    let mut reader = reader;
    reader.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"hello\0\0\0\0\0");
}

fn a_poll_reports_the_events(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    assert_eq!(bench.run(poll(&writer, libc::POLLOUT)), libc::POLLOUT.into());
    bench.start(1, poll(&reader, libc::POLLIN));
    bench.is_waiting(1);
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.finish(1), libc::POLLIN.into());
    drop(writer);
    assert_eq!(bench.run(poll(&reader, libc::POLLIN)), (libc::POLLIN | libc::POLLHUP).into());
    let mut buffer = [0];
    assert_eq!(bench.run(read(&reader, &mut buffer)), 1);
    // A hang-up is reported though it was not requested.
    assert_eq!(bench.run(poll(&reader, libc::POLLPRI)), libc::POLLHUP.into());
}

fn a_closed_descriptor_is_an_error(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, _writer) = pipe().unwrap();
    let number = at_a_number_of_its_own(reader);
    let fd = number.as_raw_fd();
    drop(number);
    let mut buffer = [0];
    assert_eq!(bench.run(read(&fd, &mut buffer)), -libc::EBADF);
    assert_eq!(bench.run(write(&fd, &buffer)), -libc::EBADF);
    assert_eq!(bench.run(poll(&fd, libc::POLLIN)), -libc::EBADF);
    assert_eq!(bench.run(accept(&fd)), -libc::EBADF);
    assert_eq!(bench.run(receive(&fd, &mut buffer, 0)), -libc::EBADF);
}

fn an_operation_that_must_not_wait_does_not(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (reader, mut writer) = pipe().unwrap();
    let mut buffer = [0; 4];
    let iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: 4 };
    let op = Op::ReadVectored {
        fd: reader.as_raw_fd(),
        iov: &raw const iov,
        count: 1,
        offset: CURRENT,
        flags: libc::RWF_NOWAIT,
    };
    let result = bench.run(op);
    if modes::is_old_epoll() {
        return assert_eq!(result, -libc::EOPNOTSUPP);
    }
    assert_eq!(result, -libc::EAGAIN);
    writer.write_all(b"x").unwrap();
    assert_eq!(bench.run(op), 1);
}

/// epoll cannot say when there is room for as much as is written.
fn a_write_to_a_full_eventfd_is_done_or_refused(kind: Kind) {
    let mut bench = Bench::new(kind);
    // SAFETY: a new descriptor, which nothing else owns.
    let mut file = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    file.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
    let count = 5u64.to_ne_bytes();
    bench.start(1, write(&file, &count));
    bench.is_waiting(1);
    let mut read = [0; 8];
    file.read_exact(&mut read).unwrap();
    let done = bench.finish(1);
    match kind {
        Kind::Uring if !modes::holds_nothing() => assert_eq!(done, 8),
        _ => assert_eq!(done, -libc::EOPNOTSUPP),
    }
}
