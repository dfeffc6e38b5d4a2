//! `recvmsg`, and receiving for calls that return the sender's address.

use std::ffi::{c_int, c_void};

use carefree_runtime::Reason;
use carefree_runtime::waiters::Seat;
use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::buffers::Buffers;
use crate::call::sys::Number;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::low_water;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::socket::flags::{
    heeded, is_urgent, is_worth_a_try, never_waits, peeks, wants_all, with_waitall,
};
use crate::socket::message::Message;
use crate::socket::peek::until_all;
use crate::socket::plain::{plain_message, plain_receive};
use crate::socket::resume;
use crate::socket::waitall_message::receive_all;
use crate::wait::multi_step::MultiStep;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

interpose! {
    /// `recvmsg(2)`.
    safe fn recvmsg(fd: c_int, message: User<msghdr>, flags: c_int) -> isize, number SYS_recvmsg {
        let seat = Seat::new();
        answer(receive_message(fd, message, flags, &mut MultiStep::new(fd, &seat)))
    }
}

/// Whether receiving no bytes from `fd` waits in its own way: on TCP such a call ends with whatever wakes it,
/// also if that is no data, and a reactor does not learn of that.
#[cold]
pub(crate) fn waits_for_nothing(fd: c_int) -> bool {
    option(fd, libc::SO_TYPE) == Ok(libc::SOCK_STREAM) && blocking(descriptor::file(fd), fd)
}

