//! Reading and writing files that have a position.
//!
//! A call is *one* system call, the one that the caller asked for. So the kernel decides its result, its
//! `errno`, the position, and the order among all users of the open file. A short write is the answer (the
//! disk is full, a limit is reached, a pointer leads nowhere); it is not continued. Decided here is only
//! which thread makes the call:
//!
//! * the carrier, if the bytes are copied from or to memory and are not too many;
//! * a thread of the offload pool, if the call may take longer, or if such a thread is busy with the same
//!   file and holds locks of the kernel's ([`storage`](crate::descriptor::storage)).
//!
//! Whether a read finds its bytes in memory is checked by reading one byte of each page at its offset,
//! without waiting, unless the file was found there [lately](crate::descriptor::warm). A read at the position without waiting (`RWF_NOWAIT`) could check and read at once. But it
//! may return a part, and by the time another call fetches the rest, another reader may have taken that.
//!
//! Reads *at an offset* do not move the position, so their parts can be joined. They are tried and then left
//! to the reactor, as in [`stream`](crate::io::stream): the kernel waits for the disk, without a thread.

use std::ffi::c_int;

use carefree_ground::kernel;
use carefree_ground::probe;
use carefree_runtime::Reason;
use libc::iovec;

use crate::call::answer::{Answer, is_end};
use crate::descriptor::kind::Seen;
use crate::descriptor::storage::{self, Busy, Storage};
use crate::descriptor::{self, File, warm};
use crate::io::call::{At, Call, Way};
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness::is_ready;
use crate::wait::user_op::UserOp;

/// The most bytes that a carrier copies at a time: some ten microseconds.
const MODERATE: usize = 128 * 1024;

/// How many bytes ahead are checked for being in memory, so that not each of several small reads must check.
const AHEAD: u64 = 16 * 1024;

/// The smallest page: it is in memory as a whole or not at all.
const PAGE: u64 = probe::PAGE as u64;

/// Makes a call on a file that has a position, of which `seen` is known.
pub(crate) fn perform(call: &Call, seen: Seen) -> Answer {
    let may_wait = match seen.storage {
        Storage::Kernel => must_wait(call),
        Storage::Device if must_wait(call) => {
            wait_until_ready(call)?;
            true
        }
        _ => false,
    };
    let length = || call.given.length();
    let here = !storage::is_busy(seen.inode)
        && match seen.storage {
            Storage::Memory => length() <= MODERATE,
            Storage::Kernel => !may_wait && length() <= MODERATE,
            Storage::Disk => {
                let length = length();
                length <= MODERATE
                    && !call.flags_may_wait()
                    && (call.way == Way::Write || is_in_memory(call.fd, call.at, length as u64))
            }
            Storage::None | Storage::Device | Storage::Other => false,
        };
    if here {
        return call.plainly();
    }
    let _busy = Busy::new(seen.inode);
    offload::on_file(call.fd, || call.plainly())
}

/// Whether a call on a file of the kernel's or a device may have to wait, and is allowed to. Most such files
/// are always ready.
///
/// A file of the kernel's that is not ready may still be readable: `/proc/bus/input/devices` always is, and
/// is ready when its text has changed since it was last read. So a thread makes the call, and the fiber does
/// not wait for the file to be ready.
fn must_wait(call: &Call) -> bool {
    let (events, _) = awaited(call.way);
    // In non-blocking mode the call itself does not wait.
    !is_ready(call.fd, events) && descriptor::is_blocking(call.fd)
}

/// Waits until a device is ready. For a device that the reactor cannot wait for, a thread waits later.
fn wait_until_ready(call: &Call) -> Result<(), c_int> {
    let (events, reason) = awaited(call.way);
    let op = UserOp::poll(call.fd, events);
    match parking::perform(&op, On { fd: call.fd, reason, limit: None }) {
        Parked::Answered(Err(errno)) if is_end(errno) => Err(errno),
        _ => Ok(()),
    }
}

/// What calls in this direction wait for.
fn awaited(way: Way) -> (i16, Reason) {
    match way {
        Way::Read => (libc::POLLIN, Reason::Read),
        Way::Write => (libc::POLLOUT, Reason::Write),
    }
}

