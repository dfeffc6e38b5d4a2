//! Reading and writing what has no position: sockets, pipes, terminals, timers and their like; and
//! reading at an offset of what has one.
//!
//! A call is tried without blocking first (`preadv2` with `RWF_NOWAIT`, which leaves the file's own
//! mode alone), and what cannot be done at once is submitted. A file in non-blocking mode answers a
//! submission with `EAGAIN` as well, so its mode need not be asked for.
//!
//! As on a thread, a read returns what there is, but of a regular file all that was asked for; and
//! a write to a pipe, a stream socket or a terminal in blocking mode returns when all is written.
//!
//! Where the try is refused (an old kernel, a file that knows no such thing, a sandbox), the call is
//! submitted as if the try had found nothing.
//!
//! # What the try costs
//!
//! A socket is tried by `recv` with `MSG_DONTWAIT`, which costs what a plain `read` of it does. For a
//! pipe the kernel has no such call: `preadv2` takes about a third more than `read`, most of it for
//! the list of buffers, so that `readv` is hardly cheaper. `vmsplice` with `SPLICE_F_NONBLOCK` saves a
//! little, but does not know the packets of a pipe opened with `O_DIRECT`, and bars the pipe from
//! `RWF_NOWAIT` from then on; to ask first (`poll`, `FIONREAD`) costs nearly a second `read` and is
//! no promise, since another reader may be faster; and to open the pipe anew in non-blocking mode
//! would keep its other end from noticing a close that is not seen here. (`cargo run --release
//! -p carefree-interpose --example costs pipe` prints what the whole of it costs here.)

use std::ffi::c_int;
use std::mem::MaybeUninit;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::msghdr;

use crate::anew;
use crate::buffers::Buffers;
use crate::files::{self, File, Limit};
use crate::kind::Kind;
use crate::parking::{self, Answer, On, Parked};
use crate::plain::{Call, Way, or_so_far};
use crate::steps::Steps;
use crate::storage::Storage;
use crate::{seekable, socket, terminal};

/// The most that one call moves. A buffer that is longer may reach beyond what a process can address:
/// the calls without a list of buffers refuse that, and those with one cut its length first, as a
/// socket's own do.
pub(crate) const LONGEST: usize = 0x7fff_f000;

/// Makes a call that reads or writes.
///
/// # Safety
/// As for the system call.
#[inline]
pub(crate) unsafe fn perform(call: &Call) -> Answer {
    if call.never_waits() {
        // SAFETY: the caller's promise.
        return unsafe { call.plainly() };
    }
    if call.given.single().is_some_and(|one| one.iov_len > LONGEST) {
        // SAFETY: the caller's promise, and the caller waits.
        return unsafe { seekable::elsewhere(call.fd, || call.plainly()) };
    }
    let file = files::file(call.fd);
    let seen = files::seen(file, call.fd);
    // SAFETY: the caller's promise, in each case.
    unsafe {
        if seen.storage != Storage::None && !is_for_the_reactor(call, seen.storage) {
            return seekable::perform(call, seen);
        }
        if call.given.single().is_some_and(|one| one.iov_len == 0) {
            return without_a_byte(call, seen.kind);
        }
        match call.way {
            Way::Read => get(call, file),
            Way::Write => put(call, file),
        }
    }
}

/// Whether a call on a file with a position can be left to the reactor: parts of a read at an offset
/// can be joined, and it moves nothing.
fn is_for_the_reactor(call: &Call, storage: Storage) -> bool {
    call.way == Way::Read
        && call.flags == 0
        && call.at.number() >= 0
        && matches!(storage, Storage::Disk | Storage::Other)
}

/// Reads or writes no bytes: what that means, the kind of file says (an eventfd refuses it), and
/// `preadv2`, which does not ask the file, says something else.
#[cold]
unsafe fn without_a_byte(call: &Call, kind: Kind) -> Answer {
    match kind {
        // SAFETY: the caller's promise.
        Kind::Socket | Kind::Pipe => unsafe { call.plainly() },
        // SAFETY: the caller's promise, and the caller waits. A few wait (an inotify for an event).
        _ if files::is_blocking(call.fd) => unsafe {
            seekable::elsewhere(call.fd, || call.plainly())
        },
        // SAFETY: the caller's promise.
        _ => unsafe { call.plainly() },
    }
}

