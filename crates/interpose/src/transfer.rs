//! `sendfile`, `splice` and their kin: moving data from file to file.
//!
//! The kernel moves data without waiting where it is told to (`SPLICE_F_NONBLOCK`), but that holds for
//! pipes only: a socket in blocking mode is waited for all the same, and neither readiness nor the
//! reactor's own operation (which keeps a thread of the kernel's, of which there are few) helps
//! against a slow peer. So on a fiber
//!
//! * `sendfile` to a stream socket in blocking mode reads and writes; to a pipe it is a `splice`;
//! * `splice` from a pipe to such a socket copies what is in the pipe, and takes out of it what the
//!   socket has taken; fibers that do so with the same pipe take turns;
//! * anything else is tried, and tried again when both ends are ready;
//! * what moves data between disks, and so ends by itself, is done by a thread that may block.
//!
//! To a file in non-blocking mode nothing waits, and the kernel does it.
//!
//! One case is left in which `splice` blocks the carrier: out of a socket, when somebody else reads
//! from the same socket between the look and the call. And one in which it is not as on a thread: who
//! *reads* from a pipe while another fiber splices from it to a socket may read what that one sends.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_reactor::clock::NEVER;
use carefree_runtime::waiters::Seat;
use carefree_runtime::{Reason, yield_now};
use libc::{iovec, off_t};

use crate::fiber::answer;
use crate::files::{self, Limit};
use crate::kind::{Kind, Seen};
use crate::memory;
use crate::option::option;
use crate::parking::{self, Answer, On, Parked};
use crate::plain::At;
use crate::ready::is_ready;
use crate::scratch::Scratch;
use crate::steps::Steps;
use crate::storage::{self, Storage};
use crate::turn::in_turn;
use crate::undisturbed::{offload, undisturbed};
use crate::{flow, seekable, socket, stream};

