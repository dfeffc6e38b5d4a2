//! Makes one call, and says what came of it.

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::memory::Fill;
use crate::program::{Buffer, Call, Lies, List, Moment, Span, Step, Via, Word};
use crate::sequence::{Going, fill, patience_of};
use crate::system::{errno, name};
use crate::world::set_timer;

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
        Call::SetNonblocking { fd, on } => plain(set_nonblocking(via, going.world.fd(*fd), *on)),
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

fn set_nonblocking(via: Via, fd: c_int, on: bool) -> Answer {
    let mode = make!(via, fcntl, SYS_fcntl, fd, libc::F_GETFL)? as c_int;
    let mode = if on { mode | libc::O_NONBLOCK } else { mode & !libc::O_NONBLOCK };
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
    // SAFETY: a set of signals of our own. Those of a storm are among them.
    let set: libc::sigset_t = unsafe {
        let mut set = MaybeUninit::zeroed().assume_init();
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigaddset(&mut set, libc::SIGUSR2);
        libc::sigaddset(&mut set, libc::SIGWINCH);
        set
    };
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
        Lies::Null | Lies::Nowhere => going.memory.place(EVENTS, 128, lies).cast::<libc::fd_set>(),
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
