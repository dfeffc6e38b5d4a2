//! `connect`.
//!
//! It cannot be tried on a socket in blocking mode, so it is submitted at once.
//!
//! # Connecting where the reactor cannot
//!
//! (That is over epoll; and over io_uring where the ring must not hold the socket, see [`holder`](crate::descriptor::holder).)
//!
//! epoll waits for a connection that has been begun, and nothing but the socket's mode lets one begin
//! it without waiting. The mode is the open file's, and others may have that as well; still it is
//! changed here, for the one system call. *Nobody can tell*: only a stream socket that neither
//! listens nor is connected is treated so, and on such a one no call waits but `connect` itself.
//! Fibers that connect at the same time take turns, or one could take the other's mode for the
//! socket's own. (What can be seen is the mode itself, by another process that asks for it just then;
//! and if one sets it just then, that is undone.)
//!
//! *Alternatives.* A thread for each connection that is being made cannot be cut short, and there are no
//! thousands of them. A time limit (`SO_SNDTIMEO`) ends the call while the connection goes on, but
//! after a tick at the earliest, with the carrier, and it is the open file's as well. `sendto` with
//! `MSG_FASTOPEN` and `MSG_DONTWAIT` begins a connection of TCP without waiting, but asks for a cookie
//! in its first packet, which some networks drop.

use std::ffi::c_int;

use carefree_ground::kernel;
use carefree_ground::lock::Lock;
use carefree_runtime::Reason;
use libc::{sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::sys;
use crate::call::sys::Number;
use crate::call::sys::Word;
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::wait::parking::{self, On, Parked};
use crate::wait::polling::Polled;
use crate::wait::user_op::UserOp;

system_call!(
    fn raw_connect(fd: c_int, address: User<sockaddr>, length: socklen_t) -> c_int = SYS_connect
);

interpose! {
    /// `connect(2)`.
    safe fn connect(fd: c_int, address: User<sockaddr>, length: socklen_t) -> c_int,
        else raw_connect
    {
        answer(make_connection(fd, address, length)) as c_int
    }
}

/// Connects.
fn make_connection(fd: c_int, address: User<sockaddr>, length: socklen_t) -> Answer {
    let plain = [fd.into(), address.into(), length.into()];
    if !blocking(descriptor::file(fd), fd) {
        return sys::call(Number::CONNECT, plain);
    }
    if is_bound(fd) {
        descriptor::claimed(fd);
    }
    let op = UserOp::connect(fd, address, length);
    let on = On { fd, reason: Reason::Connect, limit: Some(Limit::Send) };
    match parking::perform(&op, on) {
        // A stream of `AF_UNIX` waits for room in the listener's queue, and nothing is under way.
        Parked::Late if option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX) => Err(libc::EAGAIN),
        Parked::Late => Err(libc::EINPROGRESS),
        Parked::Unsupported => connect_in_steps(fd, address, length),
        Parked::Answered(answer) => answer,
    }
}

/// Whether a socket has an address that the program has chosen.
fn is_bound(fd: c_int) -> bool {
    // SAFETY: plain old data.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&address) as socklen_t;
    let [address_at, length_at] = [&raw mut address as usize, &raw mut length as usize];
    let arguments = [fd as usize, address_at, length_at, 0, 0, 0];
    // SAFETY: the kernel writes an address, its room is said, and its length.
    if unsafe { kernel::call(libc::SYS_getsockname, arguments) }.is_err() {
        return false;
    }
    match address.ss_family.into() {
        libc::AF_INET | libc::AF_INET6 => {
            // SAFETY: both kinds have their port in the same place.
            unsafe { (&raw const address).cast::<libc::sockaddr_in>().read().sin_port != 0 }
        }
        _ => length as usize > size_of::<libc::sa_family_t>(),
    }
}

/// Connects where the reactor can only wait for what was begun.
#[cold]
fn connect_in_steps(fd: c_int, address: User<sockaddr>, length: socklen_t) -> Answer {
    static QUEUES: Polled = Polled::new();
    let plain = [fd.into(), address.into(), length.into()];
    let begin = || connect_at_once(fd, plain);
    loop {
        match begin() {
            Err(libc::EINPROGRESS | libc::EALREADY) => {}
            // A listener of `AF_UNIX` whose queue is full: there is nothing to wait on.
            Err(libc::EAGAIN) => {
                let deadline = parking::deadline(fd, Some(Limit::Send));
                return QUEUES.poll(Reason::Connect, deadline, libc::EAGAIN, || {
                    Some(begin()).filter(|answer| *answer != Err(libc::EAGAIN))
                })?;
            }
            answer => return answer,
        }
        let writable = UserOp::poll(fd, libc::POLLOUT);
        let on = On { fd, reason: Reason::Connect, limit: Some(Limit::Send) };
        match parking::perform(&writable, on) {
            // The call says what came of it.
            Parked::Answered(Ok(_)) => {}
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Late => return Err(libc::EINPROGRESS),
            Parked::Unsupported => {
                return offload(|| sys::call(Number::CONNECT, plain));
            }
        }
    }
}

/// Held between two changes of a socket's mode: over a few system calls, none of which waits.
static CONNECTING: Lock<()> = Lock::new(());

/// `connect` on a socket in blocking mode, but without waiting.
fn connect_at_once(fd: c_int, arguments: [Word; 3]) -> Answer {
    let connect = || sys::call(Number::CONNECT, arguments);
    // What is no stream, or listens, is answered at once.
    if option(fd, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM) || option(fd, libc::SO_ACCEPTCONN) != Ok(0)
    {
        return connect();
    }
    let _turn = CONNECTING.lock();
    let mode = sys::mode(fd)?;
    sys::set_mode(fd, mode | libc::O_NONBLOCK)?;
    let connected = connect();
    // It was just changed, so it can be changed.
    let _ = sys::set_mode(fd, mode & !libc::O_NONBLOCK);
    connected
}

/// In the child of a fork no other thread holds the lock.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn renew() {
            // SAFETY: the child has one thread, and that one was forking.
            unsafe { CONNECTING.renew(()) };
        }
        // SAFETY: the handler touches nothing but the lock.
        unsafe { libc::pthread_atfork(None, None, Some(renew)) };
    }
    mind_forks
};
