//! Calls that move bytes, messages and connections.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

use super::*;

/// The reading end and the writing end.
type Ends = (OwnedFd, OwnedFd);

fn pipe() -> Ends {
    let mut ends = [0; 2];
    // SAFETY: there is room for the answer, and the files are ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

fn stream() -> Ends {
    let (from, to) = UnixStream::pair().unwrap();
    (from.into(), to.into())
}

fn datagrams() -> Ends {
    let (from, to) = UnixDatagram::pair().unwrap();
    (from.into(), to.into())
}

fn set_non_blocking(fd: c_int) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}

fn read_some(fd: c_int, most: usize) -> Taken {
    let mut room = vec![0u8; most];
    // SAFETY: there is as much room.
    counted(unsafe { libc::read(fd, room.as_mut_ptr().cast(), most) } as i64)
}

/// Reads all that is there.
fn drain(fd: c_int) -> usize {
    set_non_blocking(fd);
    std::iter::from_fn(|| read_some(fd, 1 << 16).ok().filter(|read| *read > 0)).sum()
}

/// Bytes arrive one by one, and are received by a call.
fn bytes((from, to): Ends, receive: fn(c_int) -> Taken) -> Option<Scenario> {
    let (from, mut to) = (Arc::new(from), fs::File::from(to));
    let fd = Arc::clone(&from);
    Some(Scenario::new(
        move || to.write_all(b"x").unwrap(),
        move || receive(fd.as_raw_fd()),
        move || drain(from.as_raw_fd()),
    ))
}

/// How much one call sends.
const CHUNK: usize = 4096;
static CHUNKS: [u8; CHUNK] = [1; CHUNK];

/// Room arrives, and a call fills it. What the call reports as sent comes out at the other end.
fn room(
    (from, to): Ends,
    send: impl Fn(c_int) -> Taken + Send + Sync + 'static,
) -> Option<Scenario> {
    let sent = Arc::new(AtomicUsize::new(0));
    let drained = Arc::new(AtomicUsize::new(0));
    let from = Arc::new(from);
    let (end, arrived) = (Arc::clone(&from), Arc::clone(&drained));
    let said = Arc::clone(&sent);
    let to = Arc::new(to);
    let into = Arc::clone(&to);
    set_non_blocking(from.as_raw_fd());
    Some(Scenario::new(
        move || {
            arrived.fetch_add(read_some(end.as_raw_fd(), CHUNK).unwrap_or(0), Ordering::SeqCst);
        },
        move || {
            let more = send(into.as_raw_fd())?;
            said.fetch_add(more, Ordering::SeqCst);
            Ok(0)
        },
        move || {
            let rest = drain(from.as_raw_fd());
            drop(to);
            let [sent, drained] = [sent, drained].map(|count| count.load(Ordering::SeqCst));
            assert_eq!(drained + rest, sent, "bytes that came out, of those sent");
            60
        },
    ))
}

pub(super) fn read() -> Option<Scenario> {
    bytes(pipe(), |fd| read_some(fd, 8))
}

pub(super) fn readv() -> Option<Scenario> {
    bytes(stream(), |fd| {
        let mut room = [0u8; 8];
        let one = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 8 };
        // SAFETY: there is as much room.
        counted(unsafe { libc::readv(fd, &raw const one, 1) } as i64)
    })
}

pub(super) fn read_checked() -> Option<Scenario> {
    unsafe extern "C" {
        fn __read_chk(fd: c_int, room: *mut c_void, length: usize, size: usize) -> isize;
    }
    bytes(pipe(), |fd| {
        let mut room = [0u8; 8];
        // SAFETY: there is as much room.
        counted(unsafe { __read_chk(fd, room.as_mut_ptr().cast(), 8, 8) } as i64)
    })
}

pub(super) fn syscall() -> Option<Scenario> {
    bytes(pipe(), |fd| {
        let mut room = [0u8; 8];
        // SAFETY: there is as much room.
        counted(unsafe { libc::syscall(libc::SYS_read, fd, room.as_mut_ptr(), 8usize) })
    })
}

pub(super) fn recv() -> Option<Scenario> {
    bytes(datagrams(), |fd| {
        let mut room = [0u8; 8];
        // SAFETY: there is as much room.
        counted(unsafe { libc::recv(fd, room.as_mut_ptr().cast(), 8, 0) } as i64)
    })
}

pub(super) fn recvmmsg() -> Option<Scenario> {
    bytes(datagrams(), |fd| {
        let mut room = [[0u8; 8]; 2];
        let mut buffers = room
            .each_mut()
            .map(|room| libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: 8 });
        // SAFETY: zeros are headers without anything, which then describe the room for one each.
        counted(unsafe {
            let mut messages: [libc::mmsghdr; 2] = mem::zeroed();
            for (message, buffer) in messages.iter_mut().zip(&mut buffers) {
                message.msg_hdr.msg_iov = buffer;
                message.msg_hdr.msg_iovlen = 1;
            }
            libc::recvmmsg(fd, messages.as_mut_ptr(), 2, 0, null_mut())
        })
    })
}

pub(super) fn splice() -> Option<Scenario> {
    bytes(pipe(), |fd| {
        let (from, to) = pipe();
        let null = null_mut();
        // SAFETY: no memory is involved.
        let moved = unsafe { libc::splice(fd, null, to.as_raw_fd(), null, 8, 0) };
        let moved = counted(moved as i64)?;
        assert_eq!(drain(from.as_raw_fd()), moved);
        Ok(moved)
    })
}

