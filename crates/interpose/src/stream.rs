//! `read`, `write` and their kin: of sockets, pipes, terminals and files.
//!
//! A call is tried without blocking first (`preadv2` with `RWF_NOWAIT`, which leaves the file's own
//! mode alone), and what cannot be done at once is submitted. A file in non-blocking mode answers a
//! submission with `EAGAIN` as well, so its mode need not be asked for.
//!
//! As on a thread, a read returns what there is, but of a regular file all that was asked for; and
//! a write to a file in blocking mode returns when all is written.
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

use std::ffi::{c_int, c_void};
use std::ptr;

use carefree_context::kernel;
use carefree_reactor::Op;
use carefree_runtime::Reason;
use carefree_runtime::offload_unchecked as offload;
use libc::{iovec, off_t};

use crate::buffers::Buffers;
use crate::fiber::answer;
use crate::files::{self, File, Kind, Limit};
use crate::parking::{self, Answer, On, Parked};
use crate::{socket, terminal};

system_call!(fn raw_read(fd: c_int, buffer: *mut c_void, length: usize) -> isize = SYS_read);
system_call!(fn raw_write(fd: c_int, buffer: *const c_void, length: usize) -> isize = SYS_write);
system_call!(fn raw_readv(fd: c_int, buffers: *const iovec, count: c_int) -> isize = SYS_readv);
system_call!(fn raw_writev(fd: c_int, buffers: *const iovec, count: c_int) -> isize = SYS_writev);
system_call!(
    fn raw_pread(fd: c_int, buffer: *mut c_void, length: usize, offset: off_t) -> isize
        = SYS_pread64
);
system_call!(
    fn raw_pwrite(fd: c_int, buffer: *const c_void, length: usize, offset: off_t) -> isize
        = SYS_pwrite64
);
// The kernel takes an offset in two halves, of which 64-bit processors use the lower one alone.
system_call!(
    fn raw_preadv(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> isize
        = SYS_preadv
);
system_call!(
    fn raw_pwritev(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> isize
        = SYS_pwritev
);

unsafe extern "C-unwind" fn raw_preadv2(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    answer(unsafe { vectored(libc::SYS_preadv2, fd, buffers, count as usize, offset, flags) })
}

unsafe extern "C-unwind" fn raw_pwritev2(
    fd: c_int,
    buffers: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> isize {
    // SAFETY: the caller's promise.
    answer(unsafe { vectored(libc::SYS_pwritev2, fd, buffers, count as usize, offset, flags) })
}

interpose! {
    /// `read(2)`.
    fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize, else raw_read {
        // SAFETY: the caller's promise.
        answer(unsafe { read_one(fd, buffer, length) })
    }
}

interpose! {
    /// `write(2)`.
    fn write(fd: c_int, buffer: *const c_void, length: usize) -> isize, else raw_write {
        // SAFETY: the caller's promise.
        answer(unsafe { write_all(fd, buffer, length) })
    }
}

interpose! {
    /// `readv(2)`.
    fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> isize, else raw_readv {
        // SAFETY: the caller's promise.
        answer(unsafe { get(fd, Given::array(buffers, count), At::Position, 0) })
    }
}

interpose! {
    /// `writev(2)`.
    fn writev(fd: c_int, buffers: *const iovec, count: c_int) -> isize, else raw_writev {
        // SAFETY: the caller's promise.
        answer(unsafe { put(fd, Given::array(buffers, count), At::Position, 0) })
    }
}

/// Defines functions that read or write at an offset, under both their names.
macro_rules! at_offset {
    ($($name:ident, $name64:ident, $buffer:ty, $raw:ident, $way:ident);* $(;)?) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "(2)`.")]
            fn $name(fd: c_int, buffer: $buffer, length: usize, offset: off_t) -> isize, else $raw {
                let buffer = iovec { iov_base: buffer as *mut c_void, iov_len: length };
                // SAFETY: the caller's promise.
                answer(unsafe { $way(fd, Given::one(&buffer), At::Offset(offset), 0) })
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name64), "(3)`: the same.")]
            fn $name64(fd: c_int, buffer: $buffer, length: usize, offset: off_t) -> isize, else $raw {
                // SAFETY: the caller's promise.
                unsafe { super::$name::on_fiber(fd, buffer, length, offset) }
            }
        }
    )*};
}

