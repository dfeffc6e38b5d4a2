//! What the next process must be given at once: addresses and locks.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::size_of;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::case::{Case, Look, Place};
use crate::process::checked;

/// Fibers that accept at the same time.
const ACCEPTORS: usize = 8;
/// Connections that are alive.
const CONNECTIONS: usize = 4;

fn nothing(_: &Place) -> Box<dyn FnOnce() -> Look> {
    unreachable!("replaced by each case")
}

/// A case in which the next process only calls `look`.
macro_rules! then {
    ($look:expr) => {
        |place: &Place| {
            let place = place.clone();
            Box::new(move || Box::new(move || $look(&place)) as Look)
        }
    };
}

const BASE: Case = Case { name: "", must_be_free: true, prepare: nothing, wait: |_, _| {} };

fn bind_listener(place: &Place) -> io::Result<()> {
    TcpListener::bind(place.address).map(drop)
}

/// Fibers that accept, and connections that are read from. The next process listens as std does.
pub(crate) const TCP_LISTENER: Case = Case {
    name: "TCP listener",
    prepare: then!(bind_listener),
    wait: |on, place| {
        let listener = Arc::new(TcpListener::bind(place.address).unwrap());
        for _ in 0..ACCEPTORS {
            let listener = Arc::clone(&listener);
            on.spawn(move || {
                loop {
                    let (mut stream, _) = listener.accept().unwrap();
                    on.spawn(move || drop(stream.read(&mut [0; 64])));
                }
            });
        }
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(place.address).unwrap();
            on.spawn(move || drop(stream.read(&mut [0; 64])));
        }
    },
    ..BASE
};

/// The next process listens without `SO_REUSEADDR`: there has been no connection.
pub(crate) const TCP_LISTENER_POLLED: Case = Case {
    name: "TCP listener, polled",
    prepare: then!(|place: &Place| {
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM)?;
        bind(socket.as_raw_fd(), place.address)?;
        // SAFETY: numbers.
        checked(unsafe { libc::listen(socket.as_raw_fd(), 8) }).map(drop)
    }),
    wait: |on, place| {
        let listener = TcpListener::bind(place.address).unwrap();
        on.spawn(move || poll(listener.as_raw_fd(), libc::POLLIN));
    },
    ..BASE
};

fn bind_datagrams(place: &Place) -> io::Result<()> {
    UdpSocket::bind(place.address).map(drop)
}

pub(crate) const UDP_SOCKET: Case = Case {
    name: "UDP socket",
    prepare: then!(bind_datagrams),
    wait: |on, place| {
        let socket = Arc::new(UdpSocket::bind(place.address).unwrap());
        for _ in 0..ACCEPTORS {
            let socket = Arc::clone(&socket);
            on.spawn(move || drop(socket.recv_from(&mut [0; 64])));
        }
    },
    ..BASE
};

pub(crate) const UDP_SOCKET_POLLED: Case = Case {
    name: "UDP socket, polled",
    prepare: then!(bind_datagrams),
    wait: |on, place| {
        let socket = UdpSocket::bind(place.address).unwrap();
        on.spawn(move || poll(socket.as_raw_fd(), libc::POLLIN));
    },
    ..BASE
};

/// A socket of `AF_UNIX` bound to an abstract name of the case's.
fn abstract_socket(place: &Place, kind: i32) -> io::Result<OwnedFd> {
    let socket = socket(libc::AF_UNIX, kind)?;
    let name = place.path.as_os_str().as_bytes();
    // SAFETY: plain old data.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let length = (size_of::<u16>() + 1 + name.len()) as u32;
    // SAFETY: an address of at least that length.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    if kind != libc::SOCK_DGRAM {
        // SAFETY: numbers.
        checked(unsafe { libc::listen(socket.as_raw_fd(), 8) })?;
    }
    Ok(socket)
}

fn accept(listener: OwnedFd) {
    // SAFETY: no address is asked for.
    unsafe { libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut()) };
}

pub(crate) const ABSTRACT_LISTENER: Case = Case {
    name: "abstract listener",
    prepare: then!(|place| abstract_socket(place, libc::SOCK_STREAM).map(drop)),
    wait: |on, place| {
        let listener = abstract_socket(place, libc::SOCK_STREAM).unwrap();
        on.spawn(move || accept(listener));
    },
    ..BASE
};

pub(crate) const ABSTRACT_DATAGRAMS: Case = Case {
    name: "abstract datagram socket",
    prepare: then!(|place| abstract_socket(place, libc::SOCK_DGRAM).map(drop)),
    wait: |on, place| {
        let mut socket = File::from(abstract_socket(place, libc::SOCK_DGRAM).unwrap());
        on.spawn(move || drop(socket.read(&mut [0; 64])));
    },
    ..BASE
};

pub(crate) const ABSTRACT_PACKETS: Case = Case {
    name: "abstract packet listener",
    prepare: then!(|place| abstract_socket(place, libc::SOCK_SEQPACKET).map(drop)),
    wait: |on, place| {
        let listener = abstract_socket(place, libc::SOCK_SEQPACKET).unwrap();
        on.spawn(move || accept(listener));
    },
    ..BASE
};