/// Reads after a wait that has found something.
fn read_after(fd: c_int, waited: c_int) -> Taken {
    assert_eq!(counted(waited)?, 1);
    read_some(fd, 8)
}

pub(super) fn poll() -> Option<Scenario> {
    bytes(pipe(), |fd| {
        let mut file = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: an array of one.
        read_after(fd, unsafe { libc::poll(&raw mut file, 1, -1) })
    })
}

pub(super) fn select() -> Option<Scenario> {
    bytes(pipe(), |fd| {
        // SAFETY: a set with the number in it.
        let selected = unsafe {
            let mut set: libc::fd_set = mem::zeroed();
            assert!((fd as usize) < libc::FD_SETSIZE);
            libc::FD_SET(fd, &raw mut set);
            libc::select(fd + 1, &raw mut set, null_mut(), null_mut(), null_mut())
        };
        read_after(fd, selected)
    })
}

pub(super) fn epoll_wait() -> Option<Scenario> {
    bytes(pipe(), |fd| {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: an event to say what is waited for, and room for one.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let number = epoll.as_raw_fd();
            assert_eq!(libc::epoll_ctl(number, libc::EPOLL_CTL_ADD, fd, &raw mut event), 0);
            read_after(fd, libc::epoll_wait(number, &raw mut event, 1, -1))
        }
    })
}

pub(super) fn write() -> Option<Scenario> {
    room(pipe(), |fd| {
        // SAFETY: as many bytes.
        counted(unsafe { libc::write(fd, CHUNKS.as_ptr().cast(), CHUNK) } as i64)
    })
}

pub(super) fn send() -> Option<Scenario> {
    room(stream(), |fd| {
        // SAFETY: as many bytes.
        counted(unsafe { libc::send(fd, CHUNKS.as_ptr().cast(), CHUNK, 0) } as i64)
    })
}

pub(super) fn sendfile() -> Option<Scenario> {
    let file = unnamed();
    file.set_len(16 << 20).unwrap();
    let sent = AtomicUsize::new(0);
    room(stream(), move |fd| {
        // SAFETY: no memory is involved.
        let (more, place) = unsafe {
            let more = libc::sendfile(fd, file.as_raw_fd(), null_mut(), CHUNK);
            (counted(more as i64), libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR))
        };
        let before = sent.fetch_add(*more.as_ref().unwrap_or(&0), Ordering::SeqCst);
        assert_eq!(
            before + more.unwrap_or(0),
            place as usize,
            "where the file is, of what was sent"
        );
        more
    })
}

pub(super) fn eventfd_read() -> Option<Scenario> {
    // SAFETY: no memory is involved.
    let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let fd = counter.as_raw_fd();
    let read = move || {
        let mut count = 0;
        // SAFETY: room for the answer.
        counted(unsafe { libc::eventfd_read(fd, &raw mut count) }).map(|_| count as usize)
    };
    Some(Scenario::new(
        // SAFETY: no memory is involved.
        move || assert_eq!(unsafe { libc::eventfd_write(fd, 1) }, 0),
        read,
        move || {
            set_non_blocking(counter.as_raw_fd());
            read().unwrap_or(0)
        },
    ))
}

pub(super) fn accept() -> Option<Scenario> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let fd = listener.as_raw_fd();
    let mut clients = Vec::new();
    let accept = move || {
        // SAFETY: no memory is involved.
        let connection = counted(unsafe { libc::accept(fd, null_mut(), null_mut()) })?;
        // SAFETY: just accepted.
        drop(unsafe { OwnedFd::from_raw_fd(connection as c_int) });
        Ok(1)
    };
    Some(Scenario::new(
        move || clients.push(TcpStream::connect(address).unwrap()),
        accept,
        move || {
            listener.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| accept().ok()).count()
        },
    ))
}

/// Connections to a listener that has room for few.
pub(super) fn connect() -> Option<Scenario> {
    use std::os::linux::net::SocketAddrExt;
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("carefree-cuts-{}-{number}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 1) }, 0);
    listener.set_nonblocking(true).unwrap();
    let (accepted, made) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let accept = {
        let accepted = Arc::clone(&accepted);
        move |listener: &std::os::unix::net::UnixListener| {
            let came = listener.accept().is_ok();
            accepted.fetch_add(usize::from(came), Ordering::SeqCst);
            came
        }
    };
    let giving = listener.try_clone().unwrap();
    let giver = accept.clone();
    let making = Arc::clone(&made);
    Some(Scenario::new(
        move || _ = giver(&giving),
        move || {
            // A connection that is closed before it is accepted is accepted all the same.
            UnixStream::connect_addr(&address).map_err(|error| match error.raw_os_error() {
                Some(errno) => errno,
                None => panic!("{error}"),
            })?;
            making.fetch_add(1, Ordering::SeqCst);
            Ok(0)
        },
        move || {
            while accept(&listener) {}
            let [made, accepted] = [made, accepted].map(|count| count.load(Ordering::SeqCst));
            // A connection that was begun may be made although the call was cut short.
            assert!(accepted >= made, "{accepted} connections were accepted of {made}");
            60
        },
    ))
}
