//! `sendfile`.

use std::ffi::{c_int, c_void};

use carefree_runtime::waiters::Seat;
use libc::off_t;

use crate::call::answer::{Answer, answer, is_end};
use crate::call::buffers::LONGEST;
use crate::call::host::steadily;
use crate::call::sys::{self, Number};
use crate::call::uninterrupted::uninterrupted;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::kind::{Kind, Seen};
use crate::descriptor::option::option;
use crate::descriptor::storage::{self, Storage};
use crate::io::call::At;
use crate::io::read_write;
use crate::socket::send::transmit_as;
use crate::transfer::copy::is_copied_soon;
use crate::transfer::ends::{CHUNK, blocking, is_sent_to, length_of, look, place, slow_source};
use crate::transfer::splice::splice_all_kinds;
use crate::wait::multi_step::MultiStep;
use crate::wait::offload;

interpose! { steady
    /// `sendfile(2)`.
    safe fn sendfile(to: c_int, from: c_int, offset: User<off_t>, count: usize) -> isize,
        number SYS_sendfile
    {
        answer(send_file(to, from, offset, count))
    }
}

interpose! { steady
    /// `sendfile64(3)`: the same.
    safe fn sendfile64(to: c_int, from: c_int, offset: User<off_t>, count: usize) -> isize,
        number SYS_sendfile
    {
        answer(send_file(to, from, offset, count))
    }
}

fn send_file(to: c_int, from: c_int, offset: User<off_t>, count: usize) -> Answer {
    let plain = [to.into(), from.into(), offset.into(), count.into()];
    let plainly = || uninterrupted(|| sys::call(Number::SENDFILE, plain));
    if is_done_at_once(to, from, offset, count) {
        return plainly();
    }
    let (source, target) = (look(from), look(to));
    if source.storage == Storage::None && offset.is_null() && count > 0 {
        // Later kernels send from a pipe, and wait for data.
        return offload::on_file(to, plainly);
    }
    if count == 0 && target.kind == Kind::Pipe && blocking(to) {
        // The kernel waits for room in the pipe all the same.
        return offload::on_file(to, plainly);
    }
    // The kernel sends from no other file without a position.
    if source.storage == Storage::None || count == 0 || count > isize::MAX as usize {
        return plainly();
    }
    match target.kind {
        _ if is_far_beyond_end((from, source, offset)) => offload::on_file(from, plainly),
        _ if is_copied_soon((from, offset), to, count) => plainly(),
        _ if target.storage != Storage::None => offload::on_file(to, plainly),
        // The kernel refuses this at once.
        _ if !is_sent_to(to) => plainly(),
        // To the kernel this is the same call.
        Kind::Pipe if blocking(to) => {
            steadily(|| splice_all_kinds(from, offset, to, User::NULL, count, 0))
        }
        // Only the kernel knows how it divides the data into messages.
        Kind::Socket if blocking(to) && option(to, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) => {
            offload::on_file(to, plainly)
        }
        Kind::Socket | Kind::Device if blocking(to) => {
            let ends = ((to, target.kind), (from, source));
            match steadily(|| copy(ends.0, ends.1, offset, count.min(LONGEST)))? {
                Some(sent) => Ok(sent),
                // The kernel reports what is wrong with the source. A disk may have to fail once more for
                // that.
                None => offload::on_file(from, plainly),
            }
        }
        // The call does not wait for the target, but may wait for the source.
        _ => match slow_source((from, source, offset), count) {
            Some(slow) => offload::on_file(slow, plainly),
            None => plainly(),
        },
    }
}

/// Whether the call waits neither for its source nor for its target, by what is known of the two: a file in
/// memory is sent to a socket in non-blocking mode. Servers make few other calls, so the kernel is asked only
/// for the socket's mode. Where what is known is out of date, the kernel's answer is the caller's all the
/// same, and the carrier waits for it.
fn is_done_at_once(to: c_int, from: c_int, offset: User<off_t>, count: usize) -> bool {
    if count == 0 || count > isize::MAX as usize {
        return false;
    }
    let [source, target] = [from, to].map(|fd| descriptor::seen(descriptor::file(fd), fd));
    target.kind == Kind::Socket
        && matches!(source.storage, Storage::Memory | Storage::Disk)
        && !blocking(to)
        && slow_source((from, source, offset), count).is_none()
}

