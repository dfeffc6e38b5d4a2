//! Sending on after a part.
//!
//! A connection that its peer has reset has an error for its next call. On a thread a call that has sent
//! a part ends with that part, for the kernel looks at the error only when nothing was sent, and the next
//! call is told. A try to send the rest is such a next call: it would take the error away, to which the
//! part is the answer, and the program would hear `EPIPE` where a thread hears `ECONNRESET`. So the
//! connection is looked at before each try, by what takes nothing, and the reactor only waits.
//!
//! An error that comes between the look and the try is lost all the same. So is one that leaves the
//! connection as it is (of `IP_RECVERR`), which a look cannot tell from a message in the queue of errors.

use std::ffi::c_int;

use carefree_reactor::Op;
use libc::msghdr;

use crate::parking::{self, On, Parked};
use crate::plain::plain_message;
use crate::ready::is_hung_up;

/// Sends more of a stream's bytes after a part, when there is room. It is tried at first: the part may
/// have ended at a pointer that leads nowhere, which is not waited for.
///
/// # Safety
/// As for `sendmsg`.
pub(crate) unsafe fn send_more(on: On, message: &msghdr, flags: c_int, deadline: u64) -> Parked {
    let fd = on.fd;
    let at_once = flags | libc::MSG_DONTWAIT;
    let mut had_room = false;
    loop {
        if is_hung_up(fd) {
            return Parked::Answered(Err(libc::EPIPE));
        }
        // SAFETY: the caller's promise.
        match unsafe { plain_message(libc::SYS_sendmsg, fd, message, at_once) } {
            Err(libc::EAGAIN) => {}
            answer => return Parked::Answered(answer),
        }
        if had_room {
            break;
        }
        // SAFETY: it points to nothing.
        match unsafe {
            parking::perform_until(&Op::Poll { fd, events: libc::POLLOUT as u32 }, on, deadline)
        } {
            Parked::Answered(Ok(_)) => had_room = true,
            ended => return ended,
        }
    }
    // Another writer was faster, or the kernel has no memory now, of which no look tells.
    let op = Op::SendMessage { fd, message, flags };
    // SAFETY: the caller's promise.
    unsafe { parking::perform_until(&op, on, deadline) }
}