/// Whether the try has shown that the call can only be answered by waiting, or not be tried.
fn must_wait(errno: c_int) -> bool {
    errno == libc::EAGAIN || errno == libc::EOPNOTSUPP || is_refused(errno)
}

/// Whether the kernel has not looked at the call at all: an old one knows no `preadv2`, and a sandbox
/// may not let it through.
fn is_refused(errno: c_int) -> bool {
    matches!(errno, libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// Whether a call has flags that few files know: which of them a try was refused for (`EOPNOTSUPP`)
/// cannot be told.
fn has_rare_flags(call: &Call) -> bool {
    call.flags & !libc::RWF_HIPRI != 0
}

/// Looks at the buffers' descriptions after a try that was answered with `errno`.
///
/// # Errors
/// `EFAULT` if they are not there.
fn look_after_try(buffers: &mut Buffers, errno: c_int) -> Result<(), c_int> {
    if is_refused(errno) {
        return buffers.look();
    }
    // SAFETY: the kernel has read them before it could know that.
    unsafe { buffers.seen() };
    Ok(())
}

/// Whether a call would go to a position: what a file is, is asked again before one is submitted that
/// should have none, for a number that was closed unseen may be another file's by now.
fn is_misplaced(call: &Call, file: Option<&File>) -> bool {
    if call.at.number() >= 0 {
        return false;
    }
    if let Some(file) = file {
        file.look(call.fd);
    }
    files::seen(file, call.fd).storage != Storage::None
}

/// The operation for what is left of a call.
fn operation(call: &Call, buffers: &Buffers, done: usize) -> Op {
    let fd = call.fd;
    let offset = call.at.further(done).number() as u64;
    // A ring takes it for files that are asked again and again only; on others it means nothing.
    let flags = call.flags & !libc::RWF_HIPRI;
    let (iov, count) = (buffers.first(), buffers.count());
    match (call.way, buffers.single().filter(|_| flags == 0)) {
        (Way::Read, Some(one)) => {
            Op::Read { fd, buffer: one.iov_base.cast(), length: one.iov_len, offset }
        }
        (Way::Read, None) => Op::ReadVectored { fd, iov, count, offset, flags },
        (Way::Write, Some(one)) => {
            Op::Write { fd, buffer: one.iov_base.cast(), length: one.iov_len, offset }
        }
        (Way::Write, None) => Op::WriteVectored { fd, iov, count, offset, flags },
    }
}

/// What is left of a call.
fn rest(call: &Call, buffers: &Buffers, done: usize) -> Call {
    Call { given: call.given.rest(buffers), at: call.at.further(done), ..*call }
}

/// Reads.
unsafe fn get(call: &Call, file: Option<&'static File>) -> Answer {
    let fd = call.fd;
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { call.given.buffers() };
    let seat = Seat::new();
    let mut steps = Steps::of(file, fd, &seat);
    let mut got = 0;
    let mut dry = false;
    // At a place it is tried always: a reactor takes no notice of the place where there is none.
    let is_placed = call.at.number() >= 0;
    if is_placed || file.is_none_or(|file| file.is_worth_a_try() || !file.is_blocking(fd)) {
        loop {
            // SAFETY: the caller's promise.
            match unsafe { call.at_once(&buffers, call.at.further(got)) } {
                Ok(read) => {
                    // SAFETY: the kernel has.
                    unsafe { buffers.seen() };
                    if let Some(file) = file {
                        file.tried(true);
                    }
                    got += read;
                    // What is not in memory yet of a regular file is waited for.
                    if read == 0
                        || read >= buffers.left()
                        || !is_at_offset_of_regular(call, file)
                        || !steps.go_on()
                    {
                        return Ok(got);
                    }
                    buffers.advance(read);
                }
                Err(errno) if must_wait(errno) => {
                    look_after_try(&mut buffers, errno)?;
                    dry = errno == libc::EAGAIN;
                    if let Some(file) = file {
                        file.tried(false);
                    }
                    if !dry && is_misplaced(call, file) {
                        // SAFETY: the caller's promise.
                        return unsafe { seekable::perform(call, files::seen(file, fd)) };
                    }
                    if errno == libc::EOPNOTSUPP && has_rare_flags(call) {
                        // SAFETY: as above, and it waits.
                        return unsafe { seekable::elsewhere(fd, || call.plainly()) };
                    }
                    break;
                }
                Err(errno) => return if got > 0 { Ok(got) } else { Err(errno) },
            }
        }
    }
    buffers.look()?;
    if buffers.is_absurd() || buffers.left() == 0 {
        // SAFETY: the caller's promise.
        return unsafe { call.plainly() };
    }
    if is_impatient(file, fd) {
        return match got {
            0 if dry => Err(libc::EAGAIN),
            // It knows no try (an eventfd, a terminal), and needs none: the call itself does not wait.
            // SAFETY: the caller's promise.
            0 => unsafe { call.plainly() },
            _ => Ok(got),
        };
    }
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    if file.is_none_or(|file| file.kind(fd) == Kind::Device) {
        match terminal::wait(fd, on) {
            terminal::Waited::AsEver => {}
            terminal::Waited::GivenUp => return Ok(got),
            // Something is there, or the terminal says at once that nothing is.
            // SAFETY: the caller's promise.
            terminal::Waited::Over => return unsafe { call.plainly() },
            terminal::Waited::Failed(errno) => return Err(errno),
        }
    }
    loop {
        let op = operation(call, &buffers, got);
        // SAFETY: the caller's promise.
        let more = match unsafe { parking::perform(&op, on) } {
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                let rest = rest(call, &buffers, got);
                // SAFETY: the caller's promise, and the caller waits.
                unsafe { steps.elsewhere(|| rest.plainly()) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        match more {
            Ok(read) => {
                got += read;
                // A reactor may read a part of what there is of a regular file; a thread gets all.
                if read == 0
                    || read >= buffers.left()
                    || !is_at_offset_of_regular(call, file)
                    || !steps.go_on()
                {
                    return Ok(got);
                }
                buffers.advance(read);
            }
            Err(_) if got > 0 => return Ok(got),
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether a call names a place in a regular file: then a read goes on until it has all.
fn is_at_offset_of_regular(call: &Call, file: Option<&File>) -> bool {
    call.at.number() >= 0 && file.is_some_and(|file| file.kind(call.fd) == Kind::Regular)
}

/// Writes.
unsafe fn put(call: &Call, file: Option<&'static File>) -> Answer {
    let fd = call.fd;
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { call.given.buffers() };
    let seat = Seat::new();
    let mut steps = Steps::of(file, fd, &seat);
    let is_socket = call.at.number() < 0 && file.is_some_and(|file| file.kind(fd) == Kind::Socket);
    let mut put = 0;
    // What can be written at once. After a part once more, if the rest is to be waited for: it may have
    // ended because there is no more room, or at a pointer that leads nowhere, which is not waited for.
    let full = loop {
        // SAFETY: the caller's promise.
        let tried = unsafe { call.at_once(&buffers, call.at.further(put)) };
        let tried = match tried {
            Err(libc::EOPNOTSUPP) if may_be_written_anew(call, file) => {
                // SAFETY: as above.
                unsafe { anew::write(fd, &buffers) }.unwrap_or(tried)
            }
            tried => tried,
        };
        match tried {
            Err(errno) if must_wait(errno) => {
                look_after_try(&mut buffers, errno)?;
                if put == 0 && is_misplaced(call, file) {
                    // SAFETY: the caller's promise.
                    return unsafe { seekable::perform(call, files::seen(file, fd)) };
                }
                if put == 0 && errno == libc::EOPNOTSUPP && has_rare_flags(call) {
                    // SAFETY: as above, and it waits.
                    return unsafe { seekable::elsewhere(fd, || call.plainly()) };
                }
                break errno == libc::EAGAIN;
            }
            Err(_) if put > 0 => return Ok(put),
            tried => {
                let written = tried?;
                // SAFETY: the kernel has.
                unsafe { buffers.seen() };
                put += written;
                if written >= buffers.left()
                    || written == 0
                    || !goes_on(file, fd)
                    || is_impatient(file, fd)
                    || !steps.go_on()
                    || is_misplaced(call, file)
                {
                    return Ok(put);
                }
                buffers.advance(written);
                if is_socket {
                    break true;
                }
            }
        }
    };
    if is_impatient(file, fd) {
        return match put {
            0 if full => Err(libc::EAGAIN),
            // As above.
            // SAFETY: the caller's promise.
            0 => unsafe { call.plainly() },
            _ => Ok(put),
        };
    }
    if is_socket {
        // A call that has sent a part leaves the error and the signal to the next one.
        let message = header(&buffers);
        // SAFETY: the caller's promise.
        match unsafe { socket::transmit_rest(fd, &message, 0, put > 0, &mut steps) } {
            Err(libc::ENOTSOCK) => {}
            answer => return or_so_far(put, answer),
        }
        // It was closed unseen, and is another file's by now.
        _ = file.map(|file| file.look(fd));
    }
    let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
    let deadline = parking::deadline(fd, on.limit);
    loop {
        let op = operation(call, &buffers, put);
        // SAFETY: the caller's promise.
        let parked = unsafe {
            match file.is_some_and(|file| file.kind(fd) == Kind::Device) && terminal::is_one(fd) {
                true => terminal::write(&op, on, deadline),
                false => parking::perform_until(&op, on, deadline),
            }
        };
        let answer = match parked {
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                let rest = rest(call, &buffers, put);
                // SAFETY: the caller's promise, and the caller waits.
                unsafe { steps.elsewhere(|| rest.plainly()) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        match answer {
            Ok(written) => {
                put += written;
                if written >= buffers.left() || written == 0 || !goes_on(file, fd) || !steps.go_on()
                {
                    return Ok(put);
                }
                buffers.advance(written);
            }
            Err(_) if put > 0 => return Ok(put),
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether a write that cannot be tried is one to a pipe that would be waited for.
#[cold]
fn may_be_written_anew(call: &Call, file: Option<&File>) -> bool {
    // Asked anew what it is: of what has a position, another opening has another one.
    call.flags == 0
        && call.at.number() < 0
        && file.is_some_and(|file| file.look(call.fd) == Kind::Pipe)
        && !is_impatient(file, call.fd)
}

/// A message of what is left.
fn header(buffers: &Buffers) -> msghdr {
    // SAFETY: zeros are a header without anything; its padding differs between libcs.
    let mut message: msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = buffers.first().cast_mut();
    message.msg_iovlen = buffers.count() as _;
    message
}

/// Whether a write of `fd` in blocking mode goes on after a part: not where each write is a message.
fn goes_on(file: Option<&File>, fd: c_int) -> bool {
    match file.map_or(Kind::Unknown, |file| file.kind(fd)) {
        Kind::Socket | Kind::Pipe | Kind::Unknown => true,
        Kind::Device => terminal::is_one(fd),
        Kind::Regular | Kind::Stream => false,
    }
}

/// Whether `fd` is in blocking mode.
pub(crate) fn blocking(file: Option<&File>, fd: c_int) -> bool {
    file.map_or_else(|| files::is_blocking(fd), |file| file.is_blocking(fd))
}

/// Whether a call on `fd` is to fail rather than to wait. Of a regular file the mode has no say in it.
fn is_impatient(file: Option<&File>, fd: c_int) -> bool {
    !blocking(file, fd) && file.is_none_or(|file| file.kind(fd) != Kind::Regular)
}
