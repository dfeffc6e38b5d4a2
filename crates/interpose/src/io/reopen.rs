//! Writing to a pipe that has forgotten how to be asked.
//!
//! A pipe's end that `splice` has had is not written to with `RWF_NOWAIT` any more (Linux 6.18). That it
//! is ready does not stand for the try: a pipe without a free page may still have room for a few bytes
//! in the last one it has, and how much of a long write it takes at once depends on how long the whole
//! is. So such an end is opened once more, in non-blocking mode, for one call: the kernel decides, as it
//! does for a thread.
//!
//! The pipe has one more writer meanwhile, which only a look at this process's files can tell.

use std::ffi::c_int;
use std::io::Write as _;

use carefree_ground::kernel;

use crate::call::answer::Answer;
use crate::call::buffers::Buffers;
use crate::call::own_file::OwnFile;
use crate::call::sys;
use crate::call::sys::Number;

/// Room for the longest path, with the NUL behind it.
const PATH: usize = 48;

/// Writes what a pipe's end takes without waiting; `None` if the end cannot be opened once more (it has
/// no readers, the files are used up, there is no `/proc`).
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
    // Whether each write is a packet is the open file's mode too, and cannot be said to `open`.
    let packets = sys::mode(fd).ok()? & libc::O_DIRECT;
    if packets != 0 {
        sys::set_mode(again.fd(), mode | packets).ok()?;
    }
    Some(again)
}