at_offset! {
    pread, pread64, *mut c_void, raw_pread, get;
    pwrite, pwrite64, *const c_void, raw_pwrite, put;
}

/// As [`at_offset`], with several buffers.
macro_rules! vectored_at_offset {
    ($($name:ident, $name64:ident, $raw:ident, $name2:ident, $name642:ident, $raw2:ident, $way:ident);* $(;)?) => {$(
        interpose! {
            #[doc = concat!("`", stringify!($name), "(2)`.")]
            fn $name(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> isize, else $raw {
                // SAFETY: the caller's promise.
                answer(unsafe { $way(fd, Given::array(buffers, count), At::Offset(offset), 0) })
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name64), "(3)`: the same.")]
            fn $name64(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t) -> isize, else $raw {
                // SAFETY: the caller's promise.
                answer(unsafe { $way(fd, Given::array(buffers, count), At::Offset(offset), 0) })
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name2), "(2)`.")]
            fn $name2(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize, else $raw2 {
                let at = if offset == -1 { At::Position } else { At::Offset(offset) };
                // SAFETY: the caller's promise.
                answer(unsafe { $way(fd, Given::array(buffers, count), at, flags) })
            }
        }

        interpose! {
            #[doc = concat!("`", stringify!($name642), "(3)`: the same.")]
            fn $name642(fd: c_int, buffers: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize, else $raw2 {
                let at = if offset == -1 { At::Position } else { At::Offset(offset) };
                // SAFETY: the caller's promise.
                answer(unsafe { $way(fd, Given::array(buffers, count), at, flags) })
            }
        }
    )*};
}

vectored_at_offset! {
    preadv, preadv64, raw_preadv, preadv2, preadv64v2, raw_preadv2, get;
    pwritev, pwritev64, raw_pwritev, pwritev2, pwritev64v2, raw_pwritev2, put;
}

/// `pread`, for other calls that read.
///
/// # Safety
/// As for libc's.
pub(crate) unsafe fn read_at(fd: c_int, to: *mut c_void, length: usize, offset: off_t) -> Answer {
    let buffer = iovec { iov_base: to, iov_len: length };
    // SAFETY: the caller's promise.
    unsafe { get(fd, Given::one(&buffer), At::Offset(offset), 0) }
}

/// `read`.
unsafe fn read_one(fd: c_int, to: *mut c_void, length: usize) -> Answer {
    if is_socket(fd, length) {
        // SAFETY: the caller's promise.
        let answer =
            unsafe { socket::receive(fd, to, length, 0, ptr::null_mut(), ptr::null_mut()) };
        if answer != Err(libc::ENOTSOCK) {
            return answer;
        }
    }
    let buffer = iovec { iov_base: to, iov_len: length };
    // SAFETY: the caller's promise.
    unsafe { get(fd, Given::one(&buffer), At::Position, 0) }
}

/// Whether `fd` is known to be a socket, which is tried faster by a socket's own calls:
/// `preadv2` reads a list of buffers first. (Without a byte to move the two are not the same.)
fn is_socket(fd: c_int, length: usize) -> bool {
    length > 0 && files::known(fd).is_some_and(File::is_known_socket)
}

