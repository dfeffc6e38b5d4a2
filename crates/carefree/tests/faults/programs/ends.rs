//! Ends of pipes, sockets and connections, for the programs.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::stream::{checked, insist};

pub(super) fn owned(fd: usize) -> OwnedFd {
    // SAFETY: just made, owned by nothing else.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Both ends of a pipe; what is written to the second one is read from the first.
pub(super) fn make_pipe(random: &mut fastrand::Rng) -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }).unwrap();
    if random.bool() {
        // SAFETY: no memory is involved.
        let _ = unsafe { libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 4096) };
    }
    let [read, write] = ends.map(|end| owned(end as usize));
    (read, write)
}

pub(super) fn make_pair(kind: i32, random: &mut fastrand::Rng) -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: room for two.
    checked(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }).unwrap();
    if random.bool() {
        let room = 4096i32;
        for end in ends {
            let (at, length) = ((&raw const room).cast(), size_of::<i32>() as u32);
            // SAFETY: the option is a number.
            unsafe { libc::setsockopt(end, libc::SOL_SOCKET, libc::SO_SNDBUF, at, length) };
        }
    }
    let [here, there] = ends.map(|end| owned(end as usize));
    (here, there)
}

/// A stream from the second end to the first, through a pipe or sockets, and whether it is sockets.
pub(super) fn make_stream(random: &mut fastrand::Rng) -> (OwnedFd, OwnedFd, bool) {
    if random.bool() {
        let (read, write) = make_pipe(random);
        (read, write, false)
    } else {
        let (read, write) = make_pair(libc::SOCK_STREAM, random);
        (read, write, true)
    }
}

/// A listener on loopback, and its address.
pub(super) fn listen() -> (OwnedFd, libc::sockaddr_in) {
    // SAFETY: zeros are an address. The kernel reads and writes one of the length that is given beside it.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let fd = owned(checked(libc::socket(libc::AF_INET, kind, 0)).unwrap());
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as _;
        address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let mut length = size_of_val(&address) as libc::socklen_t;
        checked(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length)).unwrap();
        checked(libc::listen(fd.as_raw_fd(), 64)).unwrap();
        let at = (&raw mut address).cast();
        checked(libc::getsockname(fd.as_raw_fd(), at, &raw mut length)).unwrap();
        (fd, address)
    }
}

pub(super) fn connect(address: libc::sockaddr_in) -> OwnedFd {
    // SAFETY: the kernel reads an address, of the length that is given beside it.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let fd = owned(checked(libc::socket(libc::AF_INET, kind, 0)).unwrap());
        let length = size_of_val(&address) as libc::socklen_t;
        insist(|| checked(libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length)))
            .unwrap_or_else(|errno| panic!("connect: errno {errno}"));
        fd
    }
}

pub(super) fn accept(listener: RawFd) -> Result<OwnedFd, i32> {
    // SAFETY: no address is asked for.
    let accept = || unsafe {
        checked(libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), libc::SOCK_CLOEXEC))
    };
    insist(accept).map(owned)
}
