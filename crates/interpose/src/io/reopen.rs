//! Writing to a pipe that refuses writes that must not wait.
//!
//! After a `splice`, an end of a pipe accepts no write with `RWF_NOWAIT` any more (Linux 6.18). Polling it is
//! no replacement: a pipe without a free page may have room for a few bytes in its last one, and how much of a
//! long write fits depends on the length of the whole. So the end is opened once more, in non-blocking mode,
//! for one call. Then the kernel decides, as it does for a thread.
//!
//! The pipe has one more writer meanwhile, which shows only in the list of this process's files.

use std::ffi::c_int;
use std::io::Write as _;

use carefree_ground::kernel;

use crate::call::answer::Answer;
use crate::call::buffers::Buffers;
use crate::call::own_file::OwnFile;
use crate::call::sys::{self, Number};

/// Room for the longest path and its NUL.
const PATH: usize = 48;

/// Writes what the pipe takes without waiting; `None` if its end cannot be opened once more (there is no
/// reader, no free descriptor, or no `/proc`).
pub(crate) fn write(fd: c_int, buffers: &Buffers) -> Option<Answer> {
    let again = open(fd)?;
    let (first, count) = (buffers.first(), buffers.count());
    Some(sys::call(Number::WRITEV, [again.fd().into(), first.into(), count.into()]))
}

/// Opens the pipe's end `fd` once more, in non-blocking mode.
fn open(fd: c_int) -> Option<OwnFile> {
    let mut path = [0; PATH];
    write!(&mut path[..PATH - 1], "/proc/thread-self/fd/{fd}").ok()?;
    let mode = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let at = libc::AT_FDCWD as usize;
    let arguments = [at, path.as_ptr() as usize, mode as usize, 0, 0, 0];
    // SAFETY: a C string.
    let again = OwnFile::opened(unsafe { kernel::call(libc::SYS_openat, arguments) }.ok()?);
    // Whether each write is a packet is a mode of the open file as well, which `open` cannot set here.
    let packets = sys::mode(fd).ok()? & libc::O_DIRECT;
    if packets != 0 {
        sys::set_mode(again.fd(), mode | packets).ok()?;
    }
    Some(again)
}
