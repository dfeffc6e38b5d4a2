//! Reused descriptor numbers: an operation that waits for a file is never served by another file that
//! now has its number.

use super::kit::*;
use super::modes::holds_files;
use carefree_reactor::Kind;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

over_all! {
    a_number_closed_and_reused
    a_number_reused_while_the_old_file_lives_on
    a_number_reused_without_notice
    an_idle_number_reused
}

/// Makes `number` refer to `socket`; the file that it referred to before is closed.
fn give_number(socket: UnixStream, number: &OwnedFd) {
    // SAFETY: the number stays open and owned.
    let result = unsafe { libc::dup2(socket.as_raw_fd(), number.as_raw_fd()) };
    assert_eq!(result, number.as_raw_fd());
}

struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

fn a_number_closed_and_reused(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut old_peer) = UnixStream::pair().unwrap();
    let number = at_a_number_of_its_own(here);
    let (mut first, mut second) = ([0; 8], [0; 8]);
    bench.start(1, read(&number, &mut first));
    bench.is_waiting(1);
    let (new, mut new_peer) = UnixStream::pair().unwrap();
    give_number(new, &number);
    bench.start(2, read(&number, &mut second));
    bench.poll();
    // A ring keeps the old file open while an operation waits for it.
    let _ = old_peer.write_all(b"old");
    new_peer.write_all(b"new!").unwrap();
    assert_eq!(bench.finish(2), 4);
    assert_eq!(&second[..4], b"new!");
    match kind {
        Kind::Uring if holds_files(kind) => {
            assert_eq!((bench.finish(1), &first[..3]), (3, &b"old"[..]));
        }
        // The mock waits for numbers, and so is served by the files that have them. Its programs
        // close no file that another fiber waits for.
        Kind::Mock => bench.driver.cancel(1),
        Kind::Epoll | Kind::Uring => assert_eq!(bench.finish(1), -libc::EBADF),
    }
    if kind == Kind::Mock {
        assert_eq!(bench.finish(1), -libc::ECANCELED);
    }
}

fn a_number_reused_while_the_old_file_lives_on(kind: Kind) {
    if kind == Kind::Mock {
        return;
    }
    let mut bench = Bench::new(kind);
    let (here, mut old_peer) = UnixStream::pair().unwrap();
    let elsewhere = here.try_clone().unwrap();
    let number = at_a_number_of_its_own(here);
    let (mut first, mut second) = ([0; 8], [0; 8]);
    bench.start(1, read(&number, &mut first));
    bench.is_waiting(1);
    let (new, mut new_peer) = UnixStream::pair().unwrap();
    give_number(new, &number);
    bench.start(2, read(&number, &mut second));
    bench.poll();
    old_peer.write_all(b"old").unwrap();
    bench.is_waiting(2);
    new_peer.write_all(b"new!").unwrap();
    assert_eq!(bench.finish(2), 4);
    assert_eq!(&second[..4], b"new!");
    match bench.finish(1) {
        3 => assert_eq!(&first[..3], b"old"),
        result => assert_eq!((result, holds_files(kind)), (-libc::EBADF, false)),
    }
    drop(elsewhere);
}

fn a_number_reused_without_notice(kind: Kind) {
    if kind == Kind::Mock {
        return;
    }
    let mut bench = Bench::new(kind);
    let (here, mut old_peer) = UnixStream::pair().unwrap();
    let elsewhere = here.try_clone().unwrap();
    let number = at_a_number_of_its_own(here);
    let mut buffer = [0; 8];
    bench.start(1, read(&number, &mut buffer));
    bench.is_waiting(1);
    let (new, mut new_peer) = UnixStream::pair().unwrap();
    give_number(new, &number);
    // Both files have data, and the operation is on the old one.
    new_peer.write_all(b"new!").unwrap();
    old_peer.write_all(b"old").unwrap();
    match bench.finish(1) {
        3 => assert_eq!(&buffer[..3], b"old"),
        result => assert_eq!((result, holds_files(kind)), (-libc::EBADF, false)),
    }
    // The new file is unaffected.
    assert_eq!(bench.run(read(&number, &mut buffer)), 4);
    assert_eq!(&buffer[..4], b"new!");
    drop(elsewhere);
}

fn an_idle_number_reused(kind: Kind) {
    let mut bench = Bench::new(kind);
    let (here, mut old_peer) = UnixStream::pair().unwrap();
    let number = at_a_number_of_its_own(here);
    let mut buffer = [0; 8];
    bench.start(1, read(&number, &mut buffer));
    bench.poll();
    old_peer.write_all(b"1").unwrap();
    assert_eq!(bench.finish(1), 1);
    // No operation waits when the number is reused, twice, and in between it is unused.
    let raw = number.as_raw_fd();
    drop(number);
    assert_eq!(bench.run(read(&Number(raw), &mut buffer)), -libc::EBADF);
    for text in [b"12", b"34"] {
        let (new, mut new_peer) = UnixStream::pair().unwrap();
        // SAFETY: the number is unused, and no other test gets it.
        let number = unsafe {
            assert_eq!(libc::dup2(new.as_raw_fd(), raw), raw);
            OwnedFd::from_raw_fd(raw)
        };
        bench.start(2, read(&number, &mut buffer));
        bench.is_waiting(2);
        new_peer.write_all(text).unwrap();
        assert_eq!(bench.finish(2), 2);
        assert_eq!(&buffer[..2], text);
    }
}
