//! Makes one call, and says what came of it.

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::memory::{Digest, Fill};
use crate::program::{Buffer, Call, Family, Lies, List, Moment, Span, Step, Via, Word};
use crate::sequence::{Going, fill, patience_of};
use crate::system::{errno, name, read_ready};
use crate::world::{What, set_timer};

/// What came of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What was returned, or the error's name.
    pub(crate) result: String,
    pub(crate) more: String,
}

/// Makes a call by its function or by its number. The arguments after the semicolon are what the
/// number takes besides.
macro_rules! make {
    ($via:expr, $function:ident, $number:ident, $($argument:expr),* $(; $($more:expr),*)?) => {{
        let result = match $via {
            // SAFETY: the kernel says so where an address is wrong; nothing it is given is used by others.
            Via::Function => unsafe { libc::$function($($argument),*) as i64 },
            // SAFETY: as above.
            Via::Number => unsafe { libc::syscall(libc::$number, $($argument),* $(, $($more),*)?) as i64 },
        };
        if result < 0 { Err(errno()) } else { Ok(result) }
    }};
}

type Answer = Result<i64, c_int>;

fn outcome(answer: Answer, more: String) -> Outcome {
    let result = match answer {
        Ok(value) => value.to_string(),
        Err(errno) => name(errno),
    };
    Outcome { result, more }
}

fn plain(answer: Answer) -> Outcome {
    outcome(answer, String::new())
}

/// As `plain`, of a call whose value is a number of a file.
fn done(answer: Answer) -> Outcome {
    plain(answer.map(|_| 0))
}

