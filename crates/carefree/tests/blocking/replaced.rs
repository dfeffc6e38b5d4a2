//! Numbers that are given to another file while a call waits for what they referred to: the call ends with `EBADF`, and
//! nothing is done to the other file.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicI32, Ordering};

use carefree::spawn;
use libc::c_int;

use crate::common::*;

/// `number` is given to the file `other`.
fn replace(number: c_int, other: c_int) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::dup2(other, number) }, number);
}

#[test]
fn a_lock_that_is_waited_for_is_not_taken_on_the_numbers_next_file() {
    type Locking = fn(c_int, bool) -> Result<i64, c_int>;
    let flock = |fd, waits| {
        let now = if waits { 0 } else { libc::LOCK_NB };
        // SAFETY: no memory is involved.
        checked(unsafe { libc::flock(fd, libc::LOCK_EX | now) })
    };
    let of_open_file = |fd, waits| {
        let command = if waits { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
        // SAFETY: zeros are a lock from the beginning to the end.
        checked(unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_WRLCK as _;
            libc::fcntl(fd, command, &raw const lock)
        })
    };
    for (lock, name) in [(flock as Locking, "flock"), (of_open_file as Locking, "fcntl")] {
        on_one_carrier(move || {
            let (held, next) = (File::new(), File::new());
            let (holder, waiter) = (held.open(), held.open());
            assert_eq!(lock(holder.as_raw_fd(), true), Ok(0));
            let fd = waiter.as_raw_fd();
            let waits = spawn(move || lock(fd, true));
            carefree::sleep(MOMENT);
            replace(fd, next.open().as_raw_fd());
            assert_eq!(waits.join().unwrap(), Err(libc::EBADF), "{name}");
            assert_eq!(lock(next.open().as_raw_fd(), false), Ok(0), "{name}");
        });
    }
}

/// A file with a name of its own, which can be opened several times.
struct File(std::path::PathBuf);

impl File {
    fn new() -> File {
        static COUNT: AtomicI32 = AtomicI32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("carefree-closing-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "").unwrap();
        File(path)
    }

    fn open(&self) -> std::fs::File {
        std::fs::OpenOptions::new().read(true).write(true).open(&self.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_look_for_all_data_sees_none_of_the_numbers_next_file() {
    on_one_carrier(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let ((old, _writer), (new, mut other)) = (pair(), pair());
        other.write_all(b"of another").unwrap();
        let fd = old.as_raw_fd();
        let looks = spawn(move || {
            let mut bytes = [0u8; 4];
            let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
            // SAFETY: room for so many bytes.
            checked(unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), 4, flags) } as i64)
        });
        carefree::sleep(MOMENT);
        replace(fd, new.as_raw_fd());
        assert_eq!(looks.join().unwrap(), Err(libc::EBADF));
    });
}

/// A transfer waits for its source while its target is closed.
#[test]
fn what_is_moved_does_not_go_to_the_numbers_next_file() {
    type Moving = fn(c_int, c_int) -> isize;
    let splice: Moving = |from, to| {
        // SAFETY: no place is given.
        unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), 4, 0) }
    };
    // SAFETY: no memory is involved.
    let tee: Moving = |from, to| unsafe { libc::tee(from, to, 4, 0) };
    let to_pipe = || {
        let (reads, writes) = pipe();
        (std::fs::File::from(reads), writes)
    };
    let to_socket = || {
        let (reads, writes) = UnixStream::pair().unwrap();
        (std::fs::File::from(OwnedFd::from(reads)), OwnedFd::from(writes))
    };
    type Target = fn() -> (std::fs::File, OwnedFd);
    for (moving, target) in [(splice, to_pipe as Target), (splice, to_socket), (tee, to_pipe)] {
        on_one_carrier(move || {
            let (source, writer) = pipe();
            let ((_, old), (mut other, new)) = (target(), target());
            let (from, to) = (source.as_raw_fd(), old.as_raw_fd());
            let moves = spawn(move || checked(moving(from, to) as i64));
            carefree::sleep(MOMENT);
            replace(to, new.as_raw_fd());
            std::fs::File::from(writer).write_all(b"data").unwrap();
            assert_eq!(moves.join().unwrap(), Err(libc::EBADF));
            drop((old, new));
            let mut got = Vec::new();
            other.read_to_end(&mut got).unwrap();
            assert_eq!(got, b"");
            // It is where it was.
            std::fs::File::from(source).read_to_end(&mut got).unwrap();
            assert_eq!(got, b"data");
        });
    }
}

#[test]
fn a_wait_for_a_child_by_its_file_does_not_get_another_child() {
    on_one_carrier(|| {
        let child = |seconds: &str| {
            let child = std::process::Command::new("sleep").arg(seconds).spawn().unwrap();
            // SAFETY: no memory is involved.
            let fd = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) });
            (child, fd.unwrap() as c_int)
        };
        let ((mut old, fd), (mut new, other)) = (child("60"), child("0.5"));
        let waits = spawn(move || {
            // SAFETY: zeros are plain data, and there is room for what is told of a child.
            checked(unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                libc::waitid(libc::P_PIDFD, fd as libc::id_t, &raw mut info, libc::WEXITED)
            })
        });
        carefree::sleep(MOMENT);
        replace(fd, other);
        old.kill().unwrap();
        assert_eq!(waits.join().unwrap(), Err(libc::EBADF));
        assert!(new.wait().unwrap().success());
        old.wait().unwrap();
        for fd in [fd, other] {
            // SAFETY: nothing else has these numbers.
            assert_eq!(unsafe { libc::close(fd) }, 0);
        }
    });
}

/// (Over io_uring the kernel waits for the room, as the reactor has told it to.)
#[test]
fn a_connection_that_waits_for_room_is_not_made_by_the_numbers_next_file() {
    on_one_carrier(|| {
        let path = File::new();
        std::fs::remove_file(&path.0).unwrap();
        let listener = UnixListener::bind(&path.0).unwrap();
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let _first = UnixStream::connect(&path.0).unwrap();
        let address = path.0.clone();
        // SAFETY: no memory is involved, in both.
        let socket = || unsafe {
            OwnedFd::from_raw_fd(libc::socket(
                libc::AF_UNIX,
                libc::SOCK_STREAM | libc::SOCK_CLOEXEC,
                0,
            ))
        };
        let (old, new) = (socket(), socket());
        let fd = old.as_raw_fd();
        let connects = spawn(move || {
            // SAFETY: zeros are an address without a name.
            let mut place: libc::sockaddr_un = unsafe { std::mem::zeroed() };
            place.sun_family = libc::AF_UNIX as _;
            let name = address.to_str().unwrap().as_bytes();
            for (to, from) in place.sun_path.iter_mut().zip(name) {
                *to = *from as _;
            }
            let length = size_of_val(&place) as libc::socklen_t;
            // SAFETY: an address of that length.
            checked(unsafe { libc::connect(fd, (&raw const place).cast(), length) })
        });
        carefree::sleep(MOMENT);
        replace(fd, new.as_raw_fd());
        let _ = listener.accept().unwrap();
        assert_eq!(connects.join().unwrap(), Err(libc::EBADF));
    });
}
