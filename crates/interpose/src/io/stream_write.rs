//! Writing to what has no position: see [`stream`](crate::io::stream).

use std::ffi::c_int;

use carefree_reactor::Attempt;
use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;

use crate::call::answer::Answer;
use crate::call::host;
use crate::descriptor;
use crate::descriptor::kind::Kind;
use crate::descriptor::{File, Limit};
use crate::io::call::Call;
use crate::io::count::would_wait;
use crate::io::rest::Rest;
use crate::io::stream::{
    Tried, has_rare_flags, is_impatient, is_misplaced, look_after_try, must_wait, without_waiting,
};
use crate::io::{reopen, seekable, terminal};
use crate::socket::message::Message;
use crate::socket::send_rest::{reset, transmit_rest};
use crate::wait::multi_step::MultiStep;
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness;
use crate::wait::user_op::UserOp;

/// Writes: what can be written at once, and then the rest when there is room for it.
pub(crate) fn put(call: &Call, file: Option<&'static File>) -> Answer {
    let fd = call.fd;
    let mut rest = Rest::all(call);
    let seat = Seat::new();
    let mut steps = MultiStep::of(file, fd, &seat);
    if is_plain(call) && file.is_some_and(File::refuses_tries) && !would_wait(call, file) {
        return call.plainly();
    }
    let is_socket = call.at.number() < 0 && file.is_some_and(|file| file.kind(fd) == Kind::Socket);
    match put_at_once(&mut rest, file, is_socket, &mut steps)? {
        Tried::Over(put) => return Ok(put),
        tried if is_impatient(file, fd) => return without_waiting(&rest, tried),
        Tried::WouldWait | Tried::Unknown => {}
    }
    if is_socket {
        // After a part, the error and the signal are the next call's.
        let message = Message::of_buffers(&rest.buffers);
        match transmit_rest(fd, message, 0, rest.done > 0, &mut steps) {
            Err(libc::ENOTSOCK) => {}
            answer => return rest.or_so_far(answer),
        }
        // The socket was closed unseen, and the number refers to another file now.
        _ = file.map(|file| file.look(fd));
    }
    put_rest(&mut rest, file, &mut steps)
}

/// Writes what can be written without waiting. After a part it is tried again before the fiber waits: the part may
/// have ended for want of room, or at a pointer that leads nowhere, and then the call must not wait. (What is left for a
/// socket is tried by the socket's own calls.)
fn put_at_once(
    rest: &mut Rest,
    file: Option<&File>,
    is_socket: bool,
    steps: &mut MultiStep,
) -> Result<Tried, c_int> {
    let (call, fd) = (rest.whole, rest.whole.fd);
    loop {
        let tried = match rest.call().at_once() {
            Err(libc::EOPNOTSUPP) if may_be_written_anew(call, file) => {
                reopen::write(fd, &rest.buffers).unwrap_or(Err(libc::EOPNOTSUPP))
            }
            tried => tried,
        };
        match tried {
            Ok(written) => {
                // SAFETY: the kernel has read the descriptions for the try.
                unsafe { rest.buffers.seen() };
                if written >= rest.buffers.left()
                    || written == 0
                    || !goes_on(file, fd)
                    || is_impatient(file, fd)
                    || !steps.go_on()
                    || is_misplaced(call, file)
                {
                    return rest.or_so_far(tried).map(Tried::Over);
                }
                rest.advance(written);
                if is_socket {
                    return Ok(Tried::WouldWait);
                }
            }
            Err(errno) if must_wait(errno) => {
                look_after_try(&mut rest.buffers, errno)?;
                let otherwise = match rest.done {
                    0 => put_otherwise(call, file, errno),
                    _ => None,
                };
                return match otherwise {
                    Some(answer) => answer.map(Tried::Over),
                    None if errno == libc::EAGAIN => Ok(Tried::WouldWait),
                    None => Ok(Tried::Unknown),
                };
            }
            Err(_) => return rest.or_so_far(tried).map(Tried::Over),
        }
    }
}

