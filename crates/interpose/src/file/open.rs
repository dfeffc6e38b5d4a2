//! `open` and its kin.
//!
//! Opening a FIFO waits until its other end is opened. A fiber opens it in non-blocking mode and polls for
//! the other end (see [`polling`](crate::wait::polling)); then it sets the mode that was asked for. The
//! open file is new, so this change cannot be noticed. While it waits it counts as a reader, as a waiting
//! thread would, so writers go on.
//!
//! Other files are opened as ever, and take the time that the disk takes.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use carefree_ground::kernel;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use libc::{mode_t, pollfd};

use crate::call::answer::{Answer, answer};
use crate::call::own_file::OwnFile;
use crate::call::pipe::Pipe;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor;
use crate::wait::polling::Polled;
use crate::wait::readiness;

extern "C-unwind" fn raw_open(path: User<c_char>, flags: c_int, mode: mode_t) -> c_int {
    openat::original(libc::AT_FDCWD, path, flags, mode)
}

extern "C-unwind" fn raw_creat(path: User<c_char>, mode: mode_t) -> c_int {
    raw_open(path, CREATE, mode)
}

/// What `creat` opens a file with.
const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

// The mode is optional: see `fcntl` in `descriptor`.

/// Defines functions that open files, under both their names.
macro_rules! opening {
    ($($open:ident, $openat:ident, $creat:ident, $open_2:ident, $openat_2:ident;)*) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($open), "(2)`.")]
            safe fn $open(path: User<c_char>, flags: c_int, mode: mode_t) -> c_int, else raw_open {
                answer(open_at(libc::AT_FDCWD, path, flags, mode)) as c_int
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($openat), "(2)`.")]
            safe fn $openat(directory: c_int, path: User<c_char>, flags: c_int, mode: mode_t) -> c_int,
                number SYS_openat
            {
                answer(open_at(directory, path, flags, mode)) as c_int
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($creat), "(2)`.")]
            safe fn $creat(path: User<c_char>, mode: mode_t) -> c_int, else raw_creat {
                answer(open_at(libc::AT_FDCWD, path, CREATE, mode)) as c_int
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($open), "(2)` without a mode, checked.")]
            safe fn $open_2(path: User<c_char>, flags: c_int) -> c_int {
                if needs_mode(flags) {
                    return original(path, flags);
                }
                answer(open_at(libc::AT_FDCWD, path, flags, 0)) as c_int
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($openat), "(2)` without a mode, checked.")]
            safe fn $openat_2(directory: c_int, path: User<c_char>, flags: c_int) -> c_int {
                if needs_mode(flags) {
                    return original(directory, path, flags);
                }
                answer(open_at(directory, path, flags, 0)) as c_int
            }
        }
    )*};
}

opening! {
    open, openat, creat, __open_2, __openat_2;
    open64, openat64, creat64, __open64_2, __openat64_2;
}

/// Whether libc's own function would abort the program, because the mode of the new file is missing.
fn needs_mode(flags: c_int) -> bool {
    flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE
}

/// An end of a FIFO was opened.
static ENDS: Polled = Polled::new();

/// `openat`.
fn open_at(directory: c_int, path: User<c_char>, flags: c_int, mode: mode_t) -> Answer {
    let opened = open_any_kind(directory, path, flags, mode)?;
    descriptor::opened(opened as c_int);
    Ok(opened)
}

fn open_any_kind(directory: c_int, path: User<c_char>, flags: c_int, mode: mode_t) -> Answer {
    let plain = |flags: c_int| {
        let arguments = [directory.into(), path.into(), flags.into(), mode.into()];
        sys::call(Number::OPENAT, arguments)
    };
    let never_waits = flags & (libc::O_NONBLOCK | libc::O_PATH | libc::O_DIRECTORY) != 0
        || flags & libc::O_ACCMODE == libc::O_RDWR;
    if never_waits || !is_fifo(directory, path, flags) {
        return plain(flags);
    }
    // A program that another thread starts meanwhile must not inherit this end, which natively has no number yet.
    let at_once = || plain(flags | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = if flags & libc::O_ACCMODE == libc::O_RDONLY {
        let file = OwnFile::opened(at_once()?);
        ENDS.notify();
        let copy = Pipe::new().ok();
        let writer = || has_had_a_writer(file.fd(), &copy).then_some(());
        ENDS.poll(Reason::Open, NEVER, libc::EINTR, writer)?;
        file
    } else {
        let opened = ENDS.poll(Reason::Open, NEVER, libc::EINTR, || match at_once() {
            // There is no reader.
            Err(libc::ENXIO) => None,
            answer => Some(answer),
        });
        let file = OwnFile::opened(opened??);
        ENDS.notify();
        file
    };
    sys::set_mode(file.fd(), sys::mode(file.fd())? & !libc::O_NONBLOCK)?;
    if flags & libc::O_CLOEXEC == 0 {
        sys::call(Number::FCNTL, [file.fd().into(), libc::F_SETFD.into(), 0usize.into()])?;
    }
    Ok(file.keep() as usize)
}

fn is_fifo(directory: c_int, path: User<c_char>, flags: c_int) -> bool {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let flags = if flags & libc::O_NOFOLLOW != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
    let place = status.as_mut_ptr();
    let arguments = [directory as usize, path.address(), place as usize, flags as usize, 0, 0];
    // SAFETY: the kernel reads the path, which the program has given to be read and which the kernel checks,
    // and writes its answer to `status`, which has room for it.
    let asked = unsafe { kernel::call(libc::SYS_newfstatat, arguments) };
    // SAFETY: the call has succeeded and so filled it.
    asked.is_ok() && unsafe { status.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFIFO
}

/// Whether a FIFO has a writer, or has had one since it was opened for reading as `fd`.
fn has_had_a_writer(fd: c_int, copy: &Option<Pipe>) -> bool {
    let mut file = pollfd { fd, events: libc::POLLIN, revents: 0 };
    if readiness::one(&mut file, Some(0)) == Ok(1) {
        // There is data, or a writer has closed its end.
        return true;
    }
    // A writer that has written nothing does not show in a poll. But a call that takes data from an empty
    // FIFO fails with `EAGAIN` if there is a writer, and otherwise reports its end; and `tee` leaves the data
    // that comes meanwhile where it is.
    let Some(Pipe { to, .. }) = copy else { return false };
    let arguments = [fd.into(), to.fd().into(), 1.into(), libc::SPLICE_F_NONBLOCK.into()];
    let copied = sys::call(Number::TEE, arguments);
    copied != Ok(0)
}