/// Whether a read of `length` bytes will find them in the page cache, as far as can be told.
pub(crate) fn is_in_memory(fd: c_int, at: At, length: u64) -> bool {
    let begin = match at {
        At::Position => match storage::position(fd) {
            Ok(place) => place,
            Err(_) => return false,
        },
        At::Offset(offset) => offset as u64,
    };
    let end = begin.saturating_add(length.max(1));
    let inode = descriptor::known(fd).map_or(0, File::inode_hash);
    if warm::is_warm(inode, begin, end) {
        return true;
    }
    let reached = in_memory_until(fd, begin, begin.saturating_add(AHEAD).max(end));
    let there = reached >= end;
    if there {
        warm::found(inode, begin, reached);
    }
    there
}

/// The end of what is in memory from `begin` on without a gap, checked up to `end`. Behind the end of the
/// file there is nothing to fetch.
fn in_memory_until(fd: c_int, begin: u64, end: u64) -> u64 {
    let mut place = begin;
    while place < end {
        match look(fd, place) {
            Ok(1) => {}
            Ok(_) => return end,
            Err(_) => return place,
        }
        place = (place & !(PAGE - 1)).saturating_add(PAGE);
    }
    end
}

/// Reads the byte at `place` without waiting.
fn look(fd: c_int, place: u64) -> Answer {
    let mut byte = 0u8;
    let one = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let [at, flags] = [place as usize, libc::RWF_NOWAIT as usize];
    let arguments = [fd as usize, &raw const one as usize, 1, at, 0, flags];
    // SAFETY: room for one byte.
    unsafe { kernel::call(libc::SYS_preadv2, arguments) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::ptr;

    use super::*;

    const LENGTH: usize = 256 * PAGE as usize;

    /// Has the kernel drop what it holds of a file in memory, and read nothing ahead.
    fn cool(file: &File) {
        // SAFETY: no memory is involved.
        unsafe {
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
            libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM);
        }
    }

    /// Which pages are in memory; unlike a read, asking this fetches none.
    fn resident(file: &File) -> Vec<bool> {
        let mut pages = vec![0u8; LENGTH / PAGE as usize];
        let (share, read) = (libc::MAP_SHARED, libc::PROT_READ);
        // SAFETY: a new mapping, which is not touched; a byte for each page at least.
        unsafe {
            let place = libc::mmap(ptr::null_mut(), LENGTH, read, share, file.as_raw_fd(), 0);
            assert_ne!(place, libc::MAP_FAILED);
            assert_eq!(libc::mincore(place, LENGTH, pages.as_mut_ptr()), 0);
            libc::munmap(place, LENGTH);
        }
        // SAFETY: no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        pages.truncate(LENGTH / page);
        pages.into_iter().map(|page| page & 1 != 0).collect()
    }

    /// Whether the kernel, or its emulator, and the file system can read without waiting.
    fn is_looked_at(fd: c_int) -> bool {
        let mut byte = 0u8;
        let part = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: room for a byte.
        unsafe { libc::preadv2(fd, &raw const part, 1, 0, libc::RWF_NOWAIT) == 1 }
    }

    /// A part that is in memory says nothing of the rest.
    #[test]
    fn a_file_is_in_memory_if_all_of_it_is() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; LENGTH]).unwrap();
        file.sync_all().unwrap();
        let fd = file.as_raw_fd();
        if Storage::of_file(fd, 0) != Storage::Disk {
            return println!("skipped: no disk behind a page cache here");
        }
        let is_resident = || resident(&file).iter().all(|there| *there);
        if is_resident() && !is_looked_at(fd) {
            return println!("skipped: no reads that do not wait here");
        }
        assert!(!is_resident() || is_in_memory(fd, At::Offset(0), LENGTH as u64));
        if let Some(file) = descriptor::known(fd) {
            warm::forget(file.inode_hash());
        }
        cool(&file);
        file.read_exact_at(&mut [0], LENGTH as u64 - 1).unwrap();
        if is_resident() {
            return println!("skipped: this file system keeps in memory what is written");
        }
        let last = At::Offset(LENGTH as i64 - 1);
        assert!(is_in_memory(fd, last, 100_000), "behind the end there is nothing");
        // Checking a page has the kernel fetch it, which may be done by now.
        let said = is_in_memory(fd, At::Offset(0), LENGTH as u64);
        assert!(!said || is_resident());
        file.read_exact_at(&mut vec![0; LENGTH], 0).unwrap();
        assert!(!is_resident() || is_in_memory(fd, At::Offset(0), LENGTH as u64));
    }
}
