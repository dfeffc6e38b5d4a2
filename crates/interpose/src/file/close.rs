//! `close`, `dup2` and what else changes the meaning of a file descriptor.
//!
//! These do their work off fibers as well: a thread may close what a fiber waits on.

use std::ffi::{c_char, c_int, c_uint};

use crate::call::answer::set_errno;
use crate::call::fiber;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor;
use crate::file::{control, lock};

extern "C-unwind" fn raw_dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        return dup3::original(from, to, 0);
    }
    // Nothing to do, but `from` must be there.
    if control::fcntl::original(from, libc::F_GETFD, User::NULL) < 0 { -1 } else { to }
}

interpose! { anywhere
    /// `close(2)`. Fibers that wait on the file end their calls with `EBADF` first.
    safe fn close(fd: c_int) -> c_int, number SYS_close {
        if !descriptor::prepare_to_close(fd) {
            set_errno(libc::EBADF);
            return -1;
        }
        let closing = lock::closing(fd);
        let result = original(fd);
        descriptor::closed(fd);
        closing.closed();
        result
    }
}

/// Whether `dup3` will close `to`: a call that is going to fail must not disturb fibers that wait on it.
fn replaces(from: c_int, to: c_int, flags: c_int) -> bool {
    from != to
        && (!descriptor::is_waited_on(to)
            || flags & !libc::O_CLOEXEC == 0
                && control::fcntl::original(from, libc::F_GETFD, User::NULL) >= 0)
}

interpose! { steady anywhere
    /// `dup(2)`.
    safe fn dup(fd: c_int) -> c_int, number SYS_dup {
        let result = original(fd);
        descriptor::opened(result);
        descriptor::duplicated(fd, result);
        result
    }
}

interpose! { steady anywhere
    /// `dup2(2)`, which closes `to`.
    safe fn dup2(from: c_int, to: c_int) -> c_int, else raw_dup2 {
        if replaces(from, to, 0) && !descriptor::prepare_to_close(to) {
            set_errno(libc::EBUSY);
            return -1;
        }
        let closing = lock::closing(to);
        let result = original(from, to);
        descriptor::replaced(from, result);
        closing.closed();
        result
    }
}

interpose! { steady anywhere
    /// `dup3(2)`, which closes `to`.
    safe fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int, number SYS_dup3 {
        if replaces(from, to, flags) && !descriptor::prepare_to_close(to) {
            set_errno(libc::EBUSY);
            return -1;
        }
        let closing = lock::closing(to);
        let result = original(from, to, flags);
        descriptor::replaced(from, result);
        closing.closed();
        result
    }
}

interpose! { steady anywhere
    /// `close_range(2)`.
    safe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, number SYS_close_range {
        const UNSHARE: c_int = libc::CLOSE_RANGE_UNSHARE as c_int;
        // The kernel would give the carrier files of its own.
        if flags & UNSHARE != 0 && fiber::on_fiber() && !descriptor::is_beside_parent() {
            set_errno(libc::EPERM);
            return -1;
        }
        // With flags it does not close them now (`CLOSE_RANGE_CLOEXEC`), or closes copies, or fails.
        if flags == 0 && first <= last {
            descriptor::prepare_to_close_range(first, last);
        }
        let closing = lock::closing_several();
        let result = match flags {
            0 if first <= last => {
                descriptor::around_own(first, last, |first, last| original(first, last, 0))
            }
            _ => original(first, last, flags),
        };
        closing.closed();
        result
    }
}

/// Closes the numbers from `first` to `last`, all of which are below one of Carefree's own.
fn close_few(first: c_uint, last: c_uint) {
    if close_range::original(first, last, 0) == -1 {
        // Before Linux 5.9.
        for fd in first..=last {
            let _ = sys::call(Number::CLOSE, [fd.into()]);
        }
    }
}

interpose! { steady anywhere
    /// `closefrom(3)`: libc's own would close them unseen.
    safe fn closefrom(first: c_int) -> (), linked "__closefrom" {
        const LAST: u32 = c_int::MAX as u32;
        // A negative number means all.
        let first = first.max(0) as u32;
        descriptor::prepare_to_close_range(first, LAST);
        let closing = lock::closing_several();
        descriptor::around_own(first, LAST, |first, last| {
            match last {
                LAST => original(first as c_int),
                _ => close_few(first, last),
            }
            0
        });
        closing.closed();
    }
}

/// The number of a stream's file; -1 if it has none.
pub(crate) fn number_of(stream: User<libc::FILE>) -> c_int {
    // SAFETY: the program has given a stream to be closed or reopened, which `fileno` only looks at; `errno`
    // is this thread's or fiber's own.
    unsafe {
        let errno = *libc::__errno_location();
        let fd = libc::fileno(stream.pointer());
        set_errno(errno);
        fd
    }
}

interpose! { anywhere
    /// `fclose(3)`. Fibers that wait on the stream's file end their calls with `EBADF` first.
    safe fn fclose(stream: User<libc::FILE>) -> c_int, linked "_IO_new_fclose" {
        let fd = number_of(stream);
        descriptor::prepare_to_close(fd);
        let closing = lock::closing(fd);
        let result = original(stream);
        descriptor::closed(fd);
        closing.closed();
        result
    }
}

/// Defines functions that replace a stream's file by a newly opened one, under its number.
macro_rules! freopen {
    ($($name:ident),*) => {$(
        interpose! { anywhere
            #[doc = concat!("`", stringify!($name), "(3)`: closes the stream's file as `fclose` does.")]
            safe fn $name(path: User<c_char>, mode: User<c_char>, stream: User<libc::FILE>)
                -> User<'static, libc::FILE>
            {
                let fd = number_of(stream);
                descriptor::prepare_to_close(fd);
                let closing = lock::closing(fd);
                let result = original(path, mode, stream);
                descriptor::opened(fd);
                descriptor::closed(fd);
                closing.closed();
                result
            }
        }
    )*};
}

freopen!(freopen, freopen64);

interpose! { anywhere
    /// `closedir(3)`, of a directory that was opened by its number as well.
    safe fn closedir(directory: User<libc::DIR>) -> c_int, linked "__closedir" {
        // libc's own reports an error for a null pointer; `dirfd` would read through it.
        if directory.is_null() {
            return original(directory);
        }
        // SAFETY: the program has given an open directory, which `dirfd` only looks at, and which stays until
        // it is closed below.
        let fd = unsafe { libc::dirfd(directory.pointer()) };
        descriptor::prepare_to_close(fd);
        let result = original(directory);
        descriptor::closed(fd);
        result
    }
}

interpose! { anywhere
    /// `mq_close(3)`. Fibers that wait on the queue end their calls with `EBADF` first.
    safe fn mq_close(queue: c_int) -> c_int, number SYS_close {
        if !descriptor::prepare_to_close(queue) {
            set_errno(libc::EBADF);
            return -1;
        }
        let result = original(queue);
        descriptor::closed(queue);
        result
    }
}