/// Both ends of a FIFO; each process has the same file by its name.
pub(crate) fn fifo(path: &Path) -> File {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a C string.
    unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn flock(file: &File) -> io::Result<()> {
    // SAFETY: numbers.
    checked(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) }).map(drop)
}

pub(crate) const FLOCK_OF_A_FIFO: Case = Case {
    name: "flock of a FIFO",
    prepare: then!(|place: &Place| flock(&fifo(&place.path))),
    wait: |on, place| {
        let mut file = fifo(&place.path);
        flock(&file).unwrap();
        on.spawn(move || drop(file.read(&mut [0; 64])));
    },
    ..BASE
};

/// A lock on all of a file.
fn record(file: &File, command: i32) -> io::Result<()> {
    // SAFETY: plain old data.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: the kernel reads a lock.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const lock) }).map(drop)
}

pub(crate) const OPEN_FILE_LOCK_OF_A_FIFO: Case = Case {
    name: "open file description lock",
    prepare: then!(|place: &Place| record(&fifo(&place.path), libc::F_OFD_SETLK)),
    wait: |on, place| {
        let mut file = fifo(&place.path);
        record(&file, libc::F_OFD_SETLK).unwrap();
        on.spawn(move || drop(file.read(&mut [0; 64])));
    },
    ..BASE
};

/// A lock of the process, which ends with it, whatever still holds the file.
pub(crate) const RECORD_LOCK: Case = Case {
    name: "POSIX record lock",
    prepare: then!(|place: &Place| record(&fifo(&place.path), libc::F_SETLK)),
    wait: |on, place| {
        let mut file = fifo(&place.path);
        record(&file, libc::F_SETLK).unwrap();
        on.spawn(move || drop(file.read(&mut [0; 64])));
    },
    ..BASE
};

/// A pseudoterminal of which the neighbour has the master, as a terminal's window has.
pub(crate) fn terminal(link: &Path) -> File {
    // SAFETY: numbers, and a place for the name.
    unsafe {
        let master = checked(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY)).unwrap();
        checked(libc::grantpt(master)).unwrap();
        checked(libc::unlockpt(master)).unwrap();
        let mut name = [0u8; 64];
        checked(-libc::ptsname_r(master, name.as_mut_ptr().cast(), name.len())).unwrap();
        let name = std::ffi::CStr::from_bytes_until_nul(&name).unwrap();
        std::os::unix::fs::symlink(name.to_str().unwrap(), link).unwrap();
        File::from_raw_fd(master)
    }
}

pub(crate) fn open(path: &Path) -> File {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path).unwrap()
}

/// A lock by `flock` on a terminal, as programs take on a serial line.
pub(crate) const FLOCK_OF_A_TERMINAL: Case = Case {
    name: "flock of a terminal",
    prepare: |place| {
        let master = terminal(&place.path);
        let path = place.path.clone();
        Box::new(move || {
            Box::new(move || {
                let _alive = &master;
                flock(&open(&path))
            })
        })
    },
    wait: |on, place| {
        let mut file = open(&place.path);
        flock(&file).unwrap();
        on.spawn(move || drop(file.read(&mut [0; 64])));
    },
    ..BASE
};

/// From a port of the program's choice, to an address that does not answer. The next process takes
/// the same port.
pub(crate) const CONNECTION_BEING_MADE: Case = Case {
    name: "port of a connection being made",
    prepare: |place| {
        let address = place.address;
        Box::new(move || {
            Box::new(move || {
                let socket = socket(libc::AF_INET, libc::SOCK_STREAM)?;
                bind(socket.as_raw_fd(), address)
            })
        })
    },
    wait: |on, place| {
        // A listener whose queue is full answers nothing.
        let listener = socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        bind(listener.as_raw_fd(), any).unwrap();
        // SAFETY: numbers.
        checked(unsafe { libc::listen(listener.as_raw_fd(), 0) }).unwrap();
        let listener = TcpListener::from(listener);
        let full = listener.local_addr().unwrap();
        let ahead = TcpStream::connect(full).unwrap();
        let mine = socket(libc::AF_INET, libc::SOCK_STREAM).unwrap();
        bind(mine.as_raw_fd(), place.address).unwrap();
        on.spawn(move || {
            let _alive = (listener, ahead);
            let to = ipv4(full);
            let length = size_of::<libc::sockaddr_in>() as u32;
            // SAFETY: an address of that length.
            unsafe { libc::connect(mine.as_raw_fd(), (&raw const to).cast(), length) };
        });
    },
    ..BASE
};

fn socket(domain: i32, kind: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers; the descriptor is new.
    unsafe {
        let fd = checked(libc::socket(domain, kind | libc::SOCK_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn ipv4(address: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(address) = address else { unreachable!("the test's own") };
    // SAFETY: plain old data.
    let mut raw: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    raw.sin_family = libc::AF_INET as u16;
    raw.sin_port = address.port().to_be();
    raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
    raw
}

fn bind(fd: RawFd, address: SocketAddr) -> io::Result<()> {
    let address = ipv4(address);
    let length = size_of::<libc::sockaddr_in>() as u32;
    // SAFETY: an address of that length.
    checked(unsafe { libc::bind(fd, (&raw const address).cast(), length) }).map(drop)
}

/// Waits for one of `events`.
fn poll(fd: RawFd, events: i16) {
    let mut file = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut file, 1, -1) };
}
