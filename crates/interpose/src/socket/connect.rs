//! `connect`.
//!
//! Connecting cannot be tried on a socket in blocking mode, so it is submitted at once.
//!
//! # Connecting where the reactor cannot
//!
//! (That is over epoll; and over io_uring where no ring may hold the socket, see
//! [`holder`](crate::descriptor::holder).)
//!
//! epoll can wait for a connection that has been begun, and only the socket's mode lets a call begin one
//! without waiting. The mode belongs to the open file, which other processes may share; it is changed all
//! the same, for the one system call. *No call notices*: this is done only on a stream socket that neither
//! listens nor is connected, and on such a socket no call waits but `connect` itself. Fibers that connect
//! at the same time do so one after the other, or one could take the other's mode for the socket's own.
//! (Another process that asks for the mode just then sees the change, and if it sets the mode just then, that
//! is undone.)
//!
//! *Alternatives.* A thread for each connection cannot be cut short, and there cannot be thousands. A time
//! limit (`SO_SNDTIMEO`) ends the call while the connection goes on, but it blocks the carrier for a tick at
//! least, and belongs to the open file as well. `sendto` with `MSG_FASTOPEN` and `MSG_DONTWAIT` begins a
//! connection of TCP without waiting, but asks for a cookie in its first packet, and some networks drop such
//! packets.

use std::ffi::c_int;

use carefree_ground::kernel;
use carefree_ground::lock::Lock;
use carefree_runtime::Reason;
use carefree_runtime::clock::NEVER;
use libc::{sockaddr, socklen_t};

use crate::call::answer::{Answer, answer};
use crate::call::sys::{self, Number, Word};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::descriptor;
use crate::descriptor::option::option;
use crate::descriptor::{Limit, blocking};
use crate::wait::multi_step::Named;
use crate::wait::parking::{self, On, Parked};
use crate::wait::polling::Polled;
use crate::wait::user_op::UserOp;

interpose! {
    /// `connect(2)`.
    safe fn connect(fd: c_int, address: User<sockaddr>, length: socklen_t) -> c_int,
        number SYS_connect
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
    let deadline = parking::deadline(fd, on.limit);
    let was_connecting = deadline != NEVER && is_connecting(fd);
    match parking::perform_until(&op, on, deadline) {
        // A stream of `AF_UNIX` has waited for room in the listener's queue: no connection was begun.
        Parked::Late if option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX) => Err(libc::EAGAIN),
        Parked::Late => Err(late(was_connecting)),
        Parked::Unsupported => connect_in_steps(fd, address, length),
        Parked::Answered(Err(errno)) => {
            end_attempt(fd, errno);
            Err(errno)
        }
        Parked::Answered(answer) => answer,
    }
}

/// Has a socket of TCP forget a connection that io_uring was refused. The ring takes the error, but leaves the socket as
/// one that is connecting (Linux 6.18): the next `connect` would fail, and `listen` too.
#[cold]
fn end_attempt(fd: c_int, errno: c_int) {
    let failed = matches!(
        errno,
        libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::ETIMEDOUT
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENETDOWN
            | libc::EPROTO
            | libc::ENOPROTOOPT
            | libc::EACCES
            | libc::EPERM
    );
    if failed && tcp_state(fd) == Some(CLOSED) {
        // Where the connection had not been begun, this changes nothing.
        let mut none =
            sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        let length = size_of_val(&none);
        let _ =
            sys::call(Number::CONNECT, [fd.into(), User::lend(&mut none).into(), length.into()]);
    }
}

