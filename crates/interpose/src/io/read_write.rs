//! `read`, `write` and their kin: of sockets, pipes, terminals and files.
//!
//! These are the functions. How their calls are made is in [`stream`](crate::io::stream) for files without a
//! position and in [`seekable`](crate::io::seekable) for files with one.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t};

use crate::call::answer::{Answer, answer};
use crate::call::buffers::LONGEST;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::File;
use crate::descriptor::kind::Kind;
use crate::io::call::{At, Call, Given, Way};
use crate::io::perform::perform;
use crate::socket::receive::receive;
use crate::socket::send::transmit;

extern "C-unwind" fn raw_preadv2(
    fd: c_int,
    buffers: User<iovec>,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    answer(vectored(Number::PREADV2, fd, buffers, count as usize, offset, flags))
}

extern "C-unwind" fn raw_pwritev2(
    fd: c_int,
    buffers: User<iovec>,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    answer(vectored(Number::PWRITEV2, fd, buffers, count as usize, offset, flags))
}

interpose! {
    /// `read(2)`.
    safe fn read(fd: c_int, buffer: User<c_void>, length: usize) -> isize, number SYS_read {
        answer(read_one(fd, buffer, length))
    }
}

interpose! {
    /// `write(2)`.
    safe fn write(fd: c_int, buffer: User<c_void>, length: usize) -> isize, number SYS_write {
        answer(write_all(fd, buffer, length))
    }
}

interpose! {
    /// `readv(2)`.
    safe fn readv(fd: c_int, buffers: User<iovec>, count: c_int) -> isize, number SYS_readv {
        answer(go(Way::Read, fd, Given::array(buffers, count), At::Position, 0))
    }
}

interpose! {
    /// `writev(2)`.
    safe fn writev(fd: c_int, buffers: User<iovec>, count: c_int) -> isize, number SYS_writev {
        answer(go(Way::Write, fd, Given::array(buffers, count), At::Position, 0))
    }
}

/// Defines functions that read or write at an offset, under both their names.
macro_rules! at_offset {
    ($($name:ident, $name64:ident, $number:ident, $way:ident);* $(;)?) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "(2)`.")]
            safe fn $name(fd: c_int, buffer: User, length: usize, offset: off_t) -> isize, number $number {
                let mut buffer = iovec { iov_base: buffer.pointer(), iov_len: length };
                answer(go(Way::$way, fd, Given::one(&mut buffer), At::Offset(offset), 0))
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name64), "(3)`: the same.")]
            safe fn $name64(fd: c_int, buffer: User, length: usize, offset: off_t) -> isize, number $number {
                super::$name::on_fiber(fd, buffer, length, offset)
            }
        }
    )*};
}

at_offset! {
    pread, pread64, SYS_pread64, Read;
    pwrite, pwrite64, SYS_pwrite64, Write;
}

/// As [`at_offset`], with several buffers.
///
/// The kernel takes the offset in two halves, of which 64-bit processors use only the lower one.
macro_rules! vectored_at_offset {
    ($($name:ident, $name64:ident, $number:ident, $name2:ident, $name642:ident, $raw2:ident, $way:ident);* $(;)?) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "(2)`.")]
            safe fn $name(fd: c_int, buffers: User<iovec>, count: c_int, offset: off_t) -> isize, number $number {
                answer(go(Way::$way, fd, Given::array(buffers, count), At::Offset(offset), 0))
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name64), "(3)`: the same.")]
            safe fn $name64(fd: c_int, buffers: User<iovec>, count: c_int, offset: off_t) -> isize, number $number {
                answer(go(Way::$way, fd, Given::array(buffers, count), At::Offset(offset), 0))
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name2), "(2)`.")]
            safe fn $name2(fd: c_int, buffers: User<iovec>, count: c_int, offset: off_t, flags: c_int) -> isize, else $raw2 {
                let at = At::of_vectored(offset);
                answer(go(Way::$way, fd, Given::array(buffers, count), at, flags))
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name642), "(3)`: the same.")]
            safe fn $name642(fd: c_int, buffers: User<iovec>, count: c_int, offset: off_t, flags: c_int) -> isize, else $raw2 {
                let at = At::of_vectored(offset);
                answer(go(Way::$way, fd, Given::array(buffers, count), at, flags))
            }
        }
    )*};
}

vectored_at_offset! {
    preadv, preadv64, SYS_preadv, preadv2, preadv64v2, raw_preadv2, Read;
    pwritev, pwritev64, SYS_pwritev, pwritev2, pwritev64v2, raw_pwritev2, Write;
}

/// `pread`, for other calls that read.
pub(crate) fn read_at(fd: c_int, to: User<c_void>, length: usize, offset: off_t) -> Answer {
    let mut buffer = iovec { iov_base: to.pointer(), iov_len: length };
    go(Way::Read, fd, Given::one(&mut buffer), At::Offset(offset), 0)
}

/// `read`.
fn read_one(fd: c_int, to: User<c_void>, length: usize) -> Answer {
    if is_socket(fd, length) {
        let answer = receive(fd, to, length, 0, User::NULL, User::NULL);
        if answer != Err(libc::ENOTSOCK) {
            return answer;
        }
        look_again(fd);
    }
    let mut buffer = iovec { iov_base: to.pointer(), iov_len: length };
    go(Way::Read, fd, Given::one(&mut buffer), At::Position, 0)
}

/// Whether `fd` is known to be a socket. A socket's own calls try it faster than `preadv2`, which reads a list
/// of buffers first. (If there is no byte to move, the two calls differ.)
fn is_socket(fd: c_int, length: usize) -> bool {
    length.wrapping_sub(1) < LONGEST && descriptor::known(fd).is_some_and(File::is_known_socket)
}

/// `fd` was taken for a socket, but that was closed unseen, and the number refers to another file now.
#[cold]
fn look_again(fd: c_int) {
    if let Some(file) = descriptor::known(fd) {
        file.look(fd);
    }
}

/// `write`, for other calls that write too.
pub(crate) fn write_all(fd: c_int, from: User<c_void>, length: usize) -> Answer {
    // A message may be empty, and `pwritev2` would not send it.
    let is_socket = match length {
        0 => descriptor::file(fd).is_some_and(|file| file.kind(fd) == Kind::Socket),
        _ => is_socket(fd, length),
    };
    if is_socket {
        let answer = transmit(fd, from, length, 0, User::NULL, 0);
        if answer != Err(libc::ENOTSOCK) {
            return answer;
        }
        look_again(fd);
    }
    let mut buffer = iovec { iov_base: from.pointer(), iov_len: length };
    go(Way::Write, fd, Given::one(&mut buffer), At::Position, 0)
}

#[inline]
fn go(way: Way, fd: c_int, given: Given, at: At, flags: c_int) -> Answer {
    perform(&Call { way, fd, given, at, flags })
}

/// `preadv2` or `pwritev2`.
fn vectored(
    number: Number,
    fd: c_int,
    buffers: User<iovec>,
    count: usize,
    offset: off_t,
    flags: c_int,
) -> Answer {
    let arguments =
        [fd.into(), buffers.into(), count.into(), offset.into(), 0usize.into(), flags.into()];
    sys::call(number, arguments)
}
