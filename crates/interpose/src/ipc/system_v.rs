//! System V messages and semaphores, for which fibers wait in [`turns`](super::turns).

use std::ffi::{c_int, c_long, c_void};
use std::ptr::NonNull;
use std::slice;

use carefree_ground::memory;
use carefree_reactor::clock::NEVER;
use libc::{sembuf, timespec};

use super::turns::{Turns, Wish};
use crate::call::answer::{Answer, answer};
use crate::call::fiber;
use crate::call::sys::{self, Number, Word};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::time::duration;

static QUEUES: Turns = Turns::new();
static SETS: Turns = Turns::new();

/// Makes a call that does not wait, and where it answers `again`, waits for a turn at which it answers something else.
fn take_turns(turns: &Turns, object: c_int, call: &Call<'_>) -> Answer {
    let attempt =
        || Some(sys::call(call.number, call.arguments)).filter(|tried| *tried != Err(call.again));
    let tried = attempt().unwrap_or_else(|| {
        let waited = turns.wait(call.steady, call.deadline, (object, call.wish), &attempt);
        waited.map_err(removed)
    });
    if tried.is_ok() {
        // It may let others go on.
        turns.serve(object);
    }
    tried
}

/// What a call that waited is told of a set or queue that is gone: it was removed meanwhile.
fn removed(errno: c_int) -> c_int {
    if errno == libc::EINVAL { libc::EIDRM } else { errno }
}

/// A call that does not wait, for one that may.
struct Call<'u> {
    number: Number,
    arguments: [Word<'u>; 5],
    /// What it answers where the other would wait.
    again: c_int,
    wish: Wish,
    /// Whether it is [steady](crate::call::host::can_be_cut).
    steady: bool,
    deadline: u64,
}

interpose! { anywhere
    /// `msgsnd(2)`.
    safe fn msgsnd(queue: c_int, message: User<c_void>, length: usize, flags: c_int) -> c_int,
        number SYS_msgsnd
    {
        if !fiber::on_fiber() || flags & libc::IPC_NOWAIT != 0 {
            let result = original(queue, message, length, flags);
            QUEUES.serve(queue);
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        let sent = take_turns(&QUEUES, queue, &Call {
            number: Number::MSGSND,
            arguments: [queue.into(), message.into(), length.into(), flags.into(), 0usize.into()],
            again: libc::EAGAIN,
            wish: Wish::Send(length),
            steady: false,
            deadline: NEVER,
        });
        answer(sent) as c_int
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
            QUEUES.serve(queue);
            return result;
        }
        let flags = flags | libc::IPC_NOWAIT;
        answer(take_turns(&QUEUES, queue, &Call {
            number: Number::MSGRCV,
            arguments: [queue.into(), message.into(), length.into(), kind.into(), flags.into()],
            again: libc::ENOMSG,
            wish: Wish::Receive(kind, flags & libc::MSG_EXCEPT),
            steady: false,
            deadline: NEVER,
        }))
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
            SETS.serve(set);
            return result;
        }
        answer(operate(set, operations, count, timeout)) as c_int
    }
}

/// `semtimedop` on a fiber.
fn operate(set: c_int, operations: User<sembuf>, count: usize, timeout: User<timespec>) -> Answer {
    let as_given = || {
        let arguments = [set.into(), operations.into(), count.into(), timeout.into()];
        sys::call(Number::SEMTIMEDOP, arguments).inspect(|_| SETS.serve(set))
    };
    // The kernel reports what is wrong, and does nothing.
    let Ok(deadline) = duration::deadline(timeout) else { return as_given() };
    let Some(mut own) = Operations::copy(operations, count) else { return as_given() };
    let own = own.as_mut_slice();
    let is_waiting =
        |operation: &&mut sembuf| c_int::from(operation.sem_flg) & libc::IPC_NOWAIT == 0;
    let waiting = own.iter_mut().filter(is_waiting).count();
    if waiting == 0 {
        return as_given();
    }
    if waiting < count {
        return operate_mixed(set, operations, count, timeout);
    }
    // (A call with a time of zero would sleep: the kernel sets a timer for it.)
    own.iter_mut().for_each(|operation| operation.sem_flg |= libc::IPC_NOWAIT as i16);
    let wish = match &own[..] {
        [one] => Wish::Change(one.sem_num, one.sem_op),
        _ => Wish::Own,
    };
    let own = User::lend_slice(own);
    take_turns(
        &SETS,
        set,
        &Call {
            number: Number::SEMTIMEDOP,
            arguments: [
                set.into(),
                own.into(),
                count.into(),
                User::<c_void>::NULL.into(),
                0usize.into(),
            ],
            again: libc::EAGAIN,
            wish,
            steady: true,
            deadline,
        },
    )
}

/// `semtimedop` with operations of which some may wait. The call waits or fails by the flags of the operation that cannot
/// be done, and only the kernel knows which it is.
fn operate_mixed(
    set: c_int,
    operations: User<sembuf>,
    count: usize,
    timeout: User<timespec>,
) -> Answer {
    let mut at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    let time = User::lend(&mut at_once);
    let mut done =
        sys::call(Number::SEMTIMEDOP, [set.into(), operations.into(), count.into(), time.into()]);
    if done == Err(libc::EAGAIN) {
        let arguments = [set.into(), operations.into(), count.into(), timeout.into()];
        done = offload(|| sys::call(Number::SEMTIMEDOP, arguments)).map_err(removed);
    }
    if done.is_ok() {
        SETS.serve(set);
    }
    done
}

/// A copy of a caller's operations.
struct Operations {
    few: [sembuf; Operations::FEW],
    count: usize,
    /// Where there are more: memory of their own, for the caller's stack and allocator are not to be relied on.
    many: Option<NonNull<sembuf>>,
}

impl Operations {
    const FEW: usize = 4;

    /// None if they cannot be read, or are more than the kernel takes, or fewer than one.
    fn copy(operations: User<sembuf>, count: usize) -> Option<Operations> {
        /// More than the kernel takes by default (SEMOPM is 500), and fewer than would be a burden.
        const MOST: usize = 32_000;
        if !(1..=MOST).contains(&count) {
            return None;
        }
        operations.check(count).ok()?;
        const NONE: sembuf = sembuf { sem_num: 0, sem_op: 0, sem_flg: 0 };
        let mut copy = Operations { few: [NONE; Self::FEW], count, many: None };
        if count > Self::FEW {
            copy.many = Some(memory::map(count * size_of::<sembuf>()).ok()?.cast());
        }
        for (place, own) in copy.as_mut_slice().iter_mut().enumerate() {
            // SAFETY: `check` has found all of them readable.
            *own = unsafe { operations.after(place).read_seen() };
        }
        Some(copy)
    }

    fn as_mut_slice(&mut self) -> &mut [sembuf] {
        match self.many {
            None => &mut self.few[..self.count],
            // SAFETY: mapped for as many, all zero, and this copy's own.
            Some(many) => unsafe { slice::from_raw_parts_mut(many.as_ptr(), self.count) },
        }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        if let Some(many) = self.many {
            // SAFETY: from `map`, and nothing refers to it any more.
            unsafe { memory::unmap(many.cast(), self.count * size_of::<sembuf>()) };
        }
    }
}

/// In the child of a fork nothing waits.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn renew() {
            // SAFETY: the child has one thread, and that one was forking.
            unsafe {
                QUEUES.renew();
                SETS.renew();
            }
        }
        // SAFETY: the handler touches nothing but the lists.
        unsafe { libc::pthread_atfork(None, None, Some(renew)) };
    }
    mind_forks
};
