//! Streams of bytes, through pipes, sockets and connections.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use carefree::spawn;

use super::ends::{accept, connect, listen, make_pair, make_pipe, make_stream};
use super::finish;
use crate::stream::{By, checked, insist, read, read_all, write_all};

pub(super) fn pipe(mut random: fastrand::Rng) {
    let (from, to) = make_pipe(&mut random);
    let total = random.u64(1..100_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || write_all(to.as_raw_fd(), 1, total, false, &mut of_writer));
    read_all(from.as_raw_fd(), 1, total, false, &mut random);
    finish([writer]);
}

/// Both ways at once.
pub(super) fn socketpair(mut random: fastrand::Rng) {
    let (here, there) = make_pair(libc::SOCK_STREAM, &mut random);
    talk(here, there, &mut random);
}

/// A stream each way, until each end is shut down.
fn talk(here: OwnedFd, there: OwnedFd, random: &mut fastrand::Rng) {
    let ends = [Arc::new(here), Arc::new(there)];
    let totals = [random.u64(1..60_000), random.u64(1..60_000)];
    let mut fibers = Vec::new();
    for (n, (end, total)) in ends.iter().zip(totals).enumerate() {
        let (end, mut random) = (Arc::clone(end), random.fork());
        let fd = end.as_raw_fd();
        fibers.push(spawn(move || {
            write_all(fd, n as u64, total, true, &mut random);
            // SAFETY: no memory is involved.
            checked(unsafe { libc::shutdown(fd, libc::SHUT_WR) }).unwrap();
            drop(end);
        }));
    }
    for (n, end) in ends.iter().enumerate() {
        let (end, mut random) = (Arc::clone(end), random.fork());
        let other = 1 - n;
        fibers.push(spawn(move || {
            read_all(end.as_raw_fd(), other as u64, totals[other], true, &mut random);
        }));
    }
    finish(fibers);
}

/// Connections, each a pair of streams; several fibers accept.
pub(super) fn tcp(mut random: fastrand::Rng) {
    let (listener, address) = listen();
    let listener = Arc::new(listener);
    let connections = random.usize(1..5);
    let mut fibers = Vec::new();
    for _ in 0..connections {
        let listener = Arc::clone(&listener);
        let mut of_server = random.fork();
        fibers.push(spawn(move || {
            let connection = accept(listener.as_raw_fd()).unwrap();
            let fd = connection.as_raw_fd();
            let total = of_server.u64(1..40_000);
            read_all(fd, 7, 5000, true, &mut of_server);
            write_all(fd, 8, total, true, &mut of_server);
        }));
        let mut of_client = random.fork();
        fibers.push(spawn(move || {
            let connection = connect(address);
            let fd = connection.as_raw_fd();
            write_all(fd, 7, 5000, true, &mut of_client);
            // SAFETY: no memory is involved.
            checked(unsafe { libc::shutdown(fd, libc::SHUT_WR) }).unwrap();
            let mut place = 0;
            loop {
                let by = By::draw(&mut of_client, true);
                match read(fd, 8, place, by, &mut of_client).unwrap() {
                    0 => break,
                    got => place += got as u64,
                }
            }
            assert!(place > 0, "the server has sent nothing");
        }));
    }
    finish(fibers);
}

/// Several streams, each read by one fiber when `poll` reports it readable.
pub(super) fn poll(mut random: fastrand::Rng) {
    let (mut ends, mut writers, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for stream in 0..random.u64(2..5) {
        let (from, to, is_socket) = make_stream(&mut random);
        let total = random.u64(1..10_000);
        let mut of_writer = random.fork();
        writers.push(spawn(move || {
            write_all(to.as_raw_fd(), stream, total, is_socket, &mut of_writer);
        }));
        ends.push((from, total));
        places.push(Some(0));
    }
    while places.iter().any(Option::is_some) {
        let mut list: Vec<libc::pollfd> = (ends.iter().zip(&places))
            .map(|((end, _), place)| libc::pollfd {
                fd: if place.is_some() { end.as_raw_fd() } else { -1 },
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        let limit = if random.bool() { -1 } else { random.i32(0..3) };
        // SAFETY: the list has as many entries as the call is told.
        let ready =
            insist(|| checked(unsafe { libc::poll(list.as_mut_ptr(), list.len() as u64, limit) }));
        let ready = ready.unwrap_or_else(|errno| panic!("poll: errno {errno}"));
        let marked = list.iter().filter(|one| one.revents != 0).count();
        assert_eq!(ready, marked);
        assert!(ready > 0 || limit >= 0, "poll returns 0 without a limit");
        for (n, _) in list.iter().enumerate().filter(|(_, one)| one.revents != 0) {
            let place = places[n].unwrap();
            let got = read(list[n].fd, n as u64, place, By::Plain, &mut random).unwrap() as u64;
            if got == 0 {
                assert_eq!(place, ends[n].1);
            }
            places[n] = (got > 0).then_some(place + got);
        }
    }
    finish(writers);
}

/// One pipe spliced into another.
pub(super) fn splice(mut random: fastrand::Rng) {
    let (first, to) = make_pipe(&mut random);
    let (from, second) = make_pipe(&mut random);
    let total = random.u64(1..50_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || write_all(to.as_raw_fd(), 3, total, false, &mut of_writer));
    let mut of_middle = random.fork();
    let middle = spawn(move || {
        loop {
            let length = of_middle.usize(1..20_000);
            let none = ptr::null_mut();
            let (first, second) = (first.as_raw_fd(), second.as_raw_fd());
            let moved = insist(|| {
                // SAFETY: no memory is involved.
                checked(unsafe { libc::splice(first, none, second, none, length, 0) } as i64)
            });
            if moved.unwrap_or_else(|errno| panic!("splice: errno {errno}")) == 0 {
                break;
            }
        }
    });
    read_all(from.as_raw_fd(), 3, total, false, &mut random);
    finish([writer, middle]);
}