/// The smallest limit that a file system may have for the length of its files.
const SHORT: u64 = i32::MAX as u64;

/// Whether the offset may be beyond the file system's limit: `sendfile` reports that, as no other call does,
/// and before it waits.
fn is_far_beyond_end((from, source, offset): (c_int, Seen, User<off_t>)) -> bool {
    if source.kind != Kind::Regular {
        return false;
    }
    let begin = match place(offset) {
        At::Position => storage::position(from).unwrap_or(0),
        At::Offset(offset) => offset as u64,
    };
    begin > SHORT && begin >= length_of(from) as u64
}

/// `sendfile` by reading and writing; `None` if nothing can be read.
fn copy(
    (to, target): (c_int, Kind),
    (from, source): (c_int, Seen),
    offset: User<off_t>,
    count: usize,
) -> Result<Option<usize>, c_int> {
    let begin = match offset.is_null() {
        false => offset.read()?,
        true => match seek(from, 0, libc::SEEK_CUR) {
            Ok(place) => place as off_t,
            Err(_) => return Ok(None),
        },
    };
    // `MSG_MORE` is used only while there is more: with it, a socket holds data back for up to a fifth of a
    // second, and callers that send a whole file ask for as much as possible.
    let there = length_of(from).saturating_sub(begin).clamp(0, count as off_t) as usize;
    let mut buffer = vec![0u8; count.min(CHUNK)];
    let seats = [Seat::new(), Seat::new()];
    let mut writing = MultiStep::new(to, &seats[0]);
    let mut reading = MultiStep::new(from, &seats[1]);
    let mut sent = 0;
    let ended = loop {
        if sent > 0 && !reading.go_on() {
            break Ok(());
        }
        let most = buffer.len().min(count - sent);
        let bytes = User::lend_bytes(&mut buffer[..most]);
        let read = read_write::read_at(from, bytes, most, begin + sent as off_t);
        // A close of the source need not wait until all is written.
        reading.leave();
        if sent > 0 && !writing.go_on() {
            break Ok(());
        }
        let read = match read {
            // The kernel may refuse to send from this device.
            Ok(0) if sent == 0 && source.kind != Kind::Regular => return Ok(None),
            Ok(0) => break Ok(()),
            Ok(read) => read,
            Err(errno) if is_end(errno) => break Err(errno),
            Err(_) if sent == 0 => return Ok(None),
            Err(errno) => break Err(errno),
        };
        match write((to, target), bytes, read, sent + read < there, &mut writing) {
            Ok(written) => {
                sent += written;
                if written < read || sent == count {
                    break Ok(());
                }
            }
            Err(errno) => break Err(errno),
        }
    };
    if sent == 0 {
        return ended.map(|()| Some(0));
    }
    // A read from /dev/zero and its like moves no position.
    let moved =
        if source.kind == Kind::Device && source.storage == Storage::Memory { 0 } else { sent };
    let end = begin + moved as off_t;
    if !offset.is_null() {
        offset.write(end)?;
    } else if reading.go_on() {
        _ = seek(from, end, libc::SEEK_SET);
    }
    Ok(Some(sent))
}

fn seek(fd: c_int, place: off_t, whence: c_int) -> Answer {
    sys::call(Number::LSEEK, [fd.into(), place.into(), whence.into()])
}

/// Writes what was read from the source, as one of the steps of `writing`; `is_more` says whether further bytes follow.
fn write(
    (to, target): (c_int, Kind),
    bytes: User<c_void>,
    count: usize,
    is_more: bool,
    writing: &mut MultiStep,
) -> Answer {
    if target == Kind::Socket {
        let flags = if is_more { libc::MSG_MORE } else { 0 };
        return transmit_as(to, bytes, count, flags, (User::NULL, 0), writing);
    }
    // A write to a terminal registers as a waiter itself.
    writing.leave();
    read_write::write_all(to, bytes, count)
}
