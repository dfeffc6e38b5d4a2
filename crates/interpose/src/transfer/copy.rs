//! `copy_file_range`.

use std::ffi::{c_int, c_uint};

use libc::off_t;

use crate::call::uninterrupted::{offload, uninterrupted};
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::kind::{Kind, Seen};
use crate::descriptor::storage::{self, Storage};
use crate::io::call::At;
use crate::transfer::ends::{CHUNK, length_of, place, slow_source};

interpose! {
    /// `copy_file_range(2)`: on the carrier if that is done soon, else on a thread that may block.
    safe fn copy_file_range(
        from: c_int,
        from_offset: User<off_t>,
        to: c_int,
        to_offset: User<off_t>,
        length: usize,
        flags: c_uint,
    ) -> isize, number SYS_copy_file_range {
        let copy = || original(from, from_offset, to, to_offset, length, flags);
        match is_copied_soon((from, from_offset), to, length) {
            true => uninterrupted(copy),
            false => offload(copy),
        }
    }
}

/// Whether a call copies few bytes, from memory to memory, by what is known of the two files. Programs ask for as
/// much as there may be, so the source's length counts.
pub(crate) fn is_copied_soon(
    (from, offset): (c_int, User<off_t>),
    to: c_int,
    length: usize,
) -> bool {
    let [source, target] = [from, to].map(|fd| descriptor::seen(descriptor::file(fd), fd));
    let is_quick = |fd, seen: Seen| {
        let is_quick = match seen.storage {
            Storage::Memory => seen.kind == Kind::Regular,
            // Some file systems let both files have the same blocks: for that, they write the source to its disk.
            Storage::Disk => !storage::may_share_blocks(fd),
            _ => false,
        };
        is_quick && !storage::is_busy(seen.inode)
    };
    if !is_quick(from, source) || !is_quick(to, target) {
        return false;
    }
    let begin = match place(offset) {
        At::Offset(offset) => offset,
        At::Position => storage::position(from).unwrap_or(0) as off_t,
    };
    let there = length_of(from).saturating_sub(begin).max(0) as usize;
    let length = length.min(there);
    length <= CHUNK && slow_source((from, source, offset), length).is_none()
}
