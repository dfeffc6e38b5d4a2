//! Where a file that has a position keeps its bytes, which says how long a call on it may take.
//!
//! Sockets, pipes, terminals, timers and their like have no position: what is written goes to the end
//! of a queue. Regular files, disks and some devices have one. It belongs to the open file, so all numbers,
//! fibers, threads and processes that use the file share it. The kernel holds a lock over a `read` or
//! `write` that uses it, but not over the operations of io_uring. So such calls are made as they are
//! (see [`seekable`](crate::io::seekable)), on the carrier where that takes about as long as copying
//! the bytes, and otherwise on a thread of the offload pool.
//!
//! The answer is remembered with the file's number ([`descriptor`](crate::descriptor)), and is a hint: a wrong
//! one costs time, not bytes.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_ground::kernel;

use crate::call::sys::{self, Number};
use crate::descriptor::warm;

/// Where a file with a position keeps its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Storage {
    /// It has no position.
    None,
    /// In memory: tmpfs, memfd, /dev/zero.
    Memory,
    /// Nowhere: the kernel makes them up (/proc, /sys). Some calls depend on which thread makes them,
    /// and a few (of /proc/kmsg) wait.
    Kernel,
    /// On a local disk, behind the page cache.
    Disk,
    /// In a device, which may be waited for.
    Device,
    /// Anywhere: a disk without page cache, the network, another process (FUSE).
    Other,
}

impl Storage {
    /// From its number.
    pub(crate) fn from_number(number: u8) -> Storage {
        const ALL: [Storage; 6] = [
            Storage::None,
            Storage::Memory,
            Storage::Kernel,
            Storage::Disk,
            Storage::Device,
            Storage::Other,
        ];
        ALL.get(usize::from(number)).copied().unwrap_or(Storage::Other)
    }

    /// That of the regular file or directory `fd`, whose inode has this hash.
    pub(crate) fn of_file(fd: c_int, inode: u64) -> Storage {
        if warm::is_known(inode) {
            return if is_buffered(fd) { Storage::Disk } else { Storage::Other };
        }
        match file_system(fd) {
            Some(TMPFS | RAMFS) => Storage::Memory,
            Some(PROC | SYSFS | CGROUP | CGROUP2 | DEBUGFS | TRACEFS | SECURITYFS) => {
                Storage::Kernel
            }
            Some(EXT | XFS | BTRFS | F2FS | OVERLAYFS) if is_buffered(fd) => Storage::Disk,
            _ => Storage::Other,
        }
    }

    /// That of the character device `fd`, which is number `device`.
    pub(crate) fn of_device(fd: c_int, device: libc::dev_t) -> Storage {
        /// /dev/null, /dev/zero, /dev/full, /dev/urandom, …
        const MEMORY_DEVICES: u32 = 1;
        if !has_position(fd) {
            Storage::None
        } else if libc::major(device) == MEMORY_DEVICES {
            Storage::Memory
        } else {
            Storage::Device
        }
    }
}

// The numbers of file systems, as `fstatfs` tells them.
const TMPFS: u32 = 0x0102_1994;
const RAMFS: u32 = 0x8584_58f6;
const PROC: u32 = 0x9fa0;
const SYSFS: u32 = 0x6265_6572;
const CGROUP: u32 = 0x0027_e0eb;
const CGROUP2: u32 = 0x6367_7270;
const DEBUGFS: u32 = 0x6462_6720;
const TRACEFS: u32 = 0x7472_6163;
const SECURITYFS: u32 = 0x7363_6673;
/// ext2, ext3 and ext4.
const EXT: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
const BTRFS: u32 = 0x9123_683e;
const F2FS: u32 = 0xf2f5_2010;
const OVERLAYFS: u32 = 0x794c_7630;

/// The number of the file system that `fd` is on.
fn file_system(fd: c_int) -> Option<u32> {
    let mut status = MaybeUninit::<libc::statfs>::uninit();
    let arguments = [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer.
    unsafe { kernel::call(libc::SYS_fstatfs, arguments) }.ok()?;
    // SAFETY: the call has succeeded and so filled it.
    Some(unsafe { status.assume_init() }.f_type as u32)
}

/// Whether a file's blocks may become those of a copy, too.
pub(crate) fn may_share_blocks(fd: c_int) -> bool {
    !matches!(file_system(fd), Some(EXT | F2FS))
}

/// Whether writes end in the page cache.
fn is_buffered(fd: c_int) -> bool {
    let unbuffered = libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT;
    sys::mode(fd).is_ok_and(|mode| mode & unbuffered == 0)
}

/// Whether the open file has a position.
pub(crate) fn has_position(fd: c_int) -> bool {
    position(fd).is_ok()
}

/// The open file's position.
///
/// # Errors
/// `ESPIPE` for what has none, and `EBADF`.
pub(crate) fn position(fd: c_int) -> Result<u64, c_int> {
    let arguments = [fd.into(), 0usize.into(), libc::SEEK_CUR.into()];
    sys::call(Number::LSEEK, arguments).map(|place| place as u64)
}

/// How many calls threads of the offload pool are making on files, by the [`short`] hash of the inode.
///
/// In the kernel, users of an open file's position wait for each other, and on most file systems so do
/// writers of an inode. So a call on a file that a thread of the pool is busy with is made by
/// another such thread: a carrier would wait for the first one.
static BUSY: [AtomicU32; HASHES] = [const { AtomicU32::new(0) }; HASHES];

const HASHES: usize = 256;

/// The hash of an inode: the same for no two on file systems of fewer than 2^40 inodes.
pub(crate) fn hash(status: &libc::stat) -> u64 {
    // Fibonacci hashing: the upper bits depend on all.
    (status.st_ino ^ status.st_dev << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The upper bits of an inode's [`hash`].
pub(crate) fn short(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// Whether a thread of the pool makes a call on a file with this hash.
pub(crate) fn is_busy(hash: u8) -> bool {
    BUSY[usize::from(hash)].load(Ordering::Relaxed) != 0
}

/// While it lives, a thread of the pool makes a call on a file.
#[derive(Debug)]
pub(crate) struct Busy(u8);

impl Busy {
    /// One with this hash.
    pub(crate) fn new(hash: u8) -> Busy {
        BUSY[usize::from(hash)].fetch_add(1, Ordering::Relaxed);
        Busy(hash)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY[usize::from(self.0)].fetch_sub(1, Ordering::Relaxed);
    }
}