/// `write`, for other calls that write too.
///
/// # Safety
/// As for libc's.
pub(crate) unsafe fn write_all(fd: c_int, from: *const c_void, length: usize) -> Answer {
    // A message may be empty, of which `pwritev2` knows nothing.
    let is_socket = match length {
        0 => files::file(fd).is_some_and(|file| file.kind(fd) == Kind::Socket),
        _ => is_socket(fd, length),
    };
    if is_socket {
        // SAFETY: the caller's promise.
        let answer = unsafe { socket::transmit(fd, from, length, 0, ptr::null(), 0) };
        if answer != Err(libc::ENOTSOCK) {
            return answer;
        }
    }
    let buffer = iovec { iov_base: from.cast_mut(), iov_len: length };
    // SAFETY: the caller's promise.
    unsafe { put(fd, Given::one(&buffer), At::Position, 0) }
}

/// The descriptions of a call's buffers.
#[derive(Clone, Copy, Debug)]
struct Given {
    first: *const iovec,
    count: c_int,
    /// They are not the caller's, who may be wrong about them.
    own: bool,
}

impl Given {
    fn array(first: *const iovec, count: c_int) -> Given {
        Given { first, count, own: false }
    }

    /// One of our own making.
    fn one(buffer: &iovec) -> Given {
        Given { first: buffer, count: 1, own: true }
    }

    /// What is left of it.
    fn rest(self, buffers: &Buffers) -> Given {
        Given { first: buffers.first(), count: buffers.count() as c_int, ..self }
    }

    /// # Safety
    /// As for [`Buffers::new`]; there are not less than none.
    unsafe fn buffers(self) -> Buffers {
        // SAFETY: the caller's promise.
        let mut buffers = unsafe { Buffers::new(self.first, self.count as usize) };
        if self.own {
            // SAFETY: it is there.
            unsafe { buffers.seen() };
        }
        buffers
    }
}

/// Where in a file.
#[derive(Clone, Copy, Debug)]
enum At {
    /// At its own position, which moves on.
    Position,
    /// There.
    Offset(off_t),
}

impl At {
    /// As `preadv2` and the reactor have it.
    fn number(self) -> off_t {
        match self {
            At::Position => -1,
            At::Offset(offset) => offset,
        }
    }

    fn further(self, bytes: usize) -> At {
        match self {
            At::Position => At::Position,
            At::Offset(offset) => At::Offset(offset + bytes as off_t),
        }
    }
}

/// `preadv2` or `pwritev2`.
unsafe fn vectored(
    number: libc::c_long,
    fd: c_int,
    buffers: *const iovec,
    count: usize,
    offset: off_t,
    flags: c_int,
) -> Answer {
    let arguments = [fd as usize, buffers as usize, count, offset as usize, 0, flags as usize];
    // SAFETY: the caller's promise.
    unsafe { kernel::call(number, arguments) }
}

/// Whether the try has shown that the call can only be answered by waiting, or not be tried.
fn must_wait(errno: c_int) -> bool {
    // Old kernels know no RWF_NOWAIT, or no preadv2 (ENOSYS).
    matches!(errno, libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS)
}

/// Looks at the buffers' descriptions after a try that was answered with `errno`.
///
/// # Errors
/// `EFAULT` if they are not there.
fn look_after_try(buffers: &mut Buffers, errno: c_int) -> Result<(), c_int> {
    if errno == libc::ENOSYS {
        return buffers.look();
    }
    // SAFETY: the kernel has read them before it could know that.
    unsafe { buffers.seen() };
    Ok(())
}

/// The most buffers the kernel takes.
const BUFFERS_MAX: c_int = libc::UIO_MAXIOV;

/// The flags that `preadv2` and `pwritev2` had when this was written: `RWF_HIPRI` to `RWF_DONTCACHE`.
const FLAGS: c_int = 0xff;

/// A call that the kernel refuses whatever the file: not one to be waited with. The reactor would
/// wait for the file before it asks.
fn is_odd(count: c_int, at: At, flags: c_int) -> bool {
    !(0..=BUFFERS_MAX).contains(&count)
        || matches!(at, At::Offset(offset) if offset < 0)
        || flags & !FLAGS != 0
}

