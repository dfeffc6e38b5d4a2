//! Makes one call, and describes its outcome.

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use crate::call::{Call, Lies, Span, Step, Via};
use crate::futex::futex;
use crate::going::{Going, fill};
use crate::memory::Fill;
use crate::message::{Control, Many, close_received, message};
use crate::object::Family;
use crate::outcome::{Answer, Outcome, done, make, outcome, plain, received};
use crate::readiness::{epoll_wait, epoll_wait_masked, poll, poll_masked, select, select_masked};
use crate::system::{errno, read_ready};
use crate::world::{What, set_timer};

/// Performs `step`, which has a `number`.
pub(crate) fn perform(going: &mut Going, step: &Step, number: usize) -> Outcome {
    let via = step.via;
    let filled = |going: &Going, slot: u8| fill(going.world.slot(slot), number);
    match &step.call {
        Call::Read { fd, to } => {
            let place = going.memory.filled(0, *to, Fill::Step(number));
            let answer = make!(via, read, SYS_read, going.world.fd(*fd), place, to.length as usize);
            received(&going.memory, answer, &[*to])
        }
        Call::Write { fd, from } => {
            let place = going.memory.filled(0, *from, filled(going, *fd));
            plain(make!(via, write, SYS_write, going.world.fd(*fd), place, from.length as usize))
        }
        Call::ReadAt { fd, to, offset } => {
            let place = going.memory.filled(0, *to, Fill::Step(number));
            let (fd, length) = (going.world.fd(*fd), to.length as usize);
            let answer = make!(via, pread, SYS_pread64, fd, place, length, *offset);
            received(&going.memory, answer, &[*to])
        }
        Call::WriteAt { fd, from, offset } => {
            let place = going.memory.filled(0, *from, filled(going, *fd));
            let (fd, length) = (going.world.fd(*fd), from.length as usize);
            plain(make!(via, pwrite, SYS_pwrite64, fd, place, length, *offset))
        }
        Call::ReadList { fd, list } => {
            let (first, count) = going.memory.list(list, Fill::Step(number));
            let answer = make!(via, readv, SYS_readv, going.world.fd(*fd), first, count);
            received(&going.memory, answer, &list.buffers)
        }
        Call::WriteList { fd, list } => {
            let (first, count) = going.memory.list(list, filled(going, *fd));
            plain(make!(via, writev, SYS_writev, going.world.fd(*fd), first, count))
        }
        Call::ReadListAt { fd, list, offset } => {
            let (first, count) = going.memory.list(list, Fill::Step(number));
            let fd = going.world.fd(*fd);
            let answer = make!(via, preadv, SYS_preadv, fd, first, count, *offset; 0usize);
            received(&going.memory, answer, &list.buffers)
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
            received(&going.memory, answer, &list.buffers)
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
            received(&going.memory, answer, &[*to])
        }
        Call::Send { fd, from, flags } => {
            let place = going.memory.filled(0, *from, filled(going, *fd));
            let (fd, length) = (going.world.fd(*fd), from.length as usize);
            let null = ptr::null_mut::<c_void>();
            plain(make!(via, send, SYS_sendto, fd, place, length, *flags; null, 0usize))
        }
        Call::ReceiveMessage { fd, list, flags } => {
            let mut message = message(&going.memory, list, Fill::Step(number));
            let fd = going.world.fd(*fd);
            let answer = make!(via, recvmsg, SYS_recvmsg, fd, &raw mut message, *flags);
            let mut outcome = received(&going.memory, answer, &list.buffers);
            if answer.is_ok() {
                outcome.more += &format!(", flags {:#x}", message.msg_flags);
            }
            outcome
        }
        Call::SendMessage { fd, list, flags } => {
            let message = message(&going.memory, list, filled(going, *fd));
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
            let mut outcome = received(&going.memory, answer, &[*to]);
            if answer.is_ok() {
                outcome.more += &format!(", address of {size} bytes, {}", address.ss_family);
            }
            outcome
        }
        Call::ReceiveMany { fd, to, flags, span } => {
            let mut many = Many::new(&going.memory, to, Fill::Step(number));
            let (first, count) = many.list();
            let mut time = span.map(Span::time);
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
            let mut many = Many::new(&going.memory, from, filled(going, *fd));
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
            let mut outcome = received(&going.memory, answer, &[*to]);
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
            let (to, from) = (going.world.fd(*to), going.world.fd(*from));
            let mut place = offset.unwrap_or(0);
            let at = if offset.is_some() { &raw mut place } else { ptr::null_mut() };
            let answer = make!(via, sendfile, SYS_sendfile, to, from, at, *count as usize);
            outcome(answer, format!(", offset {place}"))
        }
        Call::Splice { from, from_offset, to, to_offset, length, flags } => {
            let (from, to) = (going.world.fd(*from), going.world.fd(*to));
            let (mut one, mut other) = (from_offset.unwrap_or(0), to_offset.unwrap_or(0));
            let at = if from_offset.is_some() { &raw mut one } else { ptr::null_mut() };
            let onto = if to_offset.is_some() { &raw mut other } else { ptr::null_mut() };
            let length = *length as usize;
            let answer = make!(via, splice, SYS_splice, from, at, to, onto, length, *flags);
            outcome(answer, format!(", offsets {one} {other}"))
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
            received(&going.memory, answer, &list.buffers)
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
            epoll_wait_masked(going, step, *epoll, *most, *moment)
        }
        Call::Futex { operation, word, second, value, span } => {
            futex(&going.memory, *operation, *word, *second, *value, *span)
        }
        Call::Sleep { span } => {
            let time = span.time();
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

/// Takes out at once what `call` has moved to a socket, and adds it to `came`.
///
/// The kernel may move pages and not what they hold, so that a later write to the file, or to the
/// memory that was given to a pipe, changes what the other end reads: or does not, if it was copied. A
/// program that does so races against itself, and both answers are right.
///
/// The call is over by then: TCP may acknowledge the bytes only 40 ms later, for which the rescuer
/// would take the lane to be stuck.
pub(crate) fn take_sent_by_reference(going: &Going, call: &Call, came: &mut Vec<u8>) {
    let (Call::SendFile { to, .. } | Call::Splice { to, .. }) = call else { return };
    let slot = going.world.slot(*to);
    let (What::Socket(_), Some(peer)) = (slot.what, going.world.peer(slot)) else { return };
    loop {
        // Asked first: what has been acknowledged is there to be read.
        let mut under_way: c_int = 0;
        // SAFETY: room for the answer.
        unsafe { libc::ioctl(slot.fd, libc::TIOCOUTQ, &raw mut under_way) };
        read_ready(peer.fd, came);
        if slot.what != What::Socket(Family::Tcp) || under_way == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Waits until the other end has acknowledged that a TCP socket was shut down: receiving no bytes ends with what
/// that wakes, if it comes later, and waits on if it has come before.
pub(crate) fn let_shutdown_arrive(going: &Going, call: &Call) {
    /// `SIOCOUTQNSD`, which libc does not have.
    const UNSENT: libc::Ioctl = 0x894b;
    /// The states of TCP in which that is awaited: `TCP_FIN_WAIT1`, `TCP_LAST_ACK`, `TCP_CLOSING`.
    const AWAITED: [u8; 3] = [4, 9, 11];
    let Call::Shutdown { fd, .. } = call else { return };
    let slot = going.world.slot(*fd);
    let state = || {
        let (mut state, mut length) = (0u8, 1);
        // SAFETY: room for the first byte of a `tcp_info`, which is the state.
        unsafe {
            let place = (&raw mut state).cast();
            libc::getsockopt(slot.fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut length);
        }
        state
    };
    let unsent = || {
        let mut bytes: c_int = 0;
        // SAFETY: room for the answer.
        unsafe { libc::ioctl(slot.fd, UNSENT, &raw mut bytes) };
        bytes
    };
    // (Where the other end has no room for what comes before its end, that is not sent for now.)
    while slot.what == What::Socket(Family::Tcp) && AWAITED.contains(&state()) && unsent() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
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

fn set_mode(via: Via, fd: c_int, which: c_int, on: bool) -> Answer {
    let mode = make!(via, fcntl, SYS_fcntl, fd, libc::F_GETFL)? as c_int;
    let mode = if on { mode | which } else { mode & !which };
    make!(via, fcntl, SYS_fcntl, fd, libc::F_SETFL, mode)
}
