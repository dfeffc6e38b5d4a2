//! Receiving until a message's buffers are full: `recvmsg` with `MSG_WAITALL`.

use std::ffi::c_int;
use std::ptr;

use carefree_reactor::Op;
use carefree_runtime::Reason;
use libc::msghdr;

use crate::call::answer::{Answer, or_so_far};
use crate::call::buffers::Buffers;
use crate::call::memory;
use crate::descriptor::Limit;
use crate::socket::plain::plain_message;
use crate::socket::resume;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};

/// Receives until a message's buffers are full, where the reactor can only receive what is there, or
/// has received a part: of `got` bytes, which the header tells of.
///
/// # Safety
/// As for `recvmsg`; these are its [`flags`](crate::socket::flags).
#[cold]
pub(crate) unsafe fn receive_all(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    mut got: usize,
    deadline: u64,
    steps: &mut MultiStep,
) -> Answer {
    // Nobody has looked at it: such a call is not tried.
    memory::check(message, 1)?;
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *message };
    // SAFETY: as above.
    let mut buffers = unsafe { Buffers::new(message.msg_iov, message.msg_iovlen as _) };
    buffers.look()?;
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let takes_error = resume::takes_error(fd);
    // Files that came along, for which there is no room, end it too. Elsewhere it is not files that
    // are without room.
    let lost_files = |part: &msghdr| takes_error && part.msg_flags & libc::MSG_CTRUNC != 0;
    let mut part = *message;
    if got > 0 {
        let is_over = got >= buffers.left() || lost_files(message);
        if is_over || !steps.go_on() {
            return Ok(got);
        }
        go_on(&mut part, &mut buffers, got);
    }
    loop {
        let each = flags & !libc::MSG_WAITALL;
        let op = Op::ReceiveMessage { fd, message: &raw mut part, flags: each };
        // SAFETY: as above.
        let parked = unsafe {
            match got > 0 && !takes_error {
                true => resume::receive_more(on, &raw mut part, flags, deadline),
                false => parking::perform_until(&op, on, deadline),
            }
        };
        let answer = match parked {
            Parked::Answered(Err(libc::EAGAIN)) | Parked::Unsupported => {
                let receive = || {
                    // SAFETY: as above.
                    unsafe { plain_message(libc::SYS_recvmsg, fd, &raw const part, flags) }
                };
                // SAFETY: as above, and it waits.
                unsafe { steps.offload(receive) }
            }
            Parked::Answered(answer) => answer,
            Parked::Late => Err(libc::EAGAIN),
        };
        if answer.is_ok() {
            if got == 0 {
                message.msg_namelen = part.msg_namelen;
            }
            message.msg_controllen = part.msg_controllen;
            message.msg_flags = part.msg_flags;
        }
        match answer {
            Ok(more)
                if more != 0 && more < buffers.left() && !lost_files(&part) && steps.go_on() =>
            {
                got += more;
                go_on(&mut part, &mut buffers, more);
            }
            answer => return or_so_far(got, answer),
        }
    }
}

/// Makes `part` the header for what is left in `buffers` after `more` bytes.
fn go_on(part: &mut msghdr, buffers: &mut Buffers, more: usize) {
    buffers.advance(more);
    part.msg_iov = buffers.first().cast_mut();
    part.msg_iovlen = buffers.count() as _;
    part.msg_name = ptr::null_mut();
    part.msg_namelen = 0;
}