/// Makes a call in another way than by waiting for room, if that is what its file needs after a try that has failed with
/// `errno`: to what refuses tries and need not wait, to a file with a position, with flags that only the kernel knows.
fn put_otherwise(call: &Call, file: Option<&File>, errno: c_int) -> Option<Answer> {
    let fd = call.fd;
    let is_refused = errno == libc::EOPNOTSUPP;
    let refuses = |file: &&File| is_refused && is_plain(call) && file.kind(fd) == Kind::Stream;
    if let Some(file) = file.filter(refuses) {
        file.refused_try();
        if !would_wait(call, Some(file)) {
            return Some(call.plainly());
        }
    }
    if is_misplaced(call, file) {
        return Some(seekable::perform(call, descriptor::seen(file, fd)));
    }
    (is_refused && has_rare_flags(call)).then(|| offload::on_file(fd, || call.plainly()))
}

/// Writes the rest when there is room for it: all of it, unless each write to the file is a message.
fn put_rest(rest: &mut Rest, file: Option<&File>, steps: &mut MultiStep) -> Answer {
    let fd = rest.whole.fd;
    let on = On { fd, reason: Reason::Write, limit: Some(Limit::Send) };
    let deadline = parking::deadline(fd, on.limit);
    loop {
        let op = rest.operation();
        let is_terminal =
            || file.is_some_and(|file| file.kind(fd) == Kind::Device) && terminal::is_terminal(fd);
        // Where a ring writes to a broken pipe, `SIGPIPE` comes to no thread, or to another one.
        let parked = match host::is_hosted() || is_terminal() {
            true => write_when_ready(&op, on, deadline),
            false => parking::perform_sending(&op, on, deadline),
        };
        let answer = match parked {
            // (epoll cannot say when an eventfd has room for more than 1.)
            Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN | libc::EOPNOTSUPP)) => {
                let rest = rest.call();
                steps.offload(|| rest.plainly())
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        match answer {
            Ok(written)
                if written != 0
                    && written < rest.buffers.left()
                    && goes_on(file, fd)
                    && steps.go_on() =>
            {
                rest.advance(written);
            }
            answer => return rest.or_so_far(answer),
        }
    }
}

/// Whether a call is at its file's own position and has no flags, as `write` and `writev` are.
fn is_plain(call: &Call) -> bool {
    call.flags == 0 && call.at.number() < 0
}

/// Parks the fiber until a part of what `op` writes can be written, and writes it here.
fn write_when_ready(op: &UserOp, on: On, deadline: u64) -> Parked {
    let writable = UserOp::poll(on.fd, libc::POLLOUT);
    loop {
        let events = match parking::perform_sending(&writable, on, deadline) {
            Parked::Answered(Ok(events)) => events,
            ended => return ended,
        };
        if events & libc::POLLERR as usize != 0 {
            if let Some(errno) = reset(on.fd) {
                return Parked::Answered(Err(errno));
            }
        }
        match op.attempt() {
            Attempt::Done(result) => {
                return Parked::Answered(usize::try_from(result).map_err(|_| -result));
            }
            Attempt::Unsupported => return Parked::Unsupported,
            Attempt::Again if readiness::is_vain(events, libc::POLLOUT) => {
                return Parked::Unsupported;
            }
            Attempt::Again => {}
        }
    }
}

/// Whether a write that cannot be tried is to a pipe, and allowed to wait.
#[cold]
fn may_be_written_anew(call: &Call, file: Option<&File>) -> bool {
    // The kernel is asked again what it is: a file that is opened once more has another position.
    is_plain(call)
        && file.is_some_and(|file| file.look(call.fd) == Kind::Pipe)
        && !is_impatient(file, call.fd)
}

/// Whether a write to `fd` in blocking mode goes on after a part: not if each write is a message.
fn goes_on(file: Option<&File>, fd: c_int) -> bool {
    match file.map_or(Kind::Unknown, |file| file.kind(fd)) {
        Kind::Socket | Kind::Pipe | Kind::Unknown => true,
        Kind::Device => terminal::is_terminal(fd),
        Kind::Regular | Kind::Stream => false,
    }
}
