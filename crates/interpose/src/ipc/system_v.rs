//! System V messages and semaphores.
//!
//! There is no file to wait for: they are polled (see [`polling`](crate::wait::polling)).

use std::ffi::{c_int, c_long, c_void};

use carefree_ground::kernel;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use libc::{sembuf, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::fiber;
use crate::time::duration;
use crate::wait::polling::Polled;

static SYSTEM_V: Polled = Polled::new();

/// Calls `attempt` until it says something else than `again`.
fn poll(again: c_int, deadline: u64, mut attempt: impl FnMut() -> Answer) -> Answer {
    SYSTEM_V.poll(Reason::Ipc, deadline, libc::EAGAIN, || {
        Some(attempt()).filter(|answer| *answer != Err(again))
    })?
}

/// Takes note of a call that may let others go on.
fn done(answer: Answer) -> Answer {
    if answer.is_ok() {
        SYSTEM_V.notify();
    }
    answer
}

system_call!(
    fn raw_msgsnd(queue: c_int, message: *const c_void, length: usize, flags: c_int) -> c_int
        = SYS_msgsnd
);
system_call!(
    fn raw_msgrcv(
        queue: c_int,
        message: *mut c_void,
        length: usize,
        kind: c_long,
        flags: c_int,
    ) -> isize = SYS_msgrcv
);
system_call!(fn raw_semop(set: c_int, operations: *mut sembuf, count: usize) -> c_int = SYS_semop);
system_call!(
    fn raw_semtimedop(
        set: c_int,
        operations: *mut sembuf,
        count: usize,
        timeout: *const timespec,
    ) -> c_int = SYS_semtimedop
);

interpose! { anywhere
    /// `msgsnd(2)`.
    fn msgsnd(queue: c_int, message: *const c_void, length: usize, flags: c_int) -> c_int,
        else raw_msgsnd
    {
        if !fiber::on_fiber() || flags & libc::IPC_NOWAIT != 0 {
            // SAFETY: the caller's promise.
            let result = unsafe { original(queue, message, length, flags) };
            SYSTEM_V.notify();
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let arguments = [queue as usize, message as usize, length, flags as usize, 0, 0];
        answer(done(poll(libc::EAGAIN, NEVER, || {
            // SAFETY: the caller's promise.
            unsafe { kernel::call(libc::SYS_msgsnd, arguments) }
        }))) as c_int
    }
}

interpose! { anywhere
    /// `msgrcv(2)`.
    fn msgrcv(
        queue: c_int,
        message: *mut c_void,
        length: usize,
        kind: c_long,
        flags: c_int,
    ) -> isize, else raw_msgrcv {
        if !fiber::on_fiber() || flags & libc::IPC_NOWAIT != 0 {
            // SAFETY: the caller's promise.
            let result = unsafe { original(queue, message, length, kind, flags) };
            SYSTEM_V.notify();
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let arguments =
            [queue as usize, message as usize, length, kind as usize, flags as usize, 0];
        answer(done(poll(libc::ENOMSG, NEVER, || {
            // SAFETY: the caller's promise.
            unsafe { kernel::call(libc::SYS_msgrcv, arguments) }
        })))
    }
}

interpose! { anywhere
    /// `semop(2)`.
    fn semop(set: c_int, operations: *mut sembuf, count: usize) -> c_int, else raw_semop {
        // SAFETY: the caller's promise.
        unsafe { semtimedop(set, operations, count, std::ptr::null()) }
    }
}

interpose! { anywhere
    /// `semtimedop(2)`.
    fn semtimedop(
        set: c_int,
        operations: *mut sembuf,
        count: usize,
        timeout: *const timespec,
    ) -> c_int, else raw_semtimedop {
        if !fiber::on_fiber() {
            // SAFETY: the caller's promise.
            let result = unsafe { original(set, operations, count, timeout) };
            SYSTEM_V.notify();
            return result;
        }
        // SAFETY: as above.
        answer(done(unsafe { operate(set, operations, count, timeout) })) as c_int
    }
}

/// `semtimedop` by a fiber.
///
/// # Safety
/// As for libc's.
unsafe fn operate(
    set: c_int,
    operations: *mut sembuf,
    count: usize,
    timeout: *const timespec,
) -> Answer {
    // With no time for it there is no wait; each operation's own flags stay.
    let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    let time = &raw const at_once as usize;
    let arguments = [set as usize, operations as usize, count, time, 0, 0];
    // SAFETY: the caller's promise.
    let attempt = || unsafe { kernel::call(libc::SYS_semtimedop, arguments) };
    let tried = attempt();
    // SAFETY: the kernel has read them.
    let waits = tried == Err(libc::EAGAIN)
        && unsafe { std::slice::from_raw_parts(operations, count) }
            .iter()
            .any(|one| c_int::from(one.sem_flg) & libc::IPC_NOWAIT == 0);
    if !waits {
        return tried;
    }
    let deadline = duration::deadline(timeout)?;
    poll(libc::EAGAIN, deadline, attempt)
}
