//! POSIX message queues, System V messages and semaphores, and terminals that drain.
//!
//! A POSIX queue is a file, and is waited for as one. For System V's objects there is no file: they
//! are asked for again and again (see `patience`).

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use carefree_runtime::operation::{self, Ended, Wait};
use carefree_runtime::waiters::Seat;
use libc::{sembuf, timespec};

use crate::fiber::{self, answer};
use crate::files::Waiter;
use crate::parking::{Answer, interruption};
use crate::patience::Matter;
use crate::span;
use crate::time::{Clock, absolute};
use crate::undisturbed::offload;

interpose! {
    /// `mq_receive(3)`.
    fn mq_receive(queue: c_int, buffer: *mut c_char, length: usize, priority: *mut c_uint)
        -> isize, linked "__mq_receive" {
        // SAFETY: the caller's promise.
        unsafe { mq_timedreceive(queue, buffer, length, priority, std::ptr::null()) }
    }
}

interpose! {
    /// `mq_timedreceive(3)`.
    fn mq_timedreceive(
        queue: c_int,
        buffer: *mut c_char,
        length: usize,
        priority: *mut c_uint,
        deadline: *const timespec,
    ) -> isize, linked "__mq_timedreceive" {
        let arguments = [queue as usize, buffer as usize, length, priority as usize];
        // SAFETY: the caller's promise.
        answer(unsafe { by_queue(libc::SYS_mq_timedreceive, arguments, libc::POLLIN, deadline) })
    }
}

interpose! {
    /// `mq_send(3)`.
    fn mq_send(queue: c_int, buffer: *const c_char, length: usize, priority: c_uint) -> c_int,
        linked "__mq_send"
    {
        // SAFETY: the caller's promise.
        unsafe { mq_timedsend(queue, buffer, length, priority, std::ptr::null()) }
    }
}

interpose! {
    /// `mq_timedsend(3)`.
    fn mq_timedsend(
        queue: c_int,
        buffer: *const c_char,
        length: usize,
        priority: c_uint,
        deadline: *const timespec,
    ) -> c_int, linked "__mq_timedsend" {
        let arguments = [queue as usize, buffer as usize, length, priority as usize];
        // SAFETY: the caller's promise.
        let sent =
            unsafe { by_queue(libc::SYS_mq_timedsend, arguments, libc::POLLOUT, deadline) };
        answer(sent) as c_int
    }
}

/// A call on a POSIX queue.
///
/// # Safety
/// As for the system call with the first four of its arguments.
unsafe fn by_queue(
    number: c_long,
    [queue, buffer, length, priority]: [usize; 4],
    events: i16,
    deadline: *const timespec,
) -> Answer {
    // A time that has passed, so that there is no wait.
    let past = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [queue, buffer, length, priority, &raw const past as usize, 0];
    let deadline = match span::given(deadline)? {
        Some(time) => absolute(&time, Clock::Realtime)?,
        None => NEVER,
    };
    let fd = queue as c_int;
    let reason = if events == libc::POLLIN { Reason::Read } else { Reason::Write };
    loop {
        // SAFETY: the caller's promise.
        let tried = unsafe { kernel::call(number, arguments) };
        if tried != Err(libc::ETIMEDOUT) {
            return tried;
        }
        let seat = Seat::new();
        let Some(waiter) = Waiter::new(fd, &seat) else { return Err(libc::EBADF) };
        let holds = || waiter.holds();
        let how = Wait { reason, deadline, holds: &holds, unheld: false };
        // SAFETY: it points to nothing.
        match unsafe { operation::perform(&Op::Poll { fd, events: events as u32 }, &how) } {
            Ended::Done(_) => {}
            Ended::Late => return tried,
            Ended::Interrupted(why) => return Err(interruption(why)),
            Ended::Pointless => return Err(libc::EBADF),
            Ended::Unsupported => carefree_runtime::yield_now(),
        }
    }
}

static SYSTEM_V: Matter = Matter::new();

/// Calls `attempt` until it says something else than `again`.
fn pursue(again: c_int, deadline: u64, mut attempt: impl FnMut() -> Answer) -> Answer {
    SYSTEM_V.pursue(Reason::Ipc, deadline, libc::EAGAIN, || {
        Some(attempt()).filter(|answer| *answer != Err(again))
    })?
}

/// Takes note of a call that may let others go on.
fn done(answer: Answer) -> Answer {
    if answer.is_ok() {
        SYSTEM_V.happened();
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
            SYSTEM_V.happened();
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let arguments = [queue as usize, message as usize, length, flags as usize, 0, 0];
        answer(done(pursue(libc::EAGAIN, NEVER, || {
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
            SYSTEM_V.happened();
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let arguments =
            [queue as usize, message as usize, length, kind as usize, flags as usize, 0];
        answer(done(pursue(libc::ENOMSG, NEVER, || {
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
            SYSTEM_V.happened();
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
    let deadline = span::deadline(timeout)?;
    pursue(libc::EAGAIN, deadline, attempt)
}

interpose! {
    /// `tcdrain(3)`, on a thread that may block.
    fn tcdrain(fd: c_int) -> c_int, linked "__libc_tcdrain" {
        // SAFETY: no memory is involved.
        unsafe { offload(|| original(fd)) }
    }
}