/// Performs `step`, which has a `number`.
pub(crate) fn perform(going: &mut Going, step: &Step, number: usize) -> Outcome {
    let via = step.via;
    let filled = |going: &Going, slot: u8| fill(going.world.slot(slot), number);
    match &step.call {
        Call::Read { fd, to } => {
            let place = going.memory.filled(0, *to, Fill::Step(number));
            let answer = make!(via, read, SYS_read, going.world.fd(*fd), place, to.length as usize);
            received(going, answer, &[*to])
        }
        Call::Write { fd, from } => {
            let place = going.memory.filled(0, *from, filled(going, *fd));
            plain(make!(via, write, SYS_write, going.world.fd(*fd), place, from.length as usize))
        }
        Call::ReadAt { fd, to, offset } => {
            let place = going.memory.filled(0, *to, Fill::Step(number));
            let (fd, length) = (going.world.fd(*fd), to.length as usize);
            let answer = make!(via, pread, SYS_pread64, fd, place, length, *offset);
            received(going, answer, &[*to])
        }
        Call::WriteAt { fd, from, offset } => {
            let place = going.memory.filled(0, *from, filled(going, *fd));
            let (fd, length) = (going.world.fd(*fd), from.length as usize);
            plain(make!(via, pwrite, SYS_pwrite64, fd, place, length, *offset))
        }
        Call::ReadList { fd, list } => {
            let (first, count) = going.memory.list(list, Fill::Step(number));
            let answer = make!(via, readv, SYS_readv, going.world.fd(*fd), first, count);
            received(going, answer, &list.buffers)
        }
        Call::WriteList { fd, list } => {
            let (first, count) = going.memory.list(list, filled(going, *fd));
            plain(make!(via, writev, SYS_writev, going.world.fd(*fd), first, count))
        }
        Call::ReadListAt { fd, list, offset } => {
            let (first, count) = going.memory.list(list, Fill::Step(number));
            let fd = going.world.fd(*fd);
            let answer = make!(via, preadv, SYS_preadv, fd, first, count, *offset; 0usize);
            received(going, answer, &list.buffers)
        }
        Call::WriteListAt { fd, list, offset } => {
            let (first, count) = going.memory.list(list, filled(going, *fd));
            let fd = going.world.fd(*fd);
            plain(make!(via, pwritev, SYS_pwritev, fd, first, count, *offset; 0usize))
        }
        Call::ReadFlagged { fd, list, offset, flags } => {
            let (first, count) = going.memory.list(list, Fill::Step(number));
            let fd = going.world.fd(*fd);
            let answer = flagged(via, true, fd, first, count, *offset, *flags);
            received(going, answer, &list.buffers)
        }
        Call::WriteFlagged { fd, list, offset, flags } => {
            let (first, count) = going.memory.list(list, filled(going, *fd));
            let fd = going.world.fd(*fd);
            plain(flagged(via, false, fd, first, count, *offset, *flags))
        }
        Call::Receive { fd, to, flags } => {
            let place = going.memory.filled(0, *to, Fill::Step(number));
            let (fd, length) = (going.world.fd(*fd), to.length as usize);
            let null = ptr::null_mut::<c_void>();
            let answer = make!(
                via, recv, SYS_recvfrom, fd, place, length, *flags; null, null
            );
            received(going, answer, &[*to])
        }
        Call::Send { fd, from, flags } => {
            let place = going.memory.filled(0, *from, filled(going, *fd));
            let (fd, length) = (going.world.fd(*fd), from.length as usize);
            let null = ptr::null_mut::<c_void>();
            plain(make!(via, send, SYS_sendto, fd, place, length, *flags; null, 0usize))
        }
        Call::ReceiveMessage { fd, list, flags } => {
            let mut message = message(going, list, Fill::Step(number));
            let fd = going.world.fd(*fd);
            let answer = make!(via, recvmsg, SYS_recvmsg, fd, &raw mut message, *flags);
            let mut outcome = received(going, answer, &list.buffers);
            if answer.is_ok() {
                outcome.more += &format!(", flags {:#x}", message.msg_flags);
            }
            outcome
        }
        Call::SendMessage { fd, list, flags } => {
            let message = message(going, list, filled(going, *fd));
            let fd = going.world.fd(*fd);
            plain(make!(via, sendmsg, SYS_sendmsg, fd, &raw const message, *flags))
        }
        Call::ReceiveFrom { fd, to, flags, room } => {
            let place = going.memory.filled(0, *to, Fill::Step(number));
            let (fd, length) = (going.world.fd(*fd), to.length as usize);
            // SAFETY: all zeros is an address.
            let mut address: libc::sockaddr_storage = unsafe { mem::zeroed() };
            let mut size = libc::socklen_t::from(*room);
            let (at, room) = ((&raw mut address).cast(), &raw mut size);
            let answer = make!(via, recvfrom, SYS_recvfrom, fd, place, length, *flags, at, room);
            let mut outcome = received(going, answer, &[*to]);
            if answer.is_ok() {
                outcome.more += &format!(", address of {size} bytes, {}", address.ss_family);
            }
            outcome
        }
        Call::ReceiveMany { fd, to, flags, span } => {
            let mut many = Many::new(going, to, Fill::Step(number));
            let (first, count) = many.list();
            let mut time = span.map(time);
            let at = match span {
                Some(Span::Nowhere) => going.memory.place(ARENA_OF_LISTS, 16, Lies::Nowhere).cast(),
                _ => time.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            };
            let fd = going.world.fd(*fd);
            let answer = make!(via, recvmmsg, SYS_recvmmsg, fd, first, count, *flags, at);
            let mut more = String::new();
            let came = answer.unwrap_or(0).max(0) as usize;
            for (at, header) in many.headers.iter().enumerate().take(came) {
                let bytes = header.msg_len as usize;
                let sum = going.memory.digest_of(at, to[at], bytes);
                more += &format!(", {bytes} {sum:016x} {:#x}", header.msg_hdr.msg_flags);
            }
            outcome(answer, more)
        }
        Call::SendMany { fd, from, flags } => {
            let mut many = Many::new(going, from, filled(going, *fd));
            let (first, count) = many.list();
            let fd = going.world.fd(*fd);
            let answer = make!(via, sendmmsg, SYS_sendmmsg, fd, first, count, *flags);
            let sent = &many.headers[..answer.unwrap_or(0).max(0) as usize];
            outcome(answer, sent.iter().map(|header| format!(", {}", header.msg_len)).collect())
        }
        Call::SendFiles { fd, from, flags, file, files } => {
            let mut part = libc::iovec {
                iov_base: going.memory.filled(0, *from, filled(going, *fd)),
                iov_len: from.length as usize,
            };
            let mut control = Control::new(&vec![going.world.fd(*file); usize::from(*files)]);
            let message = control.message(&mut part);
            let fd = going.world.fd(*fd);
            plain(make!(via, sendmsg, SYS_sendmsg, fd, &raw const message, *flags))
        }
        Call::ReceiveFiles { fd, to, flags, files } => {
            let mut part = libc::iovec {
                iov_base: going.memory.filled(0, *to, Fill::Step(number)),
                iov_len: to.length as usize,
            };
            let mut control = Control::new(&vec![-1; usize::from(*files)]);
            let mut message = control.message(&mut part);
            let fd = going.world.fd(*fd);
            let answer = make!(via, recvmsg, SYS_recvmsg, fd, &raw mut message, *flags);
            let mut outcome = received(going, answer, &[*to]);
            if answer.is_ok() {
                let came = close_received(&message);
                outcome.more += &format!(", {came} files, flags {:#x}", message.msg_flags);
            }
            outcome
        }
        Call::Accept { fd, to } => {
            let (null, none) = (ptr::null_mut(), ptr::null_mut());
            let answer = make!(via, accept, SYS_accept, going.world.fd(*fd), null, none);
            if let Ok(fd) = answer {
                going.world.accepted(*to, fd as c_int);
            }
            done(answer)
        }
        Call::Seek { fd, offset, whence } => {
            plain(make!(Via::Function, lseek, SYS_lseek, going.world.fd(*fd), *offset, *whence))
        }
        Call::Truncate { fd, length } => {
            let length = i64::from(*length);
            plain(make!(Via::Function, ftruncate, SYS_ftruncate, going.world.fd(*fd), length))
        }
        Call::SendFile { to, from, offset, count } => {
            let target = *to;
            let (to, from) = (going.world.fd(*to), going.world.fd(*from));
            let mut place = offset.unwrap_or(0);
            let at = if offset.is_some() { &raw mut place } else { ptr::null_mut() };
            let answer = make!(via, sendfile, SYS_sendfile, to, from, at, *count as usize);
            let came = sent_by_reference(going, target);
            outcome(answer, format!(", offset {place}{came}"))
        }
        Call::Splice { from, from_offset, to, to_offset, length, flags } => {
            let target = *to;
            let (from, to) = (going.world.fd(*from), going.world.fd(*to));
            let (mut one, mut other) = (from_offset.unwrap_or(0), to_offset.unwrap_or(0));
            let at = if from_offset.is_some() { &raw mut one } else { ptr::null_mut() };
            let onto = if to_offset.is_some() { &raw mut other } else { ptr::null_mut() };
            let length = *length as usize;
            let answer = make!(via, splice, SYS_splice, from, at, to, onto, length, *flags);
            let came = sent_by_reference(going, target);
            outcome(answer, format!(", offsets {one} {other}{came}"))
        }
        Call::Tee { from, to, length, flags } => {
            let (from, to) = (going.world.fd(*from), going.world.fd(*to));
            plain(make!(via, tee, SYS_tee, from, to, *length as usize, *flags))
        }
        Call::GiveMemory { fd, list, flags } => {
            let (first, count) = going.memory.list(list, Fill::Step(number));
            let count = count as usize;
            let fd = going.world.fd(*fd);
            let answer = make!(via, vmsplice, SYS_vmsplice, fd, first, count, *flags);
            received(going, answer, &list.buffers)
        }
        Call::CopyRange { from, from_offset, to, to_offset, length } => {
            let (from, to) = (going.world.fd(*from), going.world.fd(*to));
            let (mut one, mut other) = (from_offset.unwrap_or(0), to_offset.unwrap_or(0));
            let at = if from_offset.is_some() { &raw mut one } else { ptr::null_mut() };
            let onto = if to_offset.is_some() { &raw mut other } else { ptr::null_mut() };
            let length = *length as usize;
            let answer =
                make!(via, copy_file_range, SYS_copy_file_range, from, at, to, onto, length, 0);
            outcome(answer, format!(", offsets {one} {other}"))
        }
        Call::Sync { fd, data: true } => {
            plain(make!(via, fdatasync, SYS_fdatasync, going.world.fd(*fd)))
        }
        Call::Sync { fd, data: false } => plain(make!(via, fsync, SYS_fsync, going.world.fd(*fd))),
        Call::Dup { fd, to } => {
            let answer = make!(via, dup, SYS_dup, going.world.fd(*fd));
            if let Ok(new) = answer {
                going.world.copied(*fd, *to, new as c_int);
            }
            done(answer)
        }
        Call::DupOnto { fd, to } => {
            let target = going.world.fd(*to);
            let answer = make!(via, dup3, SYS_dup3, going.world.fd(*fd), target, libc::O_CLOEXEC);
            if answer.is_ok() {
                going.world.copied(*fd, *to, target);
            }
            done(answer)
        }
        Call::Close { fd } => {
            let answer = make!(via, close, SYS_close, going.world.fd(*fd));
            if answer.is_ok() {
                going.world.closed(*fd);
            }
            plain(answer)
        }
        Call::Shutdown { fd, how } => {
            plain(make!(Via::Function, shutdown, SYS_shutdown, going.world.fd(*fd), *how))
        }
        Call::SetNonblocking { fd, on } => {
            plain(set_mode(via, going.world.fd(*fd), libc::O_NONBLOCK, *on))
        }
        Call::SetAppending { fd, on } => {
            plain(set_mode(via, going.world.fd(*fd), libc::O_APPEND, *on))
        }
        Call::SetNonblockingByIoctl { fd, on } => {
            let mut on = c_int::from(*on);
            plain(make!(via, ioctl, SYS_ioctl, going.world.fd(*fd), libc::FIONBIO, &raw mut on))
        }
        Call::Available { fd } => {
            let mut bytes: c_int = -1;
            let fd = going.world.fd(*fd);
            let answer = make!(via, ioctl, SYS_ioctl, fd, libc::FIONREAD, &raw mut bytes);
            outcome(answer, format!(", {bytes}"))
        }
        Call::Lock { fd, how } => {
            plain(make!(via, flock, SYS_flock, going.world.fd(*fd), *how | libc::LOCK_NB))
        }
        Call::LockRange { fd, kind, start, length } => {
            // SAFETY: all zeros is a lock.
            let mut lock: libc::flock = unsafe { mem::zeroed() };
            lock.l_type = *kind;
            (lock.l_start, lock.l_len) = (i64::from(*start), i64::from(*length));
            let place = &raw mut lock;
            plain(make!(via, fcntl, SYS_fcntl, going.world.fd(*fd), libc::F_OFD_SETLK, place))
        }
        Call::LimitReceiving { fd } => {
            let time = libc::timeval { tv_sec: 0, tv_usec: 4000 };
            let size = size_of_val(&time) as libc::socklen_t;
            let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
            let fd = going.world.fd(*fd);
            let place = (&raw const time).cast::<c_void>();
            plain(make!(via, setsockopt, SYS_setsockopt, fd, level, option, place, size))
        }
        Call::SetTimer { fd, fires } => {
            let set = set_timer(going.world.fd(*fd), *fires);
            plain(if set < 0 { Err(errno()) } else { Ok(0) })
        }
        Call::Poll { files, lies, moment } => poll(going, step, files, *lies, *moment),
        Call::PollMasked { files, moment, masked } => {
            poll_masked(going, step, files, *moment, *masked)
        }
        Call::Select { read, write, moment, lies } => {
            select(going, step, read, write, *moment, *lies)
        }
        Call::EpollChange { epoll, fd, how, events } => {
            let mut event =
                libc::epoll_event { events: *events, u64: going.world.number(*fd) as u64 };
            let (instance, file) = (going.world.fd(*epoll), going.world.fd(*fd));
            let answer = make!(
                Via::Function,
                epoll_ctl,
                SYS_epoll_ctl,
                instance,
                *how,
                file,
                &raw mut event
            );
            if answer.is_ok() && *how == libc::EPOLL_CTL_ADD {
                going.watched.entry(instance).or_default().push(*fd);
            }
            plain(answer)
        }
        Call::EpollWait { epoll, most, lies, moment } => {
            epoll_wait(going, step, *epoll, *most, *lies, *moment)
        }
        Call::SelectMasked { read, moment } => select_masked(going, step, read, *moment),
        Call::EpollWaitMasked { epoll, most, moment } => {
            let patience = patience_of(going, &step.call, *moment);
            let bytes = (*most as usize * size_of::<libc::epoll_event>()) as u64;
            let place = going.memory.place(EVENTS, bytes, Lies::Well).cast::<libc::epoll_event>();
            let set = masked_signals();
            let (epoll, set) = (going.world.fd(*epoll), &raw const set);
            // The kernel knows 64 signals.
            let answer = make!(
                via, epoll_pwait, SYS_epoll_pwait, epoll, place, *most, patience, set; 8usize
            );
            seen_events(answer, place)
        }
        Call::Futex { operation, word, second, value, span } => {
            futex(going, *operation, *word, *second, *value, *span)
        }
        Call::Sleep { span } => {
            let time = time(*span);
            let place = match span {
                Span::Nowhere => going.memory.place(0, 16, Lies::Nowhere).cast_const().cast(),
                _ => &raw const time,
            };
            let null = ptr::null_mut();
            plain(make!(via, nanosleep, SYS_nanosleep, place, null))
        }
    }
}

