//! Datagrams to sockets of `AF_UNIX` that the sender names: waiting for room in the receiver's queue.
//!
//! The sender's own socket polls writable, whatever room the receiver has. But a socket that is connected to the
//! receiver polls writable when that has room. So the fiber waits for one of its own.

use std::ffi::c_int;

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;

use crate::call::answer::Answer;
use crate::call::host;
use crate::call::own_file::OwnFile;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::socket::message::Message;
use crate::socket::plain::plain_message;
use crate::wait::multi_step::Named;
use crate::wait::parking::{self, On, Parked};
use crate::wait::polling::Polled;
use crate::wait::readiness::is_ready;
use crate::wait::user_op::UserOp;

/// How often the receiver may have room, and the message none, before something else is taken to be full.
const TRIES: u32 = 4;

/// Room that nothing announces.
static ROOM: Polled = Polled::new();

/// Sends a message to the socket that it names, when there is room for it.
pub(crate) fn transmit(mut message: Message, flags: c_int, on: On, deadline: u64) -> Answer {
    let name = message.header().msg_name;
    // SAFETY: the kernel looks whether it is there, and does not write to it.
    let name = unsafe { User::new(name) };
    let length = message.header().msg_namelen;
    let message = message.lend();
    let file = Named::new(on.fd);
    let at_once = || plain_message(Number::SENDMSG, on.fd, message, flags | libc::MSG_DONTWAIT);
    let attempt = || file.attempt(at_once);
    let mut in_vain = 0;
    while in_vain < TRIES {
        let Some(probe) = connected(name, length) else { break };
        in_vain += 1;
        if !is_ready(probe.fd(), libc::POLLOUT) {
            in_vain = 0;
            match parking::perform_until(&UserOp::poll(probe.fd(), libc::POLLOUT), on, deadline) {
                Parked::Late => return Err(libc::EAGAIN),
                Parked::Answered(Err(errno)) => return Err(errno),
                Parked::Answered(Ok(_)) => {}
                Parked::Unsupported => break,
            }
        }
        match attempt() {
            // Another sender was faster.
            Err(libc::EAGAIN) => {}
            answer => return answer,
        }
    }
    // What has no room is the sender's socket, or there can be no other one.
    let attempt = || Some(attempt()).filter(|answer| *answer != Err(libc::EAGAIN));
    let answer =
        ROOM.poll(Reason::Write, deadline, libc::EAGAIN, attempt).and_then(|answer| answer);
    if answer == Err(libc::EINTR) && deadline != NEVER {
        host::ends_by_signal();
    }
    answer
}

/// A socket that is connected to the one of this name; `None` if there can be none.
fn connected(name: User, length: libc::socklen_t) -> Option<OwnFile> {
    let flags = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let arguments = [libc::AF_UNIX.into(), flags.into()];
    let socket = OwnFile::kept(sys::call(Number::SOCKET, arguments).ok()?);
    let arguments = [socket.fd().into(), name.into(), length.into()];
    sys::call(Number::CONNECT, arguments).ok().map(|_| socket)
}
