//! Receiving until a message's buffers are full: `recvmsg` with `MSG_WAITALL`.

use std::ffi::c_int;

use carefree_runtime::Reason;
use libc::msghdr;

use crate::call::answer::{Answer, or_so_far};
use crate::call::buffers::Buffers;
use crate::call::sys::Number;
use crate::call::user::User;
use crate::descriptor::Limit;
use crate::socket::flags::is_urgent;
use crate::socket::message::Message;
use crate::socket::plain::plain_message;
use crate::socket::resume::{self, is_at_mark};
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

/// Receives until a message's buffers are full, where the reactor can only receive a part, or has received
/// one: of `got` bytes, which the header describes.
#[cold]
pub(crate) fn receive_all(
    fd: c_int,
    message: User<msghdr>,
    flags: c_int,
    mut got: usize,
    deadline: u64,
    steps: &mut MultiStep,
) -> Answer {
    // Such a call is not tried as a rule, so the kernel may not have read the header yet.
    message.check(1)?;
    // SAFETY: just found.
    let mut part = unsafe { Message::copied(message) };
    let mut header = *part.header();
    let mut buffers = part.buffers();
    buffers.look()?;
    let room = header.msg_controllen;
    let end = End::of(fd);
    if got > 0 {
        if got >= buffers.left() || end.has_come(&header) || !steps.go_on() {
            return Ok(got);
        }
        // SAFETY: `buffers` changes only here and in the loop, where this is done again.
        unsafe { go_on(&mut part, &mut buffers, got) };
    }
    loop {
        let answer = receive_next(fd, &mut part, flags, (got, end), deadline, steps);
        if answer.is_ok() {
            let part = part.header();
            if got == 0 {
                header.msg_namelen = part.msg_namelen;
            }
            header.msg_controllen = part.msg_controllen;
            header.msg_flags = part.msg_flags;
            // SAFETY: it was found above; what a call has received it tells there.
            unsafe { message.write_seen(header) };
        }
        match answer {
            Ok(more)
                if more != 0
                    && more < buffers.left()
                    && !end.has_come(part.header())
                    && steps.go_on() =>
            {
                got += more;
                // SAFETY: `buffers` stays as it is until this is done again, after the next part.
                unsafe { go_on(&mut part, &mut buffers, more) };
                part.set_control_room(room);
            }
            answer => return or_so_far(got, answer),
        }
    }
}

/// Receives the next part, after `got` bytes.
fn receive_next(
    fd: c_int,
    part: &mut Message<'_>,
    flags: c_int,
    (got, end): (usize, End),
    deadline: u64,
    steps: &mut MultiStep,
) -> Answer {
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let parked = match got > 0 {
        true if !end.takes_error => resume::receive_more(on, part.lend(), flags, deadline),
        // Only the kernel knows where a mark of urgent data ends a part.
        true if is_urgent(fd) => Parked::Unsupported,
        _ => {
            let op = UserOp::receive_message(fd, part.lend(), flags & !libc::MSG_WAITALL);
            parking::perform_until(&op, on, deadline)
        }
    };
    match parked {
        Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
            let part = part.lend();
            steps.offload(|| plain_message(Number::RECVMSG, fd, part, flags))
        }
        Parked::Answered(answer) => answer,
        Parked::Late => Err(libc::EAGAIN),
    }
}

/// What ends a call before its buffers are full, besides errors and the end of the stream.
#[derive(Clone, Copy)]
struct End {
    fd: c_int,
    /// See [`resume::takes_error`]. Only such a stream brings files, or has a mark that is looked for here.
    takes_error: bool,
}

impl End {
    fn of(fd: c_int) -> End {
        End { fd, takes_error: resume::takes_error(fd) }
    }

    /// Whether the call ends after the part that `header` describes: at a mark of urgent data, and if files came along,
    /// or were to for which there is no room. (Other control data does not come here: see `brings_files_alone`.)
    fn has_come(self, header: &msghdr) -> bool {
        self.takes_error
            && (header.msg_controllen > 0
                || header.msg_flags & libc::MSG_CTRUNC != 0
                || is_at_mark(self.fd))
    }
}

/// Makes `part` the header for the rest of `buffers` after `more` bytes.
///
/// # Safety
/// `part` is not used again after `buffers` has changed or gone, until it is made the header for them anew.
unsafe fn go_on(part: &mut Message<'_>, buffers: &mut Buffers<'_>, more: usize) {
    buffers.advance(more);
    // SAFETY: `go_on` asks its callers for that.
    unsafe { part.set_buffers(buffers) };
    part.without_address();
}
