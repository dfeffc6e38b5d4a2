//! `accept`, `accept4`.
//!
//! Accepting cannot be tried on a socket in blocking mode, so it is submitted at once.
//!
//! # Accepting beside other processes
//!
//! io_uring can accept without waiting (Linux 6.10), whatever the listener's mode. Elsewhere:
//!
//! epoll reports a connection, and then another process that shares the listener may accept it first. A call
//! asks for a connection without waiting only if the listener's mode or time limit says so, and these are
//! shared as well. So where another process may have the listener, the reactor reports that it cannot accept
//! (see its `attempt`): the fiber waits for a connection, and a thread accepts it, which may block. Only one
//! fiber of this process at a time does that on each listener, or a crowd of fibers would take a crowd of
//! threads.

use std::ffi::c_int;

use carefree_runtime::Reason;
use libc::{sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::sys::{self, Number, Word};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::wait::file_lock::with_file_lock;
use crate::wait::parking::{self, On, Parked};
use crate::wait::polling::Polled;
use crate::wait::readiness;
use crate::wait::user_op::UserOp;

interpose! {
    /// `accept(2)`.
    safe fn accept(fd: c_int, address: User<sockaddr>, length: User<socklen_t>) -> c_int,
        number SYS_accept
    {
        answer(take_connection(fd, address, length, 0)) as c_int
    }
}

interpose! {
    /// `accept4(2)`.
    safe fn accept4(fd: c_int, address: User<sockaddr>, length: User<socklen_t>, flags: c_int) -> c_int,
        number SYS_accept4
    {
        answer(take_connection(fd, address, length, flags)) as c_int
    }
}

/// Accepts a connection.
fn take_connection(
    fd: c_int,
    address: User<sockaddr>,
    length: User<socklen_t>,
    flags: c_int,
) -> Answer {
    let connection = wait_for_connection(fd, address, length, flags)?;
    descriptor::accepted(fd, connection as c_int);
    Ok(connection)
}

fn wait_for_connection(
    fd: c_int,
    address: User<sockaddr>,
    length: User<socklen_t>,
    flags: c_int,
) -> Answer {
    let file = descriptor::file(fd);
    let plain = [fd.into(), address.into(), length.into(), flags.into()];
    // Flags that the kernel does not know it refuses before it waits.
    if !blocking(file, fd) || flags & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) != 0 {
        return sys::call(Number::ACCEPT4, plain);
    }
    let op = UserOp::accept(fd, address, length, flags);
    let on = On { fd, reason: Reason::Accept, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    loop {
        return match parking::perform_until_look(&op, on, deadline) {
            None => {
                // io_uring does not see that a listener of `AF_UNIX` was shut down, but a poll does.
                let readable = UserOp::poll(fd, libc::POLLIN);
                match parking::perform_until(&readable, on, deadline) {
                    Parked::Answered(Ok(there)) if there & libc::POLLHUP as usize != 0 => {
                        sys::call(Number::ACCEPT4, plain)
                    }
                    Parked::Late => Err(libc::EAGAIN),
                    Parked::Answered(Err(errno)) => Err(errno),
                    Parked::Answered(Ok(_)) | Parked::Unsupported => continue,
                }
            }
            Some(Parked::Late) => Err(libc::EAGAIN),
            Some(Parked::Answered(Err(libc::EAGAIN))) => {
                offload(|| sys::call(Number::ACCEPT4, plain))
            }
            Some(Parked::Answered(answer)) => answer,
            Some(Parked::Unsupported) => accept_elsewhere(fd, plain),
        };
    }
}

/// Accepts a connection that another process may accept first: on a thread that may block.
#[cold]
fn accept_elsewhere(fd: c_int, plain: [Word; 4]) -> Answer {
    let on = On { fd, reason: Reason::Accept, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    let readable = UserOp::poll(fd, libc::POLLIN);
    let accept = || offload(|| sys::call(Number::ACCEPT4, plain));
    loop {
        match parking::perform_until(&readable, on, deadline) {
            Parked::Answered(Ok(_)) => {}
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Late => return Err(libc::EAGAIN),
            // The reactor cannot wait, for want of a file. The fiber polls instead, so that a cancellation
            // ends the wait. On a socket that does not listen, accepting fails at once.
            Parked::Unsupported if option(fd, libc::SO_ACCEPTCONN) == Ok(1) => {
                static LISTENERS: Polled = Polled::new();
                let is_there = || readiness::is_ready(fd, libc::POLLIN).then_some(());
                LISTENERS.poll(on.reason, deadline, libc::EAGAIN, is_there)?;
            }
            Parked::Unsupported => return accept(),
        }
        let accepted = with_file_lock(fd, on.reason, deadline, libc::EAGAIN, || {
            // The previous holder has usually accepted the connection.
            readiness::is_ready(fd, libc::POLLIN).then(accept)
        });
        if let Some(answer) = accepted? {
            return answer;
        }
    }
}

/// After a fork, another process may accept from the same listeners. The process may fork before there are
/// fibers, so this is registered when the program starts.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn prepare() {
            carefree_reactor::before_fork();
        }
        // SAFETY: the handler touches nothing but a flag.
        unsafe { libc::pthread_atfork(Some(prepare), None, None) };
    }
    mind_forks
};