/// The arena where lists are put.
const ARENA_OF_LISTS: usize = 4;

/// Several messages of a buffer each.
struct Many {
    headers: Vec<libc::mmsghdr>,
    parts: Vec<libc::iovec>,
}

impl Many {
    fn new(going: &Going, buffers: &[Buffer], fill: Fill) -> Many {
        let part = |(arena, buffer): (usize, &Buffer)| libc::iovec {
            iov_base: going.memory.filled(arena, *buffer, fill),
            iov_len: buffer.length as usize,
        };
        let parts = buffers.iter().enumerate().map(part).collect();
        // SAFETY: all zeros is a message without anything.
        let header = || unsafe { mem::zeroed() };
        Many { headers: buffers.iter().map(|_| header()).collect(), parts }
    }

    fn list(&mut self) -> (*mut libc::mmsghdr, libc::c_uint) {
        for (header, part) in self.headers.iter_mut().zip(&mut self.parts) {
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint)
    }
}

/// Room for what goes with a message, with the numbers of files.
struct Control {
    room: [u64; 8],
    length: usize,
}

impl Control {
    fn new(files: &[c_int]) -> Control {
        let mut control = Control { room: [0; 8], length: 0 };
        let bytes = size_of_val(files) as libc::c_uint;
        if bytes == 0 {
            return control;
        }
        // SAFETY: it computes with numbers.
        control.length = unsafe { libc::CMSG_SPACE(bytes) } as usize;
        let header = control.room.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: there is as much room, which is aligned.
        unsafe {
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            let data = libc::CMSG_DATA(header).cast::<c_int>();
            ptr::copy_nonoverlapping(files.as_ptr(), data, files.len());
        }
        control
    }

