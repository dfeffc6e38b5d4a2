//! POSIX message queues. A queue is a file, and a fiber waits for it as for a file.

use std::ffi::{c_char, c_int, c_uint};

use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use carefree_runtime::operation::{Ended, Wait};
use carefree_runtime::waiters::Seat;
use libc::timespec;

use crate::call::answer::{Answer, answer, interruption};
use crate::call::sys::{self, Number, Word};
use crate::call::user::User;
use crate::descriptor::Waiter;
use crate::time::deadline::{Clock, absolute};
use crate::time::duration;
use crate::wait::file_lock::{self, FileId, FileLock, LockWait, Purpose};
use crate::wait::user_op::UserOp;

/// How often a fiber whose turn it is not looks whether its queue was closed, in nanoseconds.
const LOOKS: u64 = 20_000_000;

interpose! {
    /// `mq_receive(3)`.
    safe fn mq_receive(queue: c_int, buffer: User<c_char>, length: usize, priority: User<c_uint>)
        -> isize, linked "__mq_receive" {
        mq_timedreceive::stand_in(queue, buffer, length, priority, User::NULL)
    }
}

interpose! {
    /// `mq_timedreceive(3)`.
    safe fn mq_timedreceive(
        queue: c_int,
        buffer: User<c_char>,
        length: usize,
        priority: User<c_uint>,
        deadline: User<timespec>,
    ) -> isize, linked "__mq_timedreceive" {
        let arguments = [buffer.into(), length.into(), priority.into()];
        answer(by_queue(Number::MQ_TIMEDRECEIVE, queue, arguments, libc::POLLIN, deadline))
    }
}

interpose! {
    /// `mq_send(3)`.
    safe fn mq_send(queue: c_int, buffer: User<c_char>, length: usize, priority: c_uint) -> c_int,
        linked "__mq_send"
    {
        mq_timedsend::stand_in(queue, buffer, length, priority, User::NULL)
    }
}

interpose! {
    /// `mq_timedsend(3)`.
    safe fn mq_timedsend(
        queue: c_int,
        buffer: User<c_char>,
        length: usize,
        priority: c_uint,
        deadline: User<timespec>,
    ) -> c_int, linked "__mq_timedsend" {
        let arguments = [buffer.into(), length.into(), priority.into()];
        let sent =
            by_queue(Number::MQ_TIMEDSEND, queue, arguments, libc::POLLOUT, deadline);
        answer(sent) as c_int
    }
}

/// A call on a POSIX queue.
fn by_queue(
    number: Number,
    fd: c_int,
    [buffer, length, priority]: [Word; 3],
    events: i16,
    deadline: User<timespec>,
) -> Answer {
    // A time in the past, so that the call does not wait.
    let mut past = timespec { tv_sec: 0, tv_nsec: 0 };
    let arguments = [fd.into(), buffer, length, priority, User::lend(&mut past).into()];
    let deadline = match duration::given(deadline)? {
        Some(time) if time.tv_sec < 0 => return Err(libc::EINVAL),
        Some(time) => absolute(&time, Clock::Realtime)?,
        None => NEVER,
    };
    let reason = if events == libc::POLLIN { Reason::Read } else { Reason::Write };
    let attempt = || sys::call(number, arguments);
    let tried = attempt();
    if tried != Err(libc::ETIMEDOUT) {
        return tried;
    }
    let seat = Seat::new();
    let Some(waiter) = Waiter::new(fd, &seat) else { return Err(libc::EBADF) };
    let holds = || waiter.holds();
    // The longest waiter is served first. (POSIX asks for it, and the kernel does it for threads.)
    let turn = FileLock { file: FileId::of(fd)?, purpose: Purpose::Turn { events } };
    let steady = false;
    let wait = LockWait { reason, deadline, late: libc::ETIMEDOUT, looks: LOOKS, steady };
    let closed = || (!holds()).then_some(Err(libc::EBADF));
    file_lock::with_lock_unless(turn, &wait, closed, || {
        loop {
            let tried = attempt();
            if tried != Err(libc::ETIMEDOUT) {
                return tried;
            }
            let how = Wait { reason, deadline, holds: &holds, unheld: false };
            match UserOp::poll(fd, events).perform(&how) {
                Ended::Done(_) => {}
                Ended::Late => return tried,
                Ended::Interrupted(why) => return Err(interruption(why)),
                Ended::Pointless => return Err(libc::EBADF),
                Ended::Unsupported => carefree_runtime::yield_now(),
            }
        }
    })?
}
