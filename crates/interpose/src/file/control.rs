//! `fcntl`, `ioctl` and `setsockopt`, as far as they change a file's mode or time limits, or lock it.

use std::ffi::{c_int, c_ulong, c_void};

use libc::socklen_t;

use crate::call::answer::answer;
use crate::call::fiber;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::Trait;
use crate::descriptor::low_water;
use crate::file::lock::{self, waits};
use crate::io::terminal;

interpose! { steady anywhere
    /// `setsockopt(2)`. A time limit it sets holds for fibers that wait on the socket.
    safe fn setsockopt(
        fd: c_int,
        level: c_int,
        option: c_int,
        value: User<c_void>,
        length: socklen_t,
    ) -> c_int, number SYS_setsockopt {
        let failed = original(fd, level, option, value, length);
        if level == libc::SOL_SOCKET && matches!(option, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) {
            descriptor::changed(fd, Trait::Limits);
        }
        if (level, option) == (libc::SOL_SOCKET, libc::SO_RCVLOWAT) {
            low_water::note();
        }
        failed
    }
}

// The third argument is optional, and a number or a pointer, depending on the command. On both processors a
// variadic function gets its arguments where another one does: here, in a register.

/// Notes what a command may have changed.
#[inline]
fn after_fcntl(fd: c_int, command: c_int, result: c_int) {
    if command == libc::F_SETFL {
        descriptor::changed(fd, Trait::Mode);
    } else if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        descriptor::opened(result);
        descriptor::duplicated(fd, result);
    } else if lock::may_release(command) {
        lock::note(fd, command);
        lock::changed(fd);
    }
}

interpose! { steady unless waits anywhere
    /// `fcntl(2)`: minds changes of a file's mode; a fiber that would wait for a lock parks.
    safe fn fcntl(fd: c_int, command: c_int, argument: User) -> c_int, number SYS_fcntl {
        if waits(command) && fiber::on_fiber() {
            return answer(lock::set(fd, command, argument.cast())) as c_int;
        }
        let result = original(fd, command, argument);
        after_fcntl(fd, command, result);
        result
    }
}

interpose! { steady unless waits anywhere
    /// `fcntl64(2)`: the same.
    safe fn fcntl64(fd: c_int, command: c_int, argument: User) -> c_int, number SYS_fcntl {
        if waits(command) && fiber::on_fiber() {
            return answer(lock::set(fd, command, argument.cast())) as c_int;
        }
        let result = original(fd, command, argument);
        after_fcntl(fd, command, result);
        result
    }
}

interpose! { steady anywhere
    /// `ioctl(2)`: minds changes of a file's mode.
    safe fn ioctl(fd: c_int, request: c_ulong, argument: User) -> c_int, number SYS_ioctl {
        /// The first byte of the numbers of requests to terminals.
        const TERMINAL: c_ulong = 0x54;
        let result = match request >> 8 == TERMINAL {
            true => terminal::as_masked(|| original(fd, request, argument)),
            false => original(fd, request, argument),
        };
        if request as c_int == libc::FIONBIO as c_int {
            descriptor::changed(fd, Trait::Mode);
        }
        result
    }
}
