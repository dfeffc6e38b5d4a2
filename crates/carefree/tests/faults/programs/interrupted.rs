//! Calls that end by a limit or a cancellation.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree::{spawn, timeout_with_value};

use super::ends::{accept, connect, listen, make_stream};
use super::{finish, micros};
use crate::stream::{By, checked, fill, insist, read, read_all, write, write_all};

/// Reads and writes that are cut short again and again.
pub(super) fn timeouts(mut random: fastrand::Rng) {
    let (from, to, is_socket) = make_stream(&mut random);
    let total = random.u64(1..60_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || {
        let mut place = 0;
        while place < total {
            let length = of_writer.u64(1..=20_000.min(total - place)) as usize;
            let by = By::draw(&mut of_writer, is_socket);
            let limit = micros(&mut of_writer, 400);
            let (put, result) = timeout_with_value(limit, || {
                write(to.as_raw_fd(), 4, place, length, by, &mut of_writer)
            });
            match put {
                Ok(put) => {
                    assert!(
                        result.is_ok(),
                        "the limit ended the call, but {put} bytes were written"
                    );
                    place += put as u64;
                }
                Err(libc::ETIMEDOUT) => assert!(result.is_err()),
                Err(errno) => panic!("write: errno {errno} by {by:?}"),
            }
            if of_writer.bool() {
                carefree::sleep(micros(&mut of_writer, 400));
            }
        }
    });
    let mut place = 0;
    loop {
        let by = By::draw(&mut random, is_socket);
        let limit = micros(&mut random, 400);
        let (got, result) =
            timeout_with_value(limit, || read(from.as_raw_fd(), 4, place, by, &mut random));
        match got {
            Ok(got) => {
                assert!(result.is_ok(), "the limit ended the call, but {got} bytes were read");
                place += got as u64;
                if got == 0 {
                    break;
                }
            }
            Err(libc::ETIMEDOUT) => assert!(result.is_err()),
            Err(errno) => panic!("read: errno {errno} by {by:?}"),
        }
    }
    assert_eq!(place, total);
    finish([writer]);
}

/// Readers that are cancelled. No byte is read twice or lost.
pub(super) fn cancels(mut random: fastrand::Rng) {
    let (from, to, is_socket) = make_stream(&mut random);
    let from = Arc::new(from);
    let total = random.u64(1..20_000);
    let mut of_writer = random.fork();
    let writer = spawn(move || {
        let mut place = 0;
        while place < total {
            carefree::sleep(micros(&mut of_writer, 200));
            let length = of_writer.u64(1..=2000.min(total - place)) as usize;
            let put = write(to.as_raw_fd(), 5, place, length, By::Plain, &mut of_writer);
            place += put.unwrap() as u64;
        }
    });
    let mut place = 0;
    loop {
        let (from, mut of_reader) = (Arc::clone(&from), random.fork());
        let by = By::draw(&mut random, is_socket);
        let reader = spawn(move || read(from.as_raw_fd(), 5, place, by, &mut of_reader));
        if random.u8(0..4) > 0 {
            carefree::sleep(micros(&mut random, 300));
        }
        reader.cancel();
        match reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(0) => break,
            Ok(got) => place += got as u64,
            Err(libc::ECANCELED) => {}
            Err(errno) => panic!("read: errno {errno} by {by:?}"),
        }
    }
    assert_eq!(place, total);
    finish([writer]);
}

/// Accepts that end by a limit or a cancellation: no connection is lost.
pub(super) fn accepts(mut random: fastrand::Rng) {
    let (listener, address) = listen();
    let listener = Arc::new(listener);
    let clients = random.u64(1..6);
    let mut fibers = Vec::new();
    for client in 0..clients {
        let mut random = random.fork();
        fibers.push(spawn(move || {
            carefree::sleep(micros(&mut random, 600));
            let connection = connect(address);
            let fd = connection.as_raw_fd();
            let put = write(fd, client, 0, 100, By::Plain, &mut random);
            assert_eq!(put, Ok(100));
            read_all(fd, 100, 50, true, &mut random);
        }));
    }
    let served = Arc::new(AtomicU64::new(0));
    let mut accepted = 0;
    while accepted < clients {
        let fd = listener.as_raw_fd();
        let connection = if random.bool() {
            timeout_with_value(micros(&mut random, 300), || accept(fd)).0
        } else {
            let accepting = spawn(move || accept(fd));
            carefree::sleep(micros(&mut random, 300));
            accepting.cancel();
            accepting.join().unwrap()
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(libc::ETIMEDOUT | libc::ECANCELED) => continue,
            Err(errno) => panic!("accept: errno {errno}"),
        };
        accepted += 1;
        let (served, mut random) = (Arc::clone(&served), random.fork());
        fibers.push(spawn(move || {
            let fd = connection.as_raw_fd();
            let mut content = [0u8; 100];
            let at = content.as_mut_ptr().cast();
            // SAFETY: room for as many.
            let got =
                insist(|| checked(unsafe { libc::recv(fd, at, 100, libc::MSG_WAITALL) } as i64));
            // A call that runs out of memory after a part returns the part.
            let mut got = got.unwrap();
            while got < 100 {
                let (at, left) = (content[got..].as_mut_ptr().cast(), 100 - got);
                // SAFETY: room for as many.
                let more =
                    insist(|| checked(unsafe { libc::recv(fd, at, left, 0) } as i64)).unwrap();
                assert!(more > 0);
                got += more;
            }
            let client = (0..clients).find(|&client| {
                let mut wanted = [0; 100];
                fill(client, 0, &mut wanted);
                wanted == content
            });
            let client = client.expect("the content is one of the clients'");
            served.fetch_add(1 << (8 * client), Ordering::SeqCst);
            write_all(fd, 100, 50, true, &mut random);
        }));
    }
    finish(fibers);
    let each = (0..clients).fold(0, |all, client| all | 1 << (8 * client));
    assert_eq!(served.load(Ordering::SeqCst), each, "each client is served once");
}

pub(super) fn sleeps(mut random: fastrand::Rng) {
    let fibers = (0..random.u8(1..20)).map(|_| {
        let mut random = random.fork();
        spawn(move || {
            for _ in 0..5 {
                let limit = micros(&mut random, 300);
                let span = micros(&mut random, 300);
                let _ = carefree::timeout(limit, || carefree::sleep(span));
            }
        })
    });
    finish(fibers.collect::<Vec<_>>());
}