/// Reads.
unsafe fn get(fd: c_int, given: Given, at: At, flags: c_int) -> Answer {
    if is_odd(given.count, at, flags) || flags & libc::RWF_NOWAIT != 0 {
        // SAFETY: the caller's promise.
        return unsafe { plainly(libc::SYS_preadv2, fd, given, at, flags) };
    }
    let file = files::file(fd);
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { given.buffers() };
    if given.own && buffers.is_absurd() {
        // SAFETY: as above.
        return unsafe { plainly(libc::SYS_preadv2, fd, given, at, flags) };
    }
    let mut got = 0;
    let mut dry = false;
    if file.is_none_or(|file| file.is_worth_a_try() || !file.is_blocking(fd)) {
        loop {
            // SAFETY: the caller's promise.
            let tried = unsafe {
                vectored(
                    libc::SYS_preadv2,
                    fd,
                    buffers.first(),
                    buffers.count(),
                    at.further(got).number(),
                    flags | libc::RWF_NOWAIT,
                )
            };
            match tried {
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
                        || file.is_none_or(|file| file.kind(fd) != Kind::Regular)
                    {
                        return Ok(got);
                    }
                    buffers.advance(read);
                }
                Err(errno) if must_wait(errno) => {
                    look_after_try(&mut buffers, errno)?;
                    dry = errno == libc::EAGAIN;
                    if let Some(file) = file {
                        if got > 0 && file.look(fd) != Kind::Regular {
                            return Ok(got);
                        }
                        file.tried(false);
                    }
                    break;
                }
                Err(errno) => return if got > 0 { Ok(got) } else { Err(errno) },
            }
        }
    }
    buffers.look()?;
    if buffers.is_absurd() {
        // SAFETY: the caller's promise.
        return unsafe { plainly(libc::SYS_preadv2, fd, given, at, flags) };
    }
    let offset = at.further(got).number() as u64;
    let op = match buffers.single().filter(|_| flags == 0) {
        Some(one) => Op::Read { fd, buffer: one.iov_base.cast(), length: one.iov_len, offset },
        None => {
            Op::ReadVectored { fd, iov: buffers.first(), count: buffers.count(), offset, flags }
        }
    };
    if is_impatient(file, fd) {
        return match got {
            0 if dry => Err(libc::EAGAIN),
            // It knows no try (an eventfd, a terminal), and needs none: the call itself does not wait.
            // SAFETY: the caller's promise.
            0 => unsafe { plainly(libc::SYS_preadv2, fd, given, at, flags) },
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
            terminal::Waited::Over => unsafe {
                return plainly(libc::SYS_preadv2, fd, given, at, flags);
            },
            terminal::Waited::Failed(errno) => return Err(errno),
        }
    }
    // SAFETY: the caller's promise.
    let rest = match unsafe { parking::perform(&op, on) } {
        Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
            let given = given.rest(&buffers);
            let at = at.further(got);
            // SAFETY: the caller's promise, who waits.
            unsafe { offload(|| plainly(libc::SYS_preadv2, fd, given, at, flags)) }
        }
        Parked::Answered(answer) => answer,
        Parked::Late => Err(libc::EAGAIN),
    };
    match rest {
        Ok(read) => Ok(got + read),
        Err(_) if got > 0 => Ok(got),
        Err(errno) => Err(errno),
    }
}

