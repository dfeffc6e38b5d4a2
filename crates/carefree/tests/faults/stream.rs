//! Streams of bytes, each of which shows its stream and place, and calls that carry them.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, iovec};

use crate::plan;

/// An `errno`.
pub(crate) type Errno = c_int;

/// The content of a buffer where nothing was read.
const BLANK: u8 = 0xee;
/// Its content when its fiber does not use it any more.
const DONE: u8 = 0x11;

/// Calls that failed for want of memory: no more than the plan made fail.
pub(crate) static WANTS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// The result of a call of libc's.
pub(crate) fn checked(result: impl Into<i64>) -> Result<usize, Errno> {
    usize::try_from(result.into()).map_err(|_| errno())
}

/// Whether this is an error for want of memory, after which nothing was done.
pub(crate) fn is_want(errno: Errno) -> bool {
    let is = matches!(errno, libc::ENOMEM | libc::ENOBUFS);
    if is {
        WANTS.fetch_add(1, Ordering::Relaxed);
    }
    is
}

/// Makes a call again while it fails for want of memory.
pub(crate) fn insist<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(errno) if is_want(errno) => {}
            answer => return answer,
        }
    }
}

/// The byte at a place of a stream.
fn byte(stream: u64, place: u64) -> u8 {
    let x = (place ^ stream << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
}

pub(crate) fn fill(stream: u64, place: u64, buffer: &mut [u8]) {
    for (n, out) in buffer.iter_mut().enumerate() {
        *out = byte(stream, place + n as u64);
    }
}

#[track_caller]
pub(crate) fn compare(stream: u64, place: u64, got: &[u8]) {
    for (n, &had) in got.iter().enumerate() {
        let place = place + n as u64;
        assert_eq!(had, byte(stream, place), "stream {stream}, place {place}");
    }
}

/// The call that reads or writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Plain,
    Vectored,
    /// `recv` or `send`.
    Socket,
    /// `recv` with `MSG_WAITALL`, or `sendmsg`.
    Whole,
    /// `recvmsg` with `MSG_WAITALL`, or `sendmsg`.
    WholeMessage,
    /// `recvmsg` or `sendmsg`.
    Message,
}

impl By {
    pub(crate) fn draw(random: &mut fastrand::Rng, is_socket: bool) -> By {
        match random.u8(0..if is_socket { 6 } else { 2 }) {
            0 => By::Plain,
            1 => By::Vectored,
            2 => By::Socket,
            3 => By::Whole,
            4 => By::WholeMessage,
            _ => By::Message,
        }
    }
}

/// One buffer as two.
fn halves(buffer: *mut u8, length: usize, random: &mut fastrand::Rng) -> [iovec; 2] {
    let first = random.usize(0..=length);
    [
        iovec { iov_base: buffer.cast(), iov_len: first },
        iovec { iov_base: buffer.wrapping_add(first).cast(), iov_len: length - first },
    ]
}

fn header(pieces: &mut [iovec; 2]) -> libc::msghdr {
    // SAFETY: plain old data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), 2);
    message
}

/// Reads a part of a stream from `place` on, and compares it. Returns the number of bytes; 0 at the end.
pub(crate) fn read(
    fd: RawFd,
    stream: u64,
    place: u64,
    by: By,
    random: &mut fastrand::Rng,
) -> Result<usize, Errno> {
    read_some(fd, stream, place, by, random).0
}

/// [`read`]; also returns how many bytes were asked for.
fn read_some(
    fd: RawFd,
    stream: u64,
    place: u64,
    by: By,
    random: &mut fastrand::Rng,
) -> (Result<usize, Errno>, usize) {
    // On the stack or on the heap, at another address each time.
    let most = if random.bool() { 100 } else { 2000 };
    let length = random.usize(1..=most);
    if length <= 128 {
        let mut buffer = [0u8; 128];
        return (read_into(&mut buffer, length, fd, stream, place, by, random), length);
    }
    let mut buffer = vec![0u8; length + random.usize(0..64)];
    (read_into(&mut buffer, length, fd, stream, place, by, random), length)
}

