//! `eventfd_read` and `eventfd_write`: `read` and `write` under other names. libc's own call these
//! internally, unseen.

use std::ffi::c_int;

use crate::call::user::User;
use crate::io::count::COUNT;
use crate::io::read_write;

/// What these functions return when so many bytes were moved.
fn whole(moved: isize) -> c_int {
    if moved == COUNT as isize { 0 } else { -1 }
}

extern "C-unwind" fn raw_eventfd_read(fd: c_int, count: User<u64>) -> c_int {
    whole(read_write::read::stand_in(fd, count.cast(), COUNT))
}

extern "C-unwind" fn raw_eventfd_write(fd: c_int, mut count: u64) -> c_int {
    whole(read_write::write::stand_in(fd, User::lend(&mut count).cast(), COUNT))
}

interpose! {
    /// `eventfd_read(3)`.
    safe fn eventfd_read(fd: c_int, count: User<u64>) -> c_int, else raw_eventfd_read {
        raw_eventfd_read(fd, count)
    }
}

interpose! {
    /// `eventfd_write(3)`.
    safe fn eventfd_write(fd: c_int, count: u64) -> c_int, else raw_eventfd_write {
        raw_eventfd_write(fd, count)
    }
}
