//! System V messages and semaphores.
//!
//! They are no files that a fiber could wait for, so they are polled (see [`polling`](crate::wait::polling)).

use std::ffi::{c_int, c_long, c_void};

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use libc::{sembuf, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::fiber;
use crate::call::sys::{self, Number};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::time::duration;
use crate::wait::polling::Polled;

static SYSTEM_V: Polled = Polled::new();

/// Calls `attempt` until it answers something else than `again`, for a call that may be
/// [steady](crate::call::host::can_be_cut).
fn poll(again: c_int, steady: bool, deadline: u64, mut attempt: impl FnMut() -> Answer) -> Answer {
    let mut waits = false;
    let answer = SYSTEM_V.poll_in(steady, Reason::Ipc, deadline, libc::EAGAIN, || {
        let answer = attempt();
        waits |= answer == Err(again);
        Some(answer).filter(|answer| *answer != Err(again))
    })?;
    if waits { answer.map_err(removed) } else { answer }
}

/// What a call that waits is told of a set or queue that is gone when it tries again: it was removed meanwhile.
fn removed(errno: c_int) -> c_int {
    if errno == libc::EINVAL { libc::EIDRM } else { errno }
}

/// Notes a call that may let other fibers go on.
fn done(answer: Answer) -> Answer {
    if answer.is_ok() {
        SYSTEM_V.notify();
    }
    answer
}

interpose! { anywhere
    /// `msgsnd(2)`.
    safe fn msgsnd(queue: c_int, message: User<c_void>, length: usize, flags: c_int) -> c_int,
        number SYS_msgsnd
    {
        if !fiber::on_fiber() || flags & libc::IPC_NOWAIT != 0 {
            let result = original(queue, message, length, flags);
            SYSTEM_V.notify();
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let arguments = [queue.into(), message.into(), length.into(), flags.into()];
        answer(done(poll(libc::EAGAIN, false, NEVER, || {
            sys::call(Number::MSGSND, arguments)
        }))) as c_int
    }
}

interpose! { anywhere
    /// `msgrcv(2)`.
    safe fn msgrcv(
        queue: c_int,
        message: User<c_void>,
        length: usize,
        kind: c_long,
        flags: c_int,
    ) -> isize, number SYS_msgrcv {
        // (A copy must not be waited for: the kernel refuses that.)
        if !fiber::on_fiber() || flags & (libc::IPC_NOWAIT | libc::MSG_COPY) != 0 {
            let result = original(queue, message, length, kind, flags);
            SYSTEM_V.notify();
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let arguments = [queue.into(), message.into(), length.into(), kind.into(), flags.into()];
        answer(done(poll(libc::ENOMSG, false, NEVER, || {
            sys::call(Number::MSGRCV, arguments)
        })))
    }
}

interpose! { steady anywhere
    /// `semop(2)`.
    safe fn semop(set: c_int, operations: User<sembuf>, count: usize) -> c_int, number SYS_semop {
        semtimedop::stand_in(set, operations, count, User::NULL)
    }
}

interpose! { steady anywhere
    /// `semtimedop(2)`.
    safe fn semtimedop(
        set: c_int,
        operations: User<sembuf>,
        count: usize,
        timeout: User<timespec>,
    ) -> c_int, number SYS_semtimedop {
        if !fiber::on_fiber() {
            let result = original(set, operations, count, timeout);
            SYSTEM_V.notify();
            return result;
        }
        answer(done(operate(set, operations, count, timeout))) as c_int
    }
}

/// `semtimedop` on a fiber.
fn operate(set: c_int, operations: User<sembuf>, count: usize, timeout: User<timespec>) -> Answer {
    let Ok(deadline) = duration::deadline(timeout) else {
        // The kernel reports what is wrong, with the time or before it, and does nothing.
        let arguments = [set.into(), operations.into(), count.into(), timeout.into()];
        return sys::call(Number::SEMTIMEDOP, arguments);
    };
    // With a timeout of zero the call does not wait, and each operation keeps its own flags.
    let mut at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    let time = User::lend(&mut at_once);
    let arguments = [set.into(), operations.into(), count.into(), time.into()];
    let attempt = || sys::call(Number::SEMTIMEDOP, arguments);
    let tried = attempt();
    let may_wait = |place| {
        // SAFETY: the kernel copies all `count` of them before it tries the first, and has found none missing.
        let operation = unsafe { operations.after(place).read_seen() };
        c_int::from(operation.sem_flg) & libc::IPC_NOWAIT == 0
    };
    if tried != Err(libc::EAGAIN) {
        return tried;
    }
    let waiting = (0..count).filter(|place| may_wait(*place)).count();
    if waiting == 0 {
        return tried;
    }
    if waiting < count {
        // The call waits or fails by the flags of the operation that cannot be done. Only the kernel knows which it is.
        let arguments = [set.into(), operations.into(), count.into(), timeout.into()];
        return offload(|| sys::call(Number::SEMTIMEDOP, arguments)).map_err(removed);
    }
    poll(libc::EAGAIN, true, deadline, attempt).map_err(removed)
}
