//! What a file descriptor refers to.

use std::ffi::c_int;

use crate::call::sys;
use crate::descriptor::storage::{self, Storage};

/// What a file descriptor refers to, as far as that matters for trying without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Not asked yet.
    Unknown,
    /// A socket.
    Socket,
    /// A regular file or a disk: reads come short at its end only.
    Regular,
    /// A pipe or FIFO.
    Pipe,
    /// An eventfd, a timerfd, …
    Stream,
    /// A terminal, /dev/null, …
    Device,
}

/// What decides how a file is read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: Kind,
    pub(crate) storage: Storage,
    /// The upper bits of its inode's [`hash`](storage::hash).
    pub(crate) inode: u8,
}

/// Asks the kernel what `fd` refers to; also returns the hash of its inode, or 0.
#[cold]
pub(crate) fn look(fd: c_int) -> (Seen, u64) {
    let status = match sys::status(fd) {
        Ok(status) => status,
        // A sandbox denies the question: what has a position is taken for a file, to be safe.
        Err(errno) if errno != libc::EBADF && storage::has_position(fd) => {
            return (Seen { kind: Kind::Regular, storage: Storage::Other, inode: 0 }, 0);
        }
        Err(_) => return (Seen { kind: Kind::Unknown, storage: Storage::None, inode: 0 }, 0),
    };
    let inode = storage::hash(&status);
    let (kind, storage) = match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => (Kind::Socket, Storage::None),
        libc::S_IFREG | libc::S_IFDIR => (Kind::Regular, Storage::of_file(fd, inode)),
        libc::S_IFBLK => (Kind::Regular, Storage::Other),
        libc::S_IFCHR => (Kind::Device, Storage::of_device(fd, status.st_rdev)),
        libc::S_IFIFO => (Kind::Pipe, Storage::None),
        _ => (Kind::Stream, Storage::None),
    };
    (Seen { kind, storage, inode: storage::short(inode) }, inode)
}
