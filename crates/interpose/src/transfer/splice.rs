//! `splice`, `tee`, `vmsplice`.

use std::ffi::{c_int, c_uint};

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, off_t};

use crate::call::answer::{Answer, answer};
use crate::call::pipe::Pipe;
use crate::call::sys::{self, Number, Word};
use crate::call::uninterrupted::uninterrupted;
use crate::call::user::User;
use crate::descriptor::kind::Kind;
use crate::descriptor::option::option;
use crate::descriptor::storage::Storage;
use crate::socket::receive_message::ask_what_is_wrong;
use crate::socket::send::transmit_as;
use crate::transfer::ends::{
    CHUNK, End, Files, blocking, can_write, input, is_sent_to, look, output, slow_end, until_ready,
    when_ready,
};
use crate::wait::file_lock::with_file_lock;
use crate::wait::multi_step::{MultiStep, Named};
use crate::wait::offload;
use crate::wait::readiness::is_ready;

/// The flags that `splice` has.
const ALL_FLAGS: c_uint =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

interpose! {
    /// `splice(2)`.
    safe fn splice(
        from: c_int,
        from_offset: User<off_t>,
        to: c_int,
        to_offset: User<off_t>,
        length: usize,
        flags: c_uint,
    ) -> isize, number SYS_splice {
        answer(splice_all_kinds(from, from_offset, to, to_offset, length, flags))
    }
}

interpose! {
    /// `tee(2)`.
    safe fn tee(from: c_int, to: c_int, length: usize, flags: c_uint) -> isize, number SYS_tee {
        let tried = flags | libc::SPLICE_F_NONBLOCK;
        let arguments = [from.into(), to.into(), length.into(), tried.into()];
        let files = Files::new([from, to]);
        let attempt = || Ok(files.attempt(|| sys::call(Number::TEE, arguments)));
        // One pipe in non-blocking mode is enough.
        let may_wait = |_| blocking(from) && blocking(to);
        let ends = [input(Some(from)), output(Some(to))];
        answer(when_ready(ends, flags, may_wait, attempt))
    }
}

interpose! {
    /// `vmsplice(2)`.
    safe fn vmsplice(fd: c_int, buffers: User<iovec>, count: usize, flags: c_uint) -> isize,
        number SYS_vmsplice
    {
        let tried = flags | libc::SPLICE_F_NONBLOCK;
        let arguments = [fd.into(), buffers.into(), count.into(), tried.into()];
        let file = Named::new(fd);
        let attempt = || Ok(file.attempt(|| sys::call(Number::VMSPLICE, arguments)));
        let end = if can_write(fd) { output(Some(fd)) } else { input(Some(fd)) };
        // Here the kernel ignores the pipe's mode and looks only at the flags.
        answer(when_ready([end, End::default()], flags, |_| true, attempt))
    }
}