    fn message(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: all zeros is a message without anything.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = self.room.as_mut_ptr().cast();
        message.msg_controllen = self.length as _;
        message
    }
}

/// Closes the files that came with a message; how many.
fn close_received(message: &libc::msghdr) -> usize {
    let mut came = 0;
    // SAFETY: a message that the kernel has filled; the files are ours.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        if let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = found.cmsg_len - libc::CMSG_LEN(0) as usize;
                let files = libc::CMSG_DATA(header).cast::<c_int>();
                came = bytes / size_of::<c_int>();
                (0..came).for_each(|at| _ = libc::close(files.add(at).read_unaligned()));
            }
        }
    }
    came
}

/// Takes out at once what was moved to a socket.
///
/// The kernel may move pages and not what they hold, so that a later write to the file, or to the
/// memory that was given to a pipe, changes what the other end reads: or does not, if it was copied. A
/// program that does so races against itself, and both answers are right.
fn sent_by_reference(going: &Going, to: u8) -> String {
    let slot = going.world.slot(to);
    let (What::Socket(_), Some(peer)) = (slot.what, going.world.peer(slot)) else {
        return String::new();
    };
    let mut came = Vec::new();
    loop {
        // Asked first: what has been acknowledged is there to be read.
        let mut under_way: c_int = 0;
        // SAFETY: room for the answer.
        unsafe { libc::ioctl(slot.fd, libc::TIOCOUTQ, &raw mut under_way) };
        read_ready(peer.fd, &mut came);
        if slot.what != What::Socket(Family::Tcp) || under_way == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut digest = Digest::new();
    digest.add(&came);
    if came.is_empty() {
        String::new()
    } else {
        format!(", {} went on, {:016x}", came.len(), digest.value())
    }
}

/// What a reading call has returned, and a digest of what it has read.
fn received(going: &Going, answer: Answer, buffers: &[Buffer]) -> Outcome {
    let more = match answer {
        Ok(bytes) if bytes > 0 => {
            format!(", {:016x}", going.memory.digest(buffers, bytes as usize))
        }
        _ => String::new(),
    };
    outcome(answer, more)
}

fn flagged(
    via: Via,
    reads: bool,
    fd: c_int,
    first: *const libc::iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> Answer {
    match reads {
        true => match via {
            Via::Function => make!(via, preadv2, SYS_preadv2, fd, first, count, offset, flags),
            Via::Number => by_number(libc::SYS_preadv2, fd, first, count, offset, flags),
        },
        false => match via {
            Via::Function => make!(via, pwritev2, SYS_pwritev2, fd, first, count, offset, flags),
            Via::Number => by_number(libc::SYS_pwritev2, fd, first, count, offset, flags),
        },
    }
}

/// The kernel takes an offset in two halves, of which 64-bit processors use the lower one alone.
fn by_number(
    number: libc::c_long,
    fd: c_int,
    first: *const libc::iovec,
    count: c_int,
    offset: i64,
    flags: c_int,
) -> Answer {
    // SAFETY: as `make` says.
    let result = unsafe { libc::syscall(number, fd, first, count, offset, 0usize, flags) };
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn message(going: &Going, list: &List, fill: Fill) -> libc::msghdr {
    let (first, count) = going.memory.list(list, fill);
    // SAFETY: all zeros is a message without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = first;
    message.msg_iovlen = count as usize;
    message
}

fn set_mode(via: Via, fd: c_int, which: c_int, on: bool) -> Answer {
    let mode = make!(via, fcntl, SYS_fcntl, fd, libc::F_GETFL)? as c_int;
    let mode = if on { mode | which } else { mode & !which };
    make!(via, fcntl, SYS_fcntl, fd, libc::F_SETFL, mode)
}

fn polled(going: &Going, files: &[(u8, i16)]) -> Vec<libc::pollfd> {
    let of = |(slot, events): &(u8, i16)| libc::pollfd {
        fd: going.world.fd(*slot),
        events: *events,
        revents: 0x55,
    };
    files.iter().map(of).collect()
}

fn answers(files: &[libc::pollfd]) -> String {
    let answers = files.iter().map(|file| format!(" {:#x}", file.revents));
    answers.collect()
}

const EVENTS: usize = 1;

fn poll(going: &Going, step: &Step, files: &[(u8, i16)], lies: Lies, moment: Moment) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let mut list = polled(going, files);
    let bytes = size_of_val(list.as_slice());
    if lies == Lies::Well || list.is_empty() {
        let count = list.len() as libc::nfds_t;
        let answer = make!(step.via, poll, SYS_poll, list.as_mut_ptr(), count, patience);
        return outcome(answer, answers(&list));
    }
    let place = going.memory.place(EVENTS, bytes as u64, lies);
    if let Lies::AtEdge(there) = lies {
        let there = bytes.min(there as usize);
        // SAFETY: as many bytes are there.
        unsafe { ptr::copy_nonoverlapping(list.as_ptr().cast::<u8>(), place, there) };
    }
    let count = list.len() as libc::nfds_t;
    plain(make!(step.via, poll, SYS_poll, place.cast::<libc::pollfd>(), count, patience))
}

fn poll_masked(
    going: &Going,
    step: &Step,
    files: &[(u8, i16)],
    moment: Moment,
    masked: bool,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(patience) * 1_000_000 };
    let time = libc::timespec {
        tv_sec: time.tv_nsec / 1_000_000_000,
        tv_nsec: time.tv_nsec % 1_000_000_000,
    };
    let mut list = polled(going, files);
    let set = masked_signals();
    let mask = if masked { &raw const set } else { ptr::null() };
    let count = list.len() as libc::nfds_t;
    let first = list.as_mut_ptr();
    let answer = match step.via {
        Via::Function => make!(step.via, ppoll, SYS_ppoll, first, count, &raw const time, mask),
        // It writes the time that is left.
        Via::Number => {
            let mut time = time;
            // SAFETY: as `make` says; the kernel knows 64 signals.
            let result = unsafe {
                libc::syscall(libc::SYS_ppoll, first, count, &raw mut time, mask, 8usize)
            };
            if result < 0 { Err(errno()) } else { Ok(result) }
        }
    };
    outcome(answer, answers(&list))
}

/// Those of a storm are among them.
fn masked_signals() -> libc::sigset_t {
    // SAFETY: a set of signals of our own.
    unsafe {
        let mut set = MaybeUninit::zeroed().assume_init();
        for signal in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH] {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

fn select_masked(going: &Going, step: &Step, read: &[u8], moment: Moment) -> Outcome {
    let patience = i64::from(patience_of(going, &step.call, moment));
    let fd = |slot: &u8| going.world.fd(*slot).min(UNUSED);
    let time = libc::timespec { tv_sec: patience / 1000, tv_nsec: patience % 1000 * 1_000_000 };
    // SAFETY: a set of our own, of numbers that it has room for.
    let mut set: libc::fd_set = unsafe { mem::zeroed() };
    // SAFETY: as above.
    read.iter().for_each(|slot| unsafe { libc::FD_SET(fd(slot), &mut set) });
    let count = read.iter().map(fd).max().map_or(0, |most| most + 1);
    let (mask, null) = (masked_signals(), ptr::null_mut::<libc::fd_set>());
    let (time, mask) = (&raw const time, &raw const mask);
    // The number takes the mask in another way.
    let answer =
        make!(Via::Function, pselect, SYS_pselect6, count, &raw mut set, null, null, time, mask);
    // SAFETY: as above.
    let is_there = |slot: &&u8| unsafe { libc::FD_ISSET(fd(slot), &set) };
    let more = match answer {
        Ok(_) => read.iter().filter(is_there).map(|slot| format!(" {slot}")).collect(),
        Err(_) => String::new(),
    };
    outcome(answer, more)
}

/// A number for a set that no file has.
const UNUSED: c_int = 900;

fn select(
    going: &Going,
    step: &Step,
    read: &[u8],
    write: &[u8],
    moment: Moment,
    lies: Lies,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    // SAFETY: sets of our own, of numbers that they have room for.
    let set = |slots: &[u8]| unsafe {
        let mut set: libc::fd_set = mem::zeroed();
        for slot in slots {
            libc::FD_SET(going.world.fd(*slot).min(UNUSED), &mut set);
        }
        set
    };
    let has = |set: &libc::fd_set, slots: &[u8]| {
        // SAFETY: as above.
        let is = |slot: &&u8| unsafe { libc::FD_ISSET(going.world.fd(**slot).min(UNUSED), set) };
        slots.iter().filter(is).map(|slot| format!(" {slot}")).collect::<String>()
    };
    let (mut reads, mut writes) = (set(read), set(write));
    let mut time = libc::timeval {
        tv_sec: i64::from(patience / 1000),
        tv_usec: i64::from(patience % 1000) * 1000,
    };
    let most = (read.iter().chain(write)).map(|slot| going.world.fd(*slot).min(UNUSED)).max();
    let count = most.map_or(0, |most| most + 1);
    let first = match lies {
        Lies::Null | Lies::Nowhere | Lies::ReadOnly => {
            going.memory.place(EVENTS, 128, lies).cast::<libc::fd_set>()
        }
        _ => &raw mut reads,
    };
    let null = ptr::null_mut::<libc::fd_set>();
    // Its number is not there on all processors.
    let answer = make!(
        Via::Function,
        select,
        SYS_pselect6,
        count,
        first,
        &raw mut writes,
        null,
        &raw mut time
    );
    let more = match answer {
        Ok(_) => format!(", read{}, write{}", has(&reads, read), has(&writes, write)),
        Err(_) => String::new(),
    };
    outcome(answer, more)
}

fn epoll_wait(
    going: &Going,
    step: &Step,
    epoll: u8,
    most: c_int,
    lies: Lies,
    moment: Moment,
) -> Outcome {
    let patience = patience_of(going, &step.call, moment);
    let bytes = (most.max(0) as usize * size_of::<libc::epoll_event>()) as u64;
    let place = going.memory.place(EVENTS, bytes, lies).cast::<libc::epoll_event>();
    let answer = make!(
        Via::Function,
        epoll_wait,
        SYS_epoll_pwait,
        going.world.fd(epoll),
        place,
        most,
        patience
    );
    seen_events(answer, place)
}

fn seen_events(answer: Answer, place: *const libc::epoll_event) -> Outcome {
    let mut events = (0..answer.unwrap_or(0) as usize)
        // SAFETY: the kernel has written them.
        .map(|at| unsafe { place.add(at).read_unaligned() })
        .map(|event| {
            let (data, events) = (event.u64, event.events);
            format!(" {data}:{events:#x}")
        })
        .collect::<Vec<_>>();
    events.sort_unstable();
    outcome(answer, events.concat())
}

fn time(span: Span) -> libc::timespec {
    let (tv_sec, tv_nsec) = match span {
        Span::Now | Span::Nowhere => (0, 0),
        Span::Soon => (0, 2_000_000),
        Span::Negative => (-1, 0),
        Span::TooManyNanoseconds => (0, 1_000_000_000),
    };
    libc::timespec { tv_sec, tv_nsec }
}

fn futex(
    going: &Going,
    operation: c_int,
    word: Word,
    second: Word,
    value: u32,
    span: Span,
) -> Outcome {
    let words = going.memory.place(0, 64, Lies::Well).cast::<u32>();
    for at in 0..16 {
        // SAFETY: there is as much room.
        unsafe { words.add(at).write(1) };
    }
    let place = |word, at: usize| match word {
        // SAFETY: as above.
        Word::Good => unsafe { words.add(at) },
        Word::Null => ptr::null_mut(),
        Word::Nowhere => going.memory.place(0, 0, Lies::Nowhere).cast(),
        // SAFETY: as above.
        Word::Unaligned => unsafe { words.byte_add(at * 4 + 1) },
        Word::ReadOnly => going.memory.place(0, 0, Lies::ReadOnly).cast(),
    };
    let time = time(span);
    let time = match span {
        Span::Nowhere => going.memory.place(0, 0, Lies::Nowhere).cast_const().cast(),
        _ => &raw const time,
    };
    // Those that move waiters take a count there.
    let moves = matches!(operation & 127, 3..=5);
    let fourth = if moves { value as usize } else { time as usize };
    let (first, other) = (place(word, 0), place(second, 4));
    // SAFETY: as `make` says.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, first, operation, value, fourth, other, value as usize)
    };
    plain(if result < 0 { Err(errno()) } else { Ok(result) })
}