/// Whether the program has bound a socket to an address.
fn is_bound(fd: c_int) -> bool {
    // SAFETY: zeros are an address, of no family.
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

// `TCP_SYN_SENT` and `TCP_CLOSE` of the kernel's `net/tcp_states.h`.
const SYN_SENT: u8 = 2;
const CLOSED: u8 = 7;

/// Whether a connection of TCP has been begun on a socket, and is not made yet.
fn is_connecting(fd: c_int) -> bool {
    tcp_state(fd) == Some(SYN_SENT)
}

fn is_tcp(fd: c_int) -> bool {
    tcp_state(fd).is_some()
}

/// The state of a socket of TCP.
fn tcp_state(fd: c_int) -> Option<u8> {
    let mut state = 0u8;
    let mut length = size_of_val(&state) as socklen_t;
    let [state_at, length_at] = [&raw mut state as usize, &raw mut length as usize];
    let arguments =
        [fd as usize, libc::IPPROTO_TCP as usize, libc::TCP_INFO as usize, state_at, length_at, 0];
    // SAFETY: the kernel writes the first byte of what it knows, which is the state, for that is all the room.
    let asked = unsafe { kernel::call(libc::SYS_getsockopt, arguments) };
    asked.is_ok().then_some(state)
}

/// What a call says that has waited too long for a connection.
fn late(was_connecting: bool) -> c_int {
    if was_connecting { libc::EALREADY } else { libc::EINPROGRESS }
}

/// Connects where the reactor can only wait for a connection that was begun.
///
/// Another `connect` tells how TCP's attempt has ended. Of other families it would begin a new attempt (`AF_VSOCK`), or say
/// only that the first one is over (Bluetooth): they tell the result by `SO_ERROR`.
#[cold]
fn connect_in_steps(fd: c_int, address: User<sockaddr>, length: socklen_t) -> Answer {
    static QUEUES: Polled = Polled::new();
    let plain = [fd.into(), address.into(), length.into()];
    let file = Named::new(fd);
    let begin = || file.attempt(|| connect_at_once(fd, plain));
    let mut was_connecting = None;
    loop {
        match begin() {
            Err(libc::EISCONN | libc::EBADFD) if was_connecting == Some(false) && !is_tcp(fd) => {
                return Ok(0);
            }
            Err(errno @ (libc::EINPROGRESS | libc::EALREADY)) => {
                was_connecting.get_or_insert(errno == libc::EALREADY);
            }
            // The queue of a listener of `AF_UNIX` is full: there is no file to wait on.
            Err(libc::EAGAIN) => {
                let deadline = parking::deadline(fd, Some(Limit::Send));
                return QUEUES.poll(Reason::Connect, deadline, libc::EAGAIN, || {
                    Some(begin()).filter(|answer| *answer != Err(libc::EAGAIN))
                })?;
            }
            answer => return answer,
        }
        let writable = UserOp::poll(fd, libc::POLLOUT);
        // `AF_VSOCK` has a limit of its own in place of the one on sending, and heeds it itself.
        let is_limited = option(fd, libc::SO_DOMAIN) != Ok(libc::AF_VSOCK);
        let limit = is_limited.then_some(Limit::Send);
        match parking::perform(&writable, On { fd, reason: Reason::Connect, limit }) {
            Parked::Answered(Ok(_)) if is_tcp(fd) => {}
            Parked::Answered(Ok(_)) => match option(fd, libc::SO_ERROR)? {
                0 => {}
                errno => return Err(errno),
            },
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Late => return Err(late(was_connecting == Some(true))),
            Parked::Unsupported => {
                return offload(|| sys::call(Number::CONNECT, plain));
            }
        }
    }
}

/// Held while a socket's mode is changed: for a few system calls, none of which waits.
static CONNECTING: Lock<()> = Lock::new(());

/// `connect` on a socket in blocking mode, but without waiting.
fn connect_at_once(fd: c_int, arguments: [Word; 3]) -> Answer {
    let connect = || sys::call(Number::CONNECT, arguments);
    // On a socket that is no stream, or listens, the call does not wait.
    if option(fd, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM) || option(fd, libc::SO_ACCEPTCONN) != Ok(0)
    {
        return connect();
    }
    let _turn = CONNECTING.lock();
    let mode = sys::mode(fd)?;
    sys::set_mode(fd, mode | libc::O_NONBLOCK)?;
    let connected = connect();
    // This succeeds, as the change before it did.
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