/// Writes.
unsafe fn put(fd: c_int, given: Given, at: At, flags: c_int) -> Answer {
    if is_odd(given.count, at, flags) || flags & libc::RWF_NOWAIT != 0 {
        // SAFETY: the caller's promise.
        return unsafe { plainly(libc::SYS_pwritev2, fd, given, at, flags) };
    }
    let file = files::file(fd);
    // SAFETY: the caller's promise.
    let mut buffers = unsafe { given.buffers() };
    if given.own && buffers.is_absurd() {
        // SAFETY: as above.
        return unsafe { plainly(libc::SYS_pwritev2, fd, given, at, flags) };
    }
    let mut put = 0;
    let mut full = false;
    let mut deadline = None;
    let mut answer;
    // What can be written at once.
    // SAFETY: the caller's promise.
    answer = unsafe {
        vectored(
            libc::SYS_pwritev2,
            fd,
            buffers.first(),
            buffers.count(),
            at.number(),
            flags | libc::RWF_NOWAIT,
        )
    };
    loop {
        match answer {
            Ok(written) => {
                // SAFETY: the kernel has.
                unsafe { buffers.seen() };
                put += written;
                if written >= buffers.left() || written == 0 {
                    return Ok(put);
                }
                buffers.advance(written);
            }
            Err(errno) if must_wait(errno) => {
                look_after_try(&mut buffers, errno)?;
                full = errno == libc::EAGAIN;
            }
            Err(_) if put > 0 => return Ok(put),
            Err(errno) => return Err(errno),
        }
        let here = at.further(put);
        let offset = here.number() as u64;
        let op = match buffers.single().filter(|_| flags == 0) {
            Some(one) => Op::Write { fd, buffer: one.iov_base.cast(), length: one.iov_len, offset },
            None => {
                let (iov, count) = (buffers.first(), buffers.count());
                Op::WriteVectored { fd, iov, count, offset, flags }
            }
        };
        if is_impatient(file, fd) {
            return match put {
                0 if full => Err(libc::EAGAIN),
                // As above.
                // SAFETY: the caller's promise.
                0 => unsafe { plainly(libc::SYS_pwritev2, fd, given, at, flags) },
                _ => Ok(put),
            };
        }
        let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
        let deadline = *deadline.get_or_insert_with(|| parking::deadline(fd, on.limit));
        // SAFETY: the caller's promise.
        let parked = unsafe {
            match file.is_some_and(|file| file.kind(fd) == Kind::Device) {
                true => terminal::write(&op, on, deadline),
                false => parking::perform_until(&op, on, deadline),
            }
        };
        answer = match parked {
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
                let given = given.rest(&buffers);
                // SAFETY: the caller's promise, who waits.
                unsafe { offload(|| plainly(libc::SYS_pwritev2, fd, given, here, flags)) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => return if put > 0 { Ok(put) } else { Err(libc::EAGAIN) },
        };
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

/// The call as it is, which may block.
unsafe fn plainly(number: libc::c_long, fd: c_int, given: Given, at: At, flags: c_int) -> Answer {
    let count = usize::try_from(given.count).map_err(|_| libc::EINVAL)?;
    if matches!(at, At::Offset(offset) if offset < 0) {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    match unsafe { vectored(number, fd, given.first, count, at.number(), flags) } {
        // Old kernels; and what is wrong with one buffer that its caller has given without a
        // description, the kernel says in other words.
        Err(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) if flags == 0 => {
            // SAFETY: the caller's promise.
            unsafe { simply(number == libc::SYS_preadv2, fd, given, at) }
        }
        answer => answer,
    }
}

/// The call by the first of its kind, which knows no flags.
unsafe fn simply(reads: bool, fd: c_int, given: Given, at: At) -> Answer {
    let Given { first, count, own } = given;
    let (number, [buffer, length]) = if own {
        let number = match (reads, at) {
            (true, At::Position) => libc::SYS_read,
            (false, At::Position) => libc::SYS_write,
            (true, At::Offset(_)) => libc::SYS_pread64,
            (false, At::Offset(_)) => libc::SYS_pwrite64,
        };
        // SAFETY: our own, so it is there.
        let one = unsafe { &*first };
        (number, [one.iov_base as usize, one.iov_len])
    } else {
        let number = match (reads, at) {
            (true, At::Position) => libc::SYS_readv,
            (false, At::Position) => libc::SYS_writev,
            (true, At::Offset(_)) => libc::SYS_preadv,
            (false, At::Offset(_)) => libc::SYS_pwritev,
        };
        (number, [first as usize, count as usize])
    };
    // SAFETY: the caller's promise.
    unsafe { kernel::call(number, [fd as usize, buffer, length, at.number() as usize, 0, 0]) }
}
