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
use crate::io::stream::{has_rare_flags, is_impatient, is_misplaced, look_after_try, must_wait};
use crate::io::{reopen, seekable, terminal};
use crate::socket::message::Message;
use crate::socket::send_rest::transmit_rest;
use crate::wait::multi_step::MultiStep;
use crate::wait::offload;
use crate::wait::parking::{self, On, Parked};
use crate::wait::readiness;
use crate::wait::user_op::UserOp;

/// Writes.
pub(crate) fn put(call: &Call, file: Option<&'static File>) -> Answer {
    let fd = call.fd;
    let mut rest = Rest::all(call);
    let seat = Seat::new();
    let mut steps = MultiStep::of(file, fd, &seat);
    let is_plain = call.flags == 0 && call.at.number() < 0;
    if is_plain && file.is_some_and(File::refuses_tries) && !would_wait(call, file) {
        return call.plainly();
    }
    let is_socket = call.at.number() < 0 && file.is_some_and(|file| file.kind(fd) == Kind::Socket);
    // What can be written at once. After a part it is tried again before the fiber waits: the part may have
    // ended for want of room, or at a pointer that leads nowhere, and then the call must not wait.
    let full = loop {
        let tried = rest.call().at_once();
        let tried = match tried {
            Err(libc::EOPNOTSUPP) if may_be_written_anew(call, file) => {
                reopen::write(fd, &rest.buffers).unwrap_or(tried)
            }
            tried => tried,
        };
        match tried {
            Err(errno) if must_wait(errno) => {
                look_after_try(&mut rest.buffers, errno)?;
                if let Some(file) = file.filter(|file| {
                    is_plain && errno == libc::EOPNOTSUPP && file.kind(fd) == Kind::Stream
                }) {
                    file.refused_try();
                    if rest.done == 0 && !would_wait(call, Some(file)) {
                        return call.plainly();
                    }
                }
                if rest.done == 0 && is_misplaced(call, file) {
                    return seekable::perform(call, descriptor::seen(file, fd));
                }
                if rest.done == 0 && errno == libc::EOPNOTSUPP && has_rare_flags(call) {
                    return offload::on_file(fd, || call.plainly());
                }
                break errno == libc::EAGAIN;
            }
            Err(_) => return rest.or_so_far(tried),
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
                    return rest.or_so_far(tried);
                }
                rest.advance(written);
                if is_socket {
                    break true;
                }
            }
        }
    };
    if is_impatient(file, fd) {
        return match rest.done {
            0 if full => Err(libc::EAGAIN),
            // The kernel answers at once, because of the file's mode.
            0 => call.plainly(),
            put => Ok(put),
        };
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

/// Parks the fiber until a part of what `op` writes can be written, and writes it here.
fn write_when_ready(op: &UserOp, on: On, deadline: u64) -> Parked {
    let writable = UserOp::poll(on.fd, libc::POLLOUT);
    loop {
        let events = match parking::perform_sending(&writable, on, deadline) {
            Parked::Answered(Ok(events)) => events,
            ended => return ended,
        };
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
pub(crate) fn may_be_written_anew(call: &Call, file: Option<&File>) -> bool {
    // The kernel is asked again what it is: a file that is opened once more has another position.
    call.flags == 0
        && call.at.number() < 0
        && file.is_some_and(|file| file.look(call.fd) == Kind::Pipe)
        && !is_impatient(file, call.fd)
}

/// Whether a write to `fd` in blocking mode goes on after a part: not if each write is a message.
pub(crate) fn goes_on(file: Option<&File>, fd: c_int) -> bool {
    match file.map_or(Kind::Unknown, |file| file.kind(fd)) {
        Kind::Socket | Kind::Pipe | Kind::Unknown => true,
        Kind::Device => terminal::is_terminal(fd),
        Kind::Regular | Kind::Stream => false,
    }
}