pub(crate) fn splice_all_kinds(
    from: c_int,
    from_offset: User<off_t>,
    to: c_int,
    to_offset: User<off_t>,
    length: usize,
    flags: c_uint,
) -> Answer {
    let files = Files::new([from, to]);
    let (source, target) = (look(from), look(to));
    let arguments = |flags: c_uint| {
        let places: [Word; 2] = [from_offset.into(), to_offset.into()];
        [from.into(), places[0], to.into(), places[1], length.into(), flags.into()]
    };
    let has_wrong_place = !from_offset.is_null() && source.storage == Storage::None
        || !to_offset.is_null() && target.storage == Storage::None;
    let has_pipe = source.kind == Kind::Pipe || target.kind == Kind::Pipe;
    // Between two pipes any length is valid.
    let is_absurd = isize::try_from(length).is_err()
        && (source.kind != Kind::Pipe || target.kind != Kind::Pipe);
    if length == 0 || flags & !ALL_FLAGS != 0 || has_wrong_place || !has_pipe || is_absurd {
        // The kernel answers at once.
        return sys::call(Number::SPLICE, arguments(flags));
    }
    if target.kind == Kind::Socket && blocking(to) && is_sent_to(to) {
        return pipe_to_socket(from, to, length, flags);
    }
    let arguments = arguments(flags | libc::SPLICE_F_NONBLOCK);
    // Only a stream of AF_UNIX heeds the flag, or the pipe's mode, as well.
    let heeds_pipe = source.kind == Kind::Socket
        && option(from, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
        && option(from, libc::SO_TYPE) == Ok(libc::SOCK_STREAM);
    let wait_first = source.kind == Kind::Socket && !heeds_pipe && blocking(from);
    let end = |fd, kind| (kind != Kind::Regular).then_some(fd);
    // A pipe that cannot be written to is reported at once, before the call waits.
    let refuses = |pipe| !can_write(pipe) || is_ready(pipe, libc::POLLERR);
    let ends = [input(end(from, source.kind)), output(end(to, target.kind))];
    // The kernel waits for room in a pipe, in the pipe's own mode, before it looks at the other file.
    let room_first = source.kind != Kind::Pipe;
    let ends = if room_first { [ends[1], ends[0]] } else { ends };
    // Between two pipes, one in non-blocking mode is enough.
    let either = heeds_pipe || target.kind == Kind::Pipe && !room_first;
    let may_wait = |fd| match either && !(room_first && fd == to) {
        true => blocking(from) && blocking(to),
        false => blocking(fd),
    };
    when_ready(ends, flags, may_wait, || {
        // The kernel would wait for data of other sockets, whatever the flags; but first for room in the
        // pipe.
        while wait_first && !is_ready(from, libc::POLLIN) && !refuses(to) {
            if !is_ready(to, libc::POLLOUT) {
                return Ok(Err(libc::EAGAIN));
            }
            ask_what_is_wrong(from)?;
            until_ready(from, libc::POLLIN)?;
        }
        let splice = || uninterrupted(|| sys::call(Number::SPLICE, arguments));
        Ok(match slow_end((from, source, from_offset), (to, target), length) {
            Some(slow) => {
                files.attempt(|| Ok(0))?;
                offload::on_file(slow, splice)
            }
            None => files.attempt(splice),
        })
    })
}

/// Moves from a pipe what a socket in blocking mode takes.
fn pipe_to_socket(from: c_int, to: c_int, length: usize, flags: c_uint) -> Answer {
    let copy = Pipe::new()?;
    // A call that must not wait does not wait for the lock either.
    let deadline = if flags & libc::SPLICE_F_NONBLOCK == 0 { NEVER } else { 0 };
    let seats = [Seat::new(), Seat::new()];
    let mut reading = MultiStep::new(from, &seats[0]);
    let mut writing = MultiStep::new(to, &seats[1]);
    loop {
        // Copied: what cannot be sent stays in the pipe.
        let most = length.min(CHUNK);
        let arguments =
            [from.into(), copy.to.fd().into(), most.into(), libc::SPLICE_F_NONBLOCK.into()];
        // The copied data must still be at the pipe's front when it is removed. The kernel's own call holds
        // the pipe's lock meanwhile.
        let moved = with_file_lock(from, Reason::Read, deadline, libc::EAGAIN, || {
            if !reading.go_on() || !writing.go_on() {
                return Some(Err(libc::EBADF));
            }
            let copied = sys::call(Number::TEE, arguments);
            // A close of the pipe need not wait until all is sent.
            reading.leave();
            match copied {
                Err(libc::EAGAIN) => None,
                Ok(copied) if copied > 0 => {
                    let ends = [(from, &mut reading), (to, &mut writing)];
                    Some(move_copied(ends, &copy, copied, flags))
                }
                // The end of the data, or an error.
                answer => Some(answer),
            }
        });
        writing.leave();
        if let Some(answer) = moved? {
            return answer;
        }
        if flags & libc::SPLICE_F_NONBLOCK != 0 || !blocking(from) {
            return Err(libc::EAGAIN);
        }
        until_ready(from, libc::POLLIN)?;
    }
}

/// Sends what was copied from a pipe to a socket, and removes from the pipe what was sent.
fn move_copied(
    [(from, reading), (to, writing)]: [(c_int, &mut MultiStep); 2],
    copy: &Pipe,
    copied: usize,
    flags: c_uint,
) -> Answer {
    let mut buffer = vec![0u8; copied];
    let mut got = 0;
    while got < copied {
        let rest = &mut buffer[got..];
        let length = rest.len().into();
        let arguments = [copy.from.fd().into(), User::lend_bytes(rest).into(), length];
        got += sys::call(Number::READ, arguments)?;
    }
    let more = if flags & libc::SPLICE_F_MORE != 0 { libc::MSG_MORE } else { 0 };
    let bytes = User::lend_bytes(&mut buffer);
    let sent = transmit_as(to, bytes, got, more, (User::NULL, 0), writing)?;
    // Moved into the copy, which is empty by now and has as much room. A `read` from the pipe would wait if
    // another reader was faster, unless the pipe is in non-blocking mode.
    let mut taken = 0;
    while taken < sent && reading.go_on() {
        let rest = sent - taken;
        let at_once = libc::SPLICE_F_NONBLOCK as usize;
        let arguments = [
            from.into(),
            0usize.into(),
            copy.to.fd().into(),
            0usize.into(),
            rest.into(),
            at_once.into(),
        ];
        match sys::call(Number::SPLICE, arguments) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => taken += bytes,
        }
    }
    Ok(sent)
}