system_call!(
    fn raw_sendfile(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize
        = SYS_sendfile
);
system_call!(
    fn raw_splice(
        from: c_int,
        from_offset: *mut off_t,
        to: c_int,
        to_offset: *mut off_t,
        length: usize,
        flags: c_uint,
    ) -> isize = SYS_splice
);
system_call!(fn raw_tee(from: c_int, to: c_int, length: usize, flags: c_uint) -> isize = SYS_tee);
system_call!(
    fn raw_vmsplice(fd: c_int, buffers: *const iovec, count: usize, flags: c_uint) -> isize
        = SYS_vmsplice
);
system_call!(
    fn raw_copy_file_range(
        from: c_int,
        from_offset: *mut off_t,
        to: c_int,
        to_offset: *mut off_t,
        length: usize,
        flags: c_uint,
    ) -> isize = SYS_copy_file_range
);

/// Bytes that are copied at a time.
const CHUNK: usize = 64 * 1024;
/// The flags that `splice` has.
const ALL_FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
/// The most that one call moves, as the kernel has it.
const MOST: usize = 0x7fff_f000;

interpose! {
    /// `sendfile(2)`.
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize,
        else raw_sendfile
    {
        // SAFETY: the caller's promise.
        answer(unsafe { send_file(to, from, offset, count) })
    }
}

interpose! {
    /// `sendfile64(3)`: the same.
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize,
        else raw_sendfile
    {
        // SAFETY: the caller's promise.
        answer(unsafe { send_file(to, from, offset, count) })
    }
}

interpose! {
    /// `splice(2)`.
    fn splice(
        from: c_int,
        from_offset: *mut off_t,
        to: c_int,
        to_offset: *mut off_t,
        length: usize,
        flags: c_uint,
    ) -> isize, else raw_splice {
        // SAFETY: the caller's promise.
        answer(unsafe { splice_all_kinds(from, from_offset, to, to_offset, length, flags) })
    }
}

interpose! {
    /// `tee(2)`.
    fn tee(from: c_int, to: c_int, length: usize, flags: c_uint) -> isize, else raw_tee {
        let tried = flags | libc::SPLICE_F_NONBLOCK;
        let arguments = [from as usize, to as usize, length, tried as usize, 0, 0];
        // SAFETY: no memory is involved.
        let attempt = || Ok(unsafe { kernel::call(libc::SYS_tee, arguments) });
        // One pipe in non-blocking mode is enough.
        let may_wait = |_| blocking(from) && blocking(to);
        let ends = [input(Some(from)), output(Some(to))];
        answer(when_ready(ends, flags, may_wait, attempt))
    }
}

interpose! {
    /// `vmsplice(2)`.
    fn vmsplice(fd: c_int, buffers: *const iovec, count: usize, flags: c_uint) -> isize,
        else raw_vmsplice
    {
        let tried = flags | libc::SPLICE_F_NONBLOCK;
        let arguments = [fd as usize, buffers as usize, count, tried as usize, 0, 0];
        // SAFETY: the caller's promise.
        let attempt = || Ok(unsafe { kernel::call(libc::SYS_vmsplice, arguments) });
        let end = if can_write(fd) { output(Some(fd)) } else { input(Some(fd)) };
        // The kernel does not look at the pipe's mode here, but at the flags alone.
        answer(when_ready([end, End::default()], flags, |_| true, attempt))
    }
}

interpose! {
    /// `copy_file_range(2)`, on a thread that may block.
    fn copy_file_range(
        from: c_int,
        from_offset: *mut off_t,
        to: c_int,
        to_offset: *mut off_t,
        length: usize,
        flags: c_uint,
    ) -> isize, else raw_copy_file_range {
        // SAFETY: the caller's promise, and the caller waits.
        unsafe { offload(|| original(from, from_offset, to, to_offset, length, flags)) }
    }
}

fn look(fd: c_int) -> Seen {
    let file = files::file(fd);
    if let Some(file) = file {
        // Asked anew: a mistake would block the carrier.
        file.look(fd);
    }
    files::seen(file, fd)
}

fn mode(fd: c_int) -> c_int {
    let arguments = [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0];
    // SAFETY: no memory is involved.
    unsafe { kernel::call(libc::SYS_fcntl, arguments) }.unwrap_or(0) as c_int
}

/// Whether `fd` was opened to be written.
fn can_write(fd: c_int) -> bool {
    mode(fd) & libc::O_ACCMODE != libc::O_RDONLY
}

/// Whether the kernel moves anything to `fd`: not where all goes to the end (`O_APPEND`), whatever that
/// means to a socket.
fn is_sent_to(fd: c_int) -> bool {
    let mode = mode(fd);
    mode & libc::O_ACCMODE != libc::O_RDONLY && mode & libc::O_APPEND == 0
}

fn blocking(fd: c_int) -> bool {
    flow::blocking(files::file(fd), fd)
}

/// Parks until `events` happen on `fd`.
fn until_ready(fd: c_int, events: i16) -> Result<(), c_int> {
    let (reason, limit) = match events {
        libc::POLLIN => (Reason::Read, Limit::Receive),
        _ => (Reason::Write, Limit::Send),
    };
    let op = Op::Poll { fd, events: u32::from(events as u16) };
    // SAFETY: it points to nothing.
    match unsafe { parking::perform(&op, On { fd, reason, limit: Some(limit) }) } {
        Parked::Answered(answer) => answer.map(drop),
        Parked::Late => Err(libc::EAGAIN),
        Parked::Unsupported => {
            yield_now();
            Ok(())
        }
    }
}

/// An end of a transfer, if it is one that can be waited for, and what it is waited for to be.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    fd: Option<c_int>,
    events: i16,
}

fn input(fd: Option<c_int>) -> End {
    End { fd, events: libc::POLLIN }
}

fn output(fd: Option<c_int>) -> End {
    End { fd, events: libc::POLLOUT }
}

