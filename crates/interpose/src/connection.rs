//! `accept` and `connect`.
//!
//! Neither can be tried on a socket in blocking mode, so they are submitted at once.
//!
//! # Accepting beside other processes
//!
//! io_uring can accept without waiting (Linux 6.10), whatever the listener's mode. Elsewhere:
//!
//! epoll tells that a connection is there, and then another process may take it, if it has the listener
//! as well. No call asks for a connection without waiting but by the listener's mode or time limit, and
//! these are the other process's too. So where that can happen the reactor says that it cannot do it
//! (see its `attempt`): the fiber waits for a connection, and a thread accepts it, which may block. Of
//! this process, one at a time does so on each listener, or a crowd of fibers would become one of
//! threads.
//!
//! # Connecting where the reactor cannot
//!
//! (That is over epoll; and over io_uring where the ring must not hold the socket, see `hold`.)
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
use carefree_reactor::Op;
use carefree_runtime::Reason;
use libc::{sockaddr, socklen_t};

use crate::fiber::answer;
use crate::files::{self, Limit};
use crate::flow::blocking;
use crate::parking::{self, Answer, On, Parked};
use crate::patience::Matter;
use crate::ready;
use crate::socket::option;
use crate::turn::in_turn;
use crate::undisturbed::offload;

system_call!(
    fn raw_accept4(
        fd: c_int,
        address: *mut sockaddr,
        length: *mut socklen_t,
        flags: c_int,
    ) -> c_int = SYS_accept4
);
system_call!(
    fn raw_accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int = SYS_accept
);
system_call!(
    fn raw_connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int = SYS_connect
);

interpose! {
    /// `accept(2)`.
    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int,
        else raw_accept
    {
        // SAFETY: the caller's promise.
        answer(unsafe { take_connection(fd, address, length, 0) }) as c_int
    }
}

interpose! {
    /// `accept4(2)`.
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int,
        else raw_accept4
    {
        // SAFETY: the caller's promise.
        answer(unsafe { take_connection(fd, address, length, flags) }) as c_int
    }
}

interpose! {
    /// `connect(2)`.
    fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int,
        else raw_connect
    {
        // SAFETY: the caller's promise.
        answer(unsafe { make_connection(fd, address, length) }) as c_int
    }
}

