//! Checked forms of functions, which C programs call if they are compiled with `_FORTIFY_SOURCE`: `__read_chk`
//! for `read`, and so on.
//!
//! If the buffer is too short, libc's own function is called, which reports that and aborts the program. It is
//! called off a fiber as well.

use std::ffi::{c_int, c_void};

use libc::{nfds_t, off_t, pollfd, sigset_t, sockaddr, socklen_t, timespec};

use crate::call::user::User;
use crate::io::read_write;
use crate::poll::pollfd as list;
use crate::socket::receive;

/// Defines the checked form of a function: the buffer, which has `$length` bytes as the compiler knows, must
/// have `$needed`.
macro_rules! checked {
    ($(
        $name:ident($($argument:ident: $type:ty),*; $length:ident >= $needed:expr) -> $result:ty
            = $($way:ident)::+;
    )*) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "`: ", stringify!($($way)::+), "`, checked.")]
            safe fn $name($($argument: $type,)* $length: usize) -> $result {
                if $length < $needed {
                    return original($($argument,)* $length);
                }
                $($way)::+::stand_in($($argument),*)
            }
        }
    )*};
}

checked! {
    __read_chk(fd: c_int, buffer: User<c_void>, count: usize; length >= count) -> isize
        = read_write::read;
    __pread_chk(fd: c_int, buffer: User<c_void>, count: usize, offset: off_t; length >= count)
        -> isize = read_write::pread;
    __pread64_chk(fd: c_int, buffer: User<c_void>, count: usize, offset: off_t; length >= count)
        -> isize = read_write::pread64;
    __poll_chk(files: User<pollfd>, count: nfds_t, timeout: c_int;
        length >= size_of::<pollfd>().saturating_mul(count as usize)) -> c_int = list::poll;
    __ppoll_chk(files: User<pollfd>, count: nfds_t, timeout: User<timespec>, mask: User<sigset_t>;
        length >= size_of::<pollfd>().saturating_mul(count as usize)) -> c_int = list::ppoll;
}

// In these two, the length comes before the flags.

interpose! {
    /// `recv(2)`, checked.
    safe fn __recv_chk(fd: c_int, buffer: User<c_void>, count: usize, length: usize, flags: c_int)
        -> isize
    {
        if length < count {
            return original(fd, buffer, count, length, flags);
        }
        receive::recv::stand_in(fd, buffer, count, flags)
    }
}

interpose! {
    /// `recvfrom(2)`, checked.
    safe fn __recvfrom_chk(
        fd: c_int,
        buffer: User<c_void>,
        count: usize,
        length: usize,
        flags: c_int,
        address: User<sockaddr>,
        address_length: User<socklen_t>,
    ) -> isize {
        if length < count {
            return original(fd, buffer, count, length, flags, address, address_length);
        }
        receive::recvfrom::stand_in(fd, buffer, count, flags, address, address_length)
    }
}