fn read_into(
    buffer: &mut [u8],
    length: usize,
    fd: RawFd,
    stream: u64,
    place: u64,
    by: By,
    random: &mut fastrand::Rng,
) -> Result<usize, Errno> {
    buffer.fill(BLANK);
    let start = buffer.as_mut_ptr();
    let mut pieces = halves(start, length, random);
    // SAFETY: the buffer is as long, in each.
    let answer = insist(|| unsafe {
        checked(match by {
            By::Plain => libc::read(fd, start.cast(), length),
            By::Vectored => libc::readv(fd, pieces.as_ptr(), 2),
            By::Socket => libc::recv(fd, start.cast(), length, 0),
            By::Whole => libc::recv(fd, start.cast(), length, libc::MSG_WAITALL),
            By::Message => {
                let mut message = header(&mut pieces);
                libc::recvmsg(fd, &raw mut message, 0)
            }
            By::WholeMessage => {
                let mut message = header(&mut pieces);
                libc::recvmsg(fd, &raw mut message, libc::MSG_WAITALL)
            }
        } as i64)
    });
    let got = answer.unwrap_or(0);
    compare(stream, place, &buffer[..got]);
    let rest = &buffer[got..];
    assert!(
        rest.iter().all(|&byte| byte == BLANK),
        "written beyond {answer:?} of {length} by {by:?}, at {place}"
    );
    leave(buffer, random);
    answer
}

/// The fiber is done with its buffer, and fills it: nothing may write to it any more.
fn leave(buffer: &mut [u8], random: &mut fastrand::Rng) {
    buffer.fill(DONE);
    // This does not consume a limit or a cancellation of the call.
    carefree::shield(|| match random.u8(0..8) {
        0 => carefree::sleep(std::time::Duration::from_micros(random.u64(0..300))),
        1 => carefree::yield_now(),
        _ => {}
    });
    assert!(std::hint::black_box(buffer).iter().all(|&byte| byte == DONE), "written to afterwards");
}

/// Writes up to `length` bytes of a stream from `place` on. Returns the number of bytes.
pub(crate) fn write(
    fd: RawFd,
    stream: u64,
    place: u64,
    length: usize,
    by: By,
    random: &mut fastrand::Rng,
) -> Result<usize, Errno> {
    let mut buffer = vec![0u8; length];
    fill(stream, place, &mut buffer);
    let start = buffer.as_mut_ptr();
    let mut pieces = halves(start, length, random);
    // SAFETY: the buffer is as long, in each.
    let answer = insist(|| unsafe {
        checked(match by {
            By::Plain => libc::write(fd, start.cast(), length),
            By::Vectored => libc::writev(fd, pieces.as_ptr(), 2),
            By::Socket => libc::send(fd, start.cast(), length, 0),
            By::Whole | By::WholeMessage | By::Message => {
                let message = header(&mut pieces);
                libc::sendmsg(fd, &raw const message, 0)
            }
        } as i64)
    });
    leave(&mut buffer, random);
    answer
}

/// Writes all of a stream, in calls of any length.
pub(crate) fn write_all(
    fd: RawFd,
    stream: u64,
    total: u64,
    is_socket: bool,
    random: &mut fastrand::Rng,
) {
    let mut place = 0;
    while place < total {
        let most = if random.bool() { 300 } else { 30_000 };
        let length = random.u64(1..=most.min(total - place)) as usize;
        let by = By::draw(random, is_socket);
        let put = write(fd, stream, place, length, by, random);
        let put = put.unwrap_or_else(|errno| panic!("errno {errno} by {by:?} at {place}"));
        // A call that runs out of memory after a part returns the part.
        assert!(put == length || plan::fails(), "{put} of {length} bytes by {by:?} at {place}");
        assert!(put > 0);
        place += put as u64;
    }
}

/// Reads a stream to its end, which must be after `total` bytes.
pub(crate) fn read_all(
    fd: RawFd,
    stream: u64,
    total: u64,
    is_socket: bool,
    random: &mut fastrand::Rng,
) {
    let mut place = 0;
    loop {
        let by = By::draw(random, is_socket);
        let (got, length) = read_some(fd, stream, place, by, random);
        let got = got.unwrap_or_else(|errno| panic!("errno {errno} by {by:?} at {place}"));
        let all = length.min((total - place) as usize);
        let whole = matches!(by, By::Whole | By::WholeMessage) && !plan::fails();
        assert!(got == all || !whole, "{got} of {all} bytes by {by:?} at {place}");
        place += got as u64;
        if got == 0 {
            break;
        }
    }
    assert_eq!(place, total, "stream {stream} ends here");
}
