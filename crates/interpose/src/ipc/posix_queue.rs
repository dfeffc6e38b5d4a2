//! POSIX message queues: a queue is a file, and is waited for as one.

use std::ffi::{c_char, c_int, c_long, c_uint};

use carefree_ground::kernel;
use carefree_reactor::Op;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use carefree_runtime::operation::{self, Ended, Wait};
use carefree_runtime::waiters::Seat;
use libc::timespec;

use crate::call::answer::{Answer, answer, interruption};
use crate::descriptor::Waiter;
use crate::time::deadline::{Clock, absolute};
use crate::time::duration;

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
    let deadline = match duration::given(deadline)? {
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