/// Accepts a connection.
unsafe fn take_connection(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Answer {
    // SAFETY: the caller's promise.
    let connection = unsafe { wait_for_connection(fd, address, length, flags) }?;
    files::accepted(fd, connection as c_int);
    Ok(connection)
}

unsafe fn wait_for_connection(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> Answer {
    let file = files::file(fd);
    let plain = [fd as usize, address as usize, length as usize, flags as usize, 0, 0];
    if !blocking(file, fd) {
        // SAFETY: the caller's promise.
        return unsafe { kernel::call(libc::SYS_accept4, plain) };
    }
    let op = Op::Accept { fd, address, length, flags };
    let on = On { fd, reason: Reason::Accept, limit: Some(Limit::Receive) };
    // SAFETY: the caller's promise.
    match unsafe { parking::perform(&op, on) } {
        Parked::Late => Err(libc::EAGAIN),
        Parked::Answered(Err(libc::EAGAIN)) => {
            // SAFETY: the caller's promise, and the caller waits.
            unsafe { offload(|| kernel::call(libc::SYS_accept4, plain)) }
        }
        Parked::Answered(answer) => answer,
        // SAFETY: the caller's promise.
        Parked::Unsupported => unsafe { accept_elsewhere(fd, plain) },
    }
}

/// Accepts a connection that others may be faster to accept: on a thread that may block.
#[cold]
unsafe fn accept_elsewhere(fd: c_int, plain: [usize; 6]) -> Answer {
    let on = On { fd, reason: Reason::Accept, limit: Some(Limit::Receive) };
    let deadline = parking::deadline(fd, on.limit);
    let readable = Op::Poll { fd, events: libc::POLLIN as u32 };
    // SAFETY: the caller's promise, and the caller waits.
    let accept = || unsafe { offload(|| kernel::call(libc::SYS_accept4, plain)) };
    loop {
        // SAFETY: it points to nothing.
        match unsafe { parking::perform_until(&readable, on, deadline) } {
            Parked::Answered(Ok(_)) => {}
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Late => return Err(libc::EAGAIN),
            // The reactor lacks even a file to wait with: looked for now and then, so that the wait ends
            // when the fiber is cancelled. On a socket that does not listen, accepting fails at once.
            Parked::Unsupported if option(fd, libc::SO_ACCEPTCONN) == Ok(1) => {
                static LISTENERS: Matter = Matter::new();
                let is_there = || ready::is_ready(fd, libc::POLLIN).then_some(());
                LISTENERS.pursue(on.reason, deadline, libc::EAGAIN, is_there)?;
            }
            Parked::Unsupported => return accept(),
        }
        let accepted = in_turn(fd, on.reason, deadline, libc::EAGAIN, || {
            // Who had the turn before has taken it, as a rule.
            ready::is_ready(fd, libc::POLLIN).then(accept)
        });
        if let Some(answer) = accepted? {
            return answer;
        }
    }
}

/// Connects.
unsafe fn make_connection(fd: c_int, address: *const sockaddr, length: socklen_t) -> Answer {
    let plain = [fd as usize, address as usize, length as usize, 0, 0, 0];
    if !blocking(files::file(fd), fd) {
        // SAFETY: the caller's promise.
        return unsafe { kernel::call(libc::SYS_connect, plain) };
    }
    if is_bound(fd) {
        files::claimed(fd);
    }
    let op = Op::Connect { fd, address, length };
    let on = On { fd, reason: Reason::Connect, limit: Some(Limit::Send) };
    // SAFETY: the caller's promise.
    match unsafe { parking::perform(&op, on) } {
        // A stream of `AF_UNIX` waits for room in the listener's queue, and nothing is under way.
        Parked::Late if option(fd, libc::SO_DOMAIN) == Ok(libc::AF_UNIX) => Err(libc::EAGAIN),
        Parked::Late => Err(libc::EINPROGRESS),
        // SAFETY: the caller's promise.
        Parked::Unsupported => unsafe { connect_in_steps(fd, address, length) },
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
unsafe fn connect_in_steps(fd: c_int, address: *const sockaddr, length: socklen_t) -> Answer {
    static QUEUES: Matter = Matter::new();
    let plain = [fd as usize, address as usize, length as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    let begin = || unsafe { connect_at_once(fd, plain) };
    loop {
        match begin() {
            Err(libc::EINPROGRESS | libc::EALREADY) => {}
            // A listener of `AF_UNIX` whose queue is full: there is nothing to wait on.
            Err(libc::EAGAIN) => {
                let deadline = parking::deadline(fd, Some(Limit::Send));
                return QUEUES.pursue(Reason::Connect, deadline, libc::EAGAIN, || {
                    Some(begin()).filter(|answer| *answer != Err(libc::EAGAIN))
                })?;
            }
            answer => return answer,
        }
        let writable = Op::Poll { fd, events: libc::POLLOUT as u32 };
        let on = On { fd, reason: Reason::Connect, limit: Some(Limit::Send) };
        // SAFETY: it points to nothing.
        match unsafe { parking::perform(&writable, on) } {
            // The call says what came of it.
            Parked::Answered(Ok(_)) => {}
            Parked::Answered(Err(errno)) => return Err(errno),
            Parked::Late => return Err(libc::EINPROGRESS),
            Parked::Unsupported => {
                // SAFETY: the caller's promise, and the caller waits.
                return unsafe { offload(|| kernel::call(libc::SYS_connect, plain)) };
            }
        }
    }
}

/// Held between two changes of a socket's mode: over a few system calls, none of which waits.
static CONNECTING: Lock<()> = Lock::new(());

/// `connect` on a socket in blocking mode, but without waiting.
///
/// # Safety
/// As for the system call.
unsafe fn connect_at_once(fd: c_int, arguments: [usize; 6]) -> Answer {
    // SAFETY: the caller's promise.
    let connect = || unsafe { kernel::call(libc::SYS_connect, arguments) };
    // What is no stream, or listens, is answered at once.
    if option(fd, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM) || option(fd, libc::SO_ACCEPTCONN) != Ok(0)
    {
        return connect();
    }
    let set = |mode: usize| {
        let arguments = [fd as usize, libc::F_SETFL as usize, mode, 0, 0, 0];
        // SAFETY: no memory is involved.
        unsafe { kernel::call(libc::SYS_fcntl, arguments) }
    };
    let _turn = CONNECTING.lock();
    // SAFETY: as above.
    let mode = unsafe {
        kernel::call(libc::SYS_fcntl, [fd as usize, libc::F_GETFL as usize, 0, 0, 0, 0])
    }?;
    set(mode | libc::O_NONBLOCK as usize)?;
    let connected = connect();
    // It was just changed, so it can be changed.
    let _ = set(mode & !(libc::O_NONBLOCK as usize));
    connected
}

/// From a fork on, others may accept from the same listeners; from the first one in the process, which
/// may come before there are fibers. In the child nobody else holds the lock.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn prepare() {
            carefree_reactor::before_fork();
        }
        unsafe extern "C" fn renew() {
            // SAFETY: the child has one thread, and that one was forking.
            unsafe { CONNECTING.renew(()) };
        }
        // SAFETY: the handlers touch nothing but the lock and a flag.
        unsafe { libc::pthread_atfork(Some(prepare), None, Some(renew)) };
    }
    mind_forks
};