/// Calls `attempt`, which answers without waiting or ends it all, until it need not wait; waits for the
/// ends meanwhile, in the kernel's order, unless the flags say no, or an end that is not ready
/// `may_wait` not.
fn when_ready(
    ends: [End; 2],
    flags: c_uint,
    may_wait: impl Fn(c_int) -> bool,
    mut attempt: impl FnMut() -> Result<Answer, c_int>,
) -> Answer {
    loop {
        let tried = attempt()?;
        if tried != Err(libc::EAGAIN) || flags & libc::SPLICE_F_NONBLOCK != 0 {
            return tried;
        }
        let unready = ends.into_iter().find_map(|End { fd, events }| {
            fd.filter(|&fd| !is_ready(fd, events)).map(|fd| (fd, events))
        });
        match unready {
            Some((fd, _)) if !may_wait(fd) => return tried,
            Some((fd, events)) => until_ready(fd, events)?,
            // Meanwhile both are.
            None => {
                carefree_runtime::interrupted().map_err(parking::interruption)?;
                yield_now();
            }
        }
    }
}

unsafe fn splice_all_kinds(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: usize,
    flags: c_uint,
) -> Answer {
    let (source, target) = (look(from), look(to));
    let arguments = |flags: c_uint| {
        let (from, to) = (from as usize, to as usize);
        [from, from_offset as usize, to, to_offset as usize, length, flags as usize]
    };
    let has_wrong_place = !from_offset.is_null() && source.storage == Storage::None
        || !to_offset.is_null() && target.storage == Storage::None;
    let has_pipe = source.kind == Kind::Pipe || target.kind == Kind::Pipe;
    // Between two pipes any length will do.
    let is_absurd = isize::try_from(length).is_err()
        && (source.kind != Kind::Pipe || target.kind != Kind::Pipe);
    if length == 0 || flags & !ALL_FLAGS != 0 || has_wrong_place || !has_pipe || is_absurd {
        // The kernel answers at once.
        // SAFETY: the caller's promise.
        return unsafe { kernel::call(libc::SYS_splice, arguments(flags)) };
    }
    if target.kind == Kind::Socket && blocking(to) && is_sent_to(to) {
        return pipe_to_socket(from, to, length, flags);
    }
    let arguments = arguments(flags | libc::SPLICE_F_NONBLOCK);
    // A stream of AF_UNIX alone takes the flag, or the pipe's mode, to be meant for it too.
    let heeds_pipe = source.kind == Kind::Socket
        && option(from, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
        && option(from, libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
    let wait_first = source.kind == Kind::Socket && !heeds_pipe && blocking(from);
    let end = |fd, kind| (kind != Kind::Regular).then_some(fd);
    // One that takes nothing is told of at once, before anything is waited for.
    let refuses = |pipe| !can_write(pipe) || is_ready(pipe, libc::POLLERR);
    let ends = [input(end(from, source.kind)), output(end(to, target.kind))];
    // Room in a pipe is waited for before what is no pipe is asked, in the pipe's own mode.
    let room_first = source.kind != Kind::Pipe;
    let ends = if room_first { [ends[1], ends[0]] } else { ends };
    // Between two pipes, one in non-blocking mode is enough.
    let either = heeds_pipe || target.kind == Kind::Pipe && !room_first;
    let may_wait = |fd| match either && !(room_first && fd == to) {
        true => blocking(from) && blocking(to),
        false => blocking(fd),
    };
    when_ready(ends, flags, may_wait, || {
        // Other sockets would be waited for, as long as there is nothing, whatever the flags say; but
        // room in the pipe comes first.
        while wait_first && !is_ready(from, libc::POLLIN) && !refuses(to) {
            if !is_ready(to, libc::POLLOUT) {
                return Ok(Err(libc::EAGAIN));
            }
            socket::ask_what_is_wrong(from)?;
            until_ready(from, libc::POLLIN)?;
        }
        // SAFETY: the caller's promise.
        let splice = || undisturbed(|| unsafe { kernel::call(libc::SYS_splice, arguments) });
        Ok(match slow_end((from, source, from_offset), (to, target), length) {
            // SAFETY: the caller's promise, and the caller waits.
            Some(slow) => unsafe { seekable::elsewhere(slow, splice) },
            None => splice(),
        })
    })
}

/// The end that a splice may have to wait for though the pipe is ready: a disk, or what is further away.
fn slow_end(
    (from, source, place): (c_int, Seen, *const off_t),
    (to, target): (c_int, Seen),
    length: usize,
) -> Option<c_int> {
    if matches!(target.storage, Storage::Device | Storage::Other) {
        return Some(to);
    }
    slow_source((from, source, place), length)
}

/// The source if what is to be moved out of it, at a place or from its position, may have to come from a
/// disk first, or from further away.
fn slow_source((from, source, place): (c_int, Seen, *const off_t), length: usize) -> Option<c_int> {
    let at = || match memory::check(place, 1) {
        // SAFETY: it can be read.
        Ok(()) => At::Offset(unsafe { place.read_unaligned() }),
        Err(_) => At::Position,
    };
    let waits = match source.storage {
        Storage::None | Storage::Memory | Storage::Kernel => false,
        // No pipe takes more, as a rule, and few sockets.
        Storage::Disk => !seekable::is_in_memory(from, at(), length.min(CHUNK) as u64),
        Storage::Device | Storage::Other => true,
    };
    waits.then_some(from)
}

/// Moves from a pipe what a socket in blocking mode takes.
fn pipe_to_socket(from: c_int, to: c_int, length: usize, flags: c_uint) -> Answer {
    let scratch = Scratch::new()?;
    // What must not wait does not wait for its turn either.
    let patience = if flags & libc::SPLICE_F_NONBLOCK == 0 { NEVER } else { 0 };
    loop {
        // A copy of what is there: what cannot be sent stays.
        let most = length.min(CHUNK);
        let arguments =
            [from as usize, scratch.to as usize, most, libc::SPLICE_F_NONBLOCK as usize, 0, 0];
        // What is copied must still be the pipe's first when it is taken out of it: the kernel holds
        // the pipe's lock as long.
        let moved = in_turn(from, Reason::Read, patience, libc::EAGAIN, || {
            // SAFETY: no memory is involved.
            match unsafe { kernel::call(libc::SYS_tee, arguments) } {
                Err(libc::EAGAIN) => None,
                Ok(copied) if copied > 0 => Some(move_copied(from, &scratch, to, copied, flags)),
                // The end, or none is to be had.
                answer => Some(answer),
            }
        });
        if let Some(answer) = moved? {
            return answer;
        }
        if flags & libc::SPLICE_F_NONBLOCK != 0 || !blocking(from) {
            return Err(libc::EAGAIN);
        }
        until_ready(from, libc::POLLIN)?;
    }
}

/// Sends what was copied from the pipe `from`, and takes out of it what was sent.
fn move_copied(from: c_int, copy: &Scratch, to: c_int, copied: usize, flags: c_uint) -> Answer {
    let mut buffer = vec![0u8; copied];
    let place = buffer.as_mut_ptr();
    let read = |at: usize, length: usize| {
        // SAFETY: there is as much room, for no more was copied.
        let place = unsafe { place.add(at) } as usize;
        // SAFETY: as above.
        unsafe { kernel::call(libc::SYS_read, [copy.from as usize, place, length, 0, 0, 0]) }
    };
    let mut got = 0;
    while got < copied {
        got += read(got, copied - got)?;
    }
    let seat = Seat::new();
    let mut steps = Steps::new(from, &seat);
    let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
    // SAFETY: as much was read.
    let sent = unsafe { socket::transmit(to, place.cast(), got, more, ptr::null(), 0) }?;
    // Into the copy, which is empty by now and has as much room: a pipe can be read from without waiting
    // for another reader who was faster only if it was made for that.
    let mut taken = 0;
    while taken < sent && steps.go_on() {
        let rest = sent - taken;
        let at_once = libc::SPLICE_F_NONBLOCK as usize;
        let arguments = [from as usize, 0, copy.to as usize, 0, rest, at_once];
        // SAFETY: no memory is involved.
        match unsafe { kernel::call(libc::SYS_splice, arguments) } {
            Ok(0) | Err(_) => break,
            Ok(bytes) => taken += bytes,
        }
    }
    Ok(sent)
}

unsafe fn send_file(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> Answer {
    let plain = [to as usize, from as usize, offset as usize, count, 0, 0];
    // SAFETY: the caller's promise.
    let plainly = || undisturbed(|| unsafe { kernel::call(libc::SYS_sendfile, plain) });
    let (source, target) = (look(from), look(to));
    if source.storage == Storage::None && offset.is_null() && count > 0 {
        // Later kernels send from a pipe, and wait for what comes.
        // SAFETY: the caller's promise, and the caller waits.
        return unsafe { seekable::elsewhere(to, plainly) };
    }
    if count == 0 && target.kind == Kind::Pipe && blocking(to) {
        // Room in the pipe is waited for even so.
        // SAFETY: as above.
        return unsafe { seekable::elsewhere(to, plainly) };
    }
    // Nothing else without a position is sent.
    if source.storage == Storage::None || count == 0 || count > isize::MAX as usize {
        return plainly();
    }
    match target.kind {
        // SAFETY: the caller's promise, and the caller waits. There is nothing to be sent.
        _ if is_far_beyond_end((from, source, offset)) => unsafe {
            seekable::elsewhere(from, plainly)
        },
        // SAFETY: as above.
        _ if target.storage != Storage::None => unsafe { seekable::elsewhere(to, plainly) },
        // What is refused is so at once.
        _ if !is_sent_to(to) => plainly(),
        // The same, to the kernel.
        Kind::Pipe if blocking(to) => {
            // SAFETY: the caller's promise.
            unsafe { splice_all_kinds(from, offset, to, ptr::null_mut(), count, 0) }
        }
        // Of how many messages it is to be, the kernel knows.
        Kind::Socket if blocking(to) && option(to, libc::SO_TYPE) != Ok(libc::SOCK_STREAM) => {
            // SAFETY: the caller's promise, and the caller waits.
            unsafe { seekable::elsewhere(to, plainly) }
        }
        Kind::Socket | Kind::Device if blocking(to) => {
            // SAFETY: the caller's promise.
            match unsafe { copy((to, target.kind), (from, source), offset, count.min(MOST)) }? {
                Some(sent) => Ok(sent),
                // What is wrong with what is to be sent, the kernel says in its own words. A disk may have
                // to fail once more for that.
                // SAFETY: the caller's promise, and the caller waits.
                None => unsafe { seekable::elsewhere(from, plainly) },
            }
        }
        // The target is not waited for, but what is to be sent may be.
        _ => match slow_source((from, source, offset), count) {
            // SAFETY: the caller's promise, and the caller waits.
            Some(slow) => unsafe { seekable::elsewhere(slow, plainly) },
            None => plainly(),
        },
    }
}

/// The least that a file system may have for its files' greatest length.
const SHORT: u64 = i32::MAX as u64;

/// Whether there may be no such place in a file: `sendfile` alone of all calls says so, and does before
/// it waits.
fn is_far_beyond_end((from, source, place): (c_int, Seen, *const off_t)) -> bool {
    if source.kind != Kind::Regular {
        return false;
    }
    let begin = match (place.is_null(), memory::check(place, 1)) {
        (true, _) => storage::position(from).unwrap_or(0),
        // SAFETY: it can be read.
        (false, Ok(())) => unsafe { place.read_unaligned() as u64 },
        (false, Err(_)) => 0,
    };
    begin > SHORT && begin >= length(from) as u64
}

/// Bytes of a regular file; 0 of what is none.
fn length(fd: c_int) -> off_t {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    let arguments = [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: there is room for the answer, whose layout is the kernel's own on 64-bit machines.
    match unsafe { kernel::call(libc::SYS_fstat, arguments) } {
        // SAFETY: the call has succeeded and so filled it.
        Ok(_) => unsafe { status.assume_init() }.st_size,
        Err(_) => 0,
    }
}

/// `sendfile` by reading and writing; `None` if nothing can be read.
unsafe fn copy(
    (to, target): (c_int, Kind),
    (from, source): (c_int, Seen),
    offset: *mut off_t,
    count: usize,
) -> Result<Option<usize>, c_int> {
    let to_socket = target == Kind::Socket;
    let seek = |place: off_t, whence: c_int| {
        let arguments = [from as usize, place as usize, whence as usize, 0, 0, 0];
        // SAFETY: no memory is involved.
        unsafe { kernel::call(libc::SYS_lseek, arguments) }
    };
    if !offset.is_null() {
        memory::check(offset, 1)?;
    }
    let begin = match offset.is_null() {
        // SAFETY: the caller's promise, and it can be read. The kernel does not ask for alignment.
        false => unsafe { offset.read_unaligned() },
        true => match seek(0, libc::SEEK_CUR) {
            Ok(place) => place as off_t,
            Err(_) => return Ok(None),
        },
    };
    // More is announced only of what there is: a socket holds a part back until it comes, a fifth of a
    // second long, and callers who want a whole file sent ask for as much as can be.
    let there = length(from).saturating_sub(begin).clamp(0, count as off_t) as usize;
    let mut buffer = vec![0u8; count.min(CHUNK)];
    let seats = [Seat::new(), Seat::new()];
    let mut writing = Steps::new(to, &seats[0]);
    let mut reading = Steps::new(from, &seats[1]);
    let mut sent = 0;
    let ended = loop {
        if sent > 0 && !reading.go_on() {
            break Ok(());
        }
        let (place, most) = (buffer.as_mut_ptr(), buffer.len().min(count - sent));
        // SAFETY: there is as much room.
        let read = unsafe { stream::read_at(from, place.cast(), most, begin + sent as off_t) };
        // A close need not wait until all is written.
        reading.leave();
        if sent > 0 && !writing.go_on() {
            break Ok(());
        }
        let read = match read {
            // A device may be one that cannot be sent from.
            Ok(0) if sent == 0 && source.kind != Kind::Regular => return Ok(None),
            Ok(0) => break Ok(()),
            Ok(read) => read,
            Err(errno) if parking::is_end(errno) => break Err(errno),
            Err(_) if sent == 0 => return Ok(None),
            Err(errno) => break Err(errno),
        };
        // SAFETY: as much was read.
        let written = unsafe {
            if to_socket {
                let more = if sent + read < there { libc::MSG_MORE } else { 0 };
                let nobody = (ptr::null(), 0);
                socket::transmit_as(to, place.cast(), read, more, nobody, &mut writing)
            } else {
                // A terminal's steps are its own.
                writing.leave();
                stream::write_all(to, place.cast::<c_void>(), read)
            }
        };
        match written {
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
    // Reading from /dev/zero and its like moves no position.
    let moved =
        if source.kind == Kind::Device && source.storage == Storage::Memory { 0 } else { sent };
    let end = begin + moved as off_t;
    if offset.is_null() {
        if reading.go_on() {
            _ = seek(end, libc::SEEK_SET);
        }
    } else {
        // SAFETY: the caller has no need of what is there, for it is overwritten.
        unsafe {
            memory::check_writable(offset)?;
            offset.write_unaligned(end);
        }
    }
    Ok(Some(sent))
}