/// Asks a socket for errors, by peeking at none of its bytes.
///
/// # Errors
/// The error, which is taken from the socket.
pub(crate) fn ask_what_is_wrong(fd: c_int) -> Result<(), c_int> {
    let null = User::NULL;
    match plain_receive(fd, null, 0, libc::MSG_PEEK | libc::MSG_DONTWAIT, null.cast(), User::NULL) {
        Ok(_) | Err(libc::EAGAIN) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Receives, and returns the sender's address.
#[cold]
pub(crate) fn receive_from(
    fd: c_int,
    buffer: User<c_void>,
    length: usize,
    flags: c_int,
    address: User<sockaddr>,
    address_length: User<socklen_t>,
) -> Answer {
    let room = address_length.read()?;
    let mut buffer = iovec { iov_base: buffer.pointer(), iov_len: length };
    let mut message = Message::of_one(&mut buffer);
    message.set_address(address, room);
    let seat = Seat::new();
    let answer = receive_message(fd, message.lend(), flags, &mut MultiStep::new(fd, &seat));
    if answer.is_ok() {
        // SAFETY: it was read above; a call that says from where writes to it.
        unsafe { address_length.write_seen(message.header().msg_namelen) };
    }
    answer
}

/// The header and the buffers of a message that the kernel has not read yet.
///
/// # Errors
/// What is wrong with them, which the kernel reports before it asks the socket.
fn of_message(message: User<msghdr>) -> Result<(msghdr, Buffers), c_int> {
    message.check(1)?;
    // SAFETY: just found.
    let message = unsafe { Message::copied(message) };
    let mut buffers = message.buffers();
    buffers.look_for_message()?;
    Ok((*message.header(), buffers))
}

/// `recvmsg`, as one of the `steps` of a call.
pub(crate) fn receive_message(
    fd: c_int,
    message: User<msghdr>,
    flags: c_int,
    steps: &mut MultiStep,
) -> Answer {
    let flags = heeded(fd, flags);
    if never_waits(flags) {
        return plain_message(Number::RECVMSG, fd, message, flags);
    }
    let flags = with_waitall(fd, flags);
    if peeks(flags) {
        let length = of_message(message)?.1.left();
        let look = || plain_message(Number::RECVMSG, fd, message, flags | libc::MSG_DONTWAIT);
        return until_all(fd, length, look);
    }
    match wants_all(flags) {
        true => receive_whole(fd, message, flags, steps),
        false => receive_part(fd, message, flags, steps),
    }
}

/// `recvmsg` for what there is: at once, or when something comes.
fn receive_part(fd: c_int, message: User<msghdr>, flags: c_int, steps: &mut MultiStep) -> Answer {
    let number = Number::RECVMSG;
    let file = descriptor::file(fd);
    let buffers = if is_worth_a_try(file, fd) {
        let tried = plain_message(number, fd, message, flags | libc::MSG_DONTWAIT);
        if let Some(file) = file {
            file.tried(tried != Err(libc::EAGAIN));
        }
        if tried != Err(libc::EAGAIN) {
            return tried;
        }
        // SAFETY: the kernel has found all of it readable.
        unsafe {
            let mut all = Message::copied(message).buffers();
            all.seen();
            all
        }
    } else {
        // A reactor may report what is wrong with it only when data has come.
        of_message(message)?.1
    };
    let waits_apart = match buffers.left() {
        0 => waits_for_nothing(fd),
        length => low_water::is_above(fd, length),
    };
    if waits_apart {
        return steps.offload(|| plain_message(number, fd, message, flags));
    }
    if !blocking(file, fd) {
        return plain_message(number, fd, message, flags);
    }
    let op = UserOp::receive_message(fd, message, flags);
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    match parking::perform_until(&op, on, deadline) {
        // Less than `SO_RCVLOWAT` may be there, which the kernel returns when the time is up.
        Parked::Late => plain_message(number, fd, message, flags | libc::MSG_DONTWAIT),
        Parked::Unsupported | Parked::Answered(Err(libc::EAGAIN)) => {
            steps.offload(|| plain_message(number, fd, message, flags))
        }
        Parked::Answered(answer) => answer,
    }
}

/// `recvmsg` with `MSG_WAITALL`. It is not tried: what a try received would have to be joined with the rest.
fn receive_whole(fd: c_int, message: User<msghdr>, flags: c_int, steps: &mut MultiStep) -> Answer {
    let room = of_message(message)?.0.msg_controllen;
    ask_what_is_wrong(fd)?;
    // Only the kernel knows where a mark of urgent data ends a part.
    if is_urgent(fd) {
        return steps.offload(|| plain_message(Number::RECVMSG, fd, message, flags));
    }
    let on = On { fd, reason: Reason::Read, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    // (Files end a part also if there is no room for them.)
    let ends_by_control = room > 0 || resume::takes_error(fd);
    match ends_by_control && !brings_files_alone(fd) {
        true => receive_all_elsewhere(on, message, flags, deadline, steps),
        false => receive_all(fd, message, flags, 0, deadline, steps),
    }
}

/// `recvmsg` with `MSG_WAITALL` where control data may end a part, and only the kernel knows where. So a thread
/// makes the call, but not before there is something to receive: until then signals and cancellation end the wait.
#[cold]
fn receive_all_elsewhere(
    on: On,
    message: User<msghdr>,
    flags: c_int,
    deadline: u64,
    steps: &mut MultiStep,
) -> Answer {
    let fd = on.fd;
    let came = parking::perform_until(&UserOp::poll(fd, resume::NEWS), on, deadline);
    match came {
        Parked::Late => Err(libc::EAGAIN),
        Parked::Answered(Err(errno)) => Err(errno),
        Parked::Answered(Ok(_)) if !steps.go_on() => Err(libc::EBADF),
        Parked::Answered(Ok(_)) | Parked::Unsupported => {
            steps.offload(|| plain_message(Number::RECVMSG, fd, message, flags))
        }
    }
}

/// Whether the control data of the stream `fd` is files and nothing else: those end a part, which the data itself shows.
/// (A part also ends where another process has sent what comes next, if the socket tells of that.)
pub(crate) fn brings_files_alone(fd: c_int) -> bool {
    const SO_PASSPIDFD: c_int = 76;
    let tells = |what| option(fd, what).is_ok_and(|told| told != 0);
    resume::takes_error(fd)
        && ![libc::SO_PASSCRED, libc::SO_PASSSEC, SO_PASSPIDFD].into_iter().any(tells)
}
