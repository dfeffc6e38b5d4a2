//! Files that are closed while fibers wait for them.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree::spawn;

use super::ends::{make_pair, make_pipe, make_stream};
use super::{finish, micros};
use crate::plan;
use crate::stream::{By, checked, fill, is_want, read_all, write, write_all};

/// Moves a file to a high descriptor number, which the kernel gives to no other file by itself.
fn high(fd: OwnedFd) -> RawFd {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let least = 500 + (NEXT.fetch_add(1, Ordering::Relaxed) % 400) as i32;
    same_number(fd, least)
}

/// Moves a file to the lowest free number from `least` on.
fn same_number(fd: OwnedFd, least: RawFd) -> RawFd {
    // SAFETY: no memory is involved.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    checked(number).unwrap() as RawFd
}

/// Files that are closed while fibers wait for them, and whose numbers are used again at once.
pub(super) fn closes(mut random: fastrand::Rng) {
    for _ in 0..random.u8(1..8) {
        let (from, to, is_socket) = make_stream(&mut random);
        let fd = high(from);
        let sent = random.u64(0..3) * 10;
        let begun = Arc::new(AtomicU64::new(0));
        let count = random.u64(1..4);
        let readers: Vec<_> = (0..count)
            .map(|_| {
                let begun = Arc::clone(&begun);
                spawn(move || {
                    let mut byte = [0u8; 10];
                    begun.fetch_add(1, Ordering::SeqCst);
                    // SAFETY: room for as many.
                    let read = unsafe { libc::read(fd, byte.as_mut_ptr().cast(), byte.len()) };
                    let answer = checked(read as i64);
                    let content = byte;
                    carefree::yield_now();
                    assert_eq!(
                        content,
                        std::hint::black_box(byte),
                        "the buffer changed after the call"
                    );
                    (answer, content)
                })
            })
            .collect();
        while begun.load(Ordering::SeqCst) < count {
            carefree::yield_now();
        }
        // If all of them run on the carrier that runs this, each has parked or has its answer.
        let one_carrier = plan::carriers() == 1 && carefree::metrics().added == 0;
        carefree::sleep(micros(&mut random, 200));
        if sent > 0 {
            let put = write(to.as_raw_fd(), 6, 0, sent as usize, By::Plain, &mut random);
            assert_eq!(put, Ok(sent as usize));
        }
        if random.bool() {
            carefree::sleep(micros(&mut random, 200));
        }
        // SAFETY: no memory is involved; the number is this fiber's.
        assert_eq!(unsafe { libc::close(fd) }, 0);
        let (new, other) = match is_socket {
            true => make_pair(libc::SOCK_STREAM, &mut random),
            false => make_pipe(&mut random),
        };
        // Then another file may take the number now, and the readers of the old file must get nothing from it.
        let number = if one_carrier { same_number(new, fd) } else { high(new) };
        assert!(!one_carrier || number == fd);
        let mut of_writer = random.fork();
        let writer =
            spawn(move || write_all(other.as_raw_fd(), 9, 3000, is_socket, &mut of_writer));
        let mut old = 0;
        for reader in readers {
            let (answer, content) = reader.join().unwrap();
            match answer {
                Ok(got) => {
                    assert!(got > 0, "a read returns nothing before the end");
                    let at = (0..sent).find(|&at| {
                        let mut wanted = vec![0; got];
                        fill(6, at, &mut wanted);
                        wanted == content[..got]
                    });
                    assert!(at.is_some(), "{:?} was not written there", &content[..got]);
                    old += got as u64;
                }
                Err(libc::EBADF) => {}
                Err(errno) if is_want(errno) => {}
                Err(errno) => panic!("read of a closed file: errno {errno}"),
            }
        }
        assert!(old <= sent, "{old} of {sent}");
        read_all(number, 9, 3000, is_socket, &mut random);
        // SAFETY: no memory is involved; the number is this fiber's.
        assert_eq!(unsafe { libc::close(number) }, 0);
        finish([writer]);
    }
}
