//! `wait`, `waitpid` and their kin.
//!
//! A call is tried with `WNOHANG`. If no child has changed, the fiber parks until one has, by an operation
//! that leaves the change to be reported (`WNOWAIT`), and tries again. So the kernel's own call fills in the
//! status and the resources used, and of several waiters for the same child one gets it.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use carefree_reactor::Kind;
use carefree_reactor::clock::NEVER;
use carefree_runtime::Reason;
use carefree_runtime::operation::{Ended, Wait};
use carefree_runtime::waiters::Seat;
use libc::{id_t, idtype_t, pid_t, rusage, siginfo_t};

use crate::call::answer::{Answer, answer, interruption};
use crate::call::host;
use crate::call::own_file::OwnFile;
use crate::call::sys::{self, Number};
use crate::call::user::User;
use crate::descriptor::{self, Waiter};
use crate::wait::parking;
use crate::wait::polling::Polled;
use crate::wait::user_op::UserOp;

extern "C-unwind" fn raw_wait(status: User<c_int>) -> pid_t {
    wait4::original(-1, status, 0, User::NULL)
}

extern "C-unwind" fn raw_waitpid(pid: pid_t, status: User<c_int>, options: c_int) -> pid_t {
    wait4::original(pid, status, options, User::NULL)
}

extern "C-unwind" fn raw_wait3(status: User<c_int>, options: c_int, usage: User<rusage>) -> pid_t {
    wait4::original(-1, status, options, usage)
}

extern "C-unwind" fn raw_waitid(
    kind: idtype_t,
    id: id_t,
    info: User<siginfo_t>,
    options: c_int,
) -> c_int {
    let arguments = [kind.into(), id.into(), info.into(), options.into()];
    answer(sys::call(Number::WAITID, arguments)) as c_int
}

interpose! {
    /// `wait(2)`.
    safe fn wait(status: User<c_int>) -> pid_t, else raw_wait {
        answer(wait_for_child(-1, status, 0, User::NULL)) as pid_t
    }
}

interpose! {
    /// `waitpid(2)`.
    safe fn waitpid(pid: pid_t, status: User<c_int>, options: c_int) -> pid_t, else raw_waitpid {
        answer(wait_for_child(pid, status, options, User::NULL)) as pid_t
    }
}

interpose! {
    /// `wait3(2)`.
    safe fn wait3(status: User<c_int>, options: c_int, usage: User<rusage>) -> pid_t, else raw_wait3 {
        answer(wait_for_child(-1, status, options, usage)) as pid_t
    }
}

interpose! {
    /// `wait4(2)`.
    safe fn wait4(
        pid: pid_t,
        status: User<c_int>,
        options: c_int,
        usage: User<rusage>,
    ) -> pid_t, number SYS_wait4 {
        answer(wait_for_child(pid, status, options, usage)) as pid_t
    }
}

interpose! {
    /// `waitid(2)`.
    safe fn waitid(
        kind: idtype_t,
        id: id_t,
        info: User<siginfo_t>,
        options: c_int,
    ) -> c_int, else raw_waitid {
        answer(wait_for_child_by_id(kind, id, info, options)) as c_int
    }
}

/// `wait4`.
pub(super) fn wait_for_child(
    pid: pid_t,
    status: User<c_int>,
    options: c_int,
    usage: User<rusage>,
) -> Answer {
    let at_once = options | libc::WNOHANG;
    let arguments = [pid.into(), status.into(), at_once.into(), usage.into()];
    let (kind, id) = match pid {
        -1 => (libc::P_ALL, 0),
        0 => (libc::P_PGID, 0),
        // The kernel says what is wrong with a number that cannot be made positive.
        ..-1 => (libc::P_PGID, pid.unsigned_abs()),
        1.. => (libc::P_PID, pid.unsigned_abs()),
    };
    // `WUNTRACED` is waitid's `WSTOPPED`.
    until_changed(kind, id, options | libc::WEXITED, &|| true, || {
        let tried = sys::call(Number::WAIT4, arguments);
        // (None is left where children are not waited for: `SA_NOCLDWAIT`.)
        if matches!(tried, Ok(1..) | Err(libc::ECHILD)) {
            host::settle(libc::SIGCHLD);
        }
        (tried != Ok(0) || options & libc::WNOHANG != 0).then_some(tried)
    })
}

/// `waitid`.
fn wait_for_child_by_id(kind: idtype_t, id: id_t, info: User<siginfo_t>, options: c_int) -> Answer {
    if kind == libc::P_PIDFD && !descriptor::is_blocking(id as c_int) {
        let plain = [kind.into(), id.into(), info.into(), options.into()];
        return sys::call(Number::WAITID, plain);
    }
    // The file of a child must not become another one's meanwhile.
    let seat = Seat::new();
    let waiter = match kind {
        libc::P_PIDFD => Some(Waiter::new(id as c_int, &seat).ok_or(libc::EBADF)?),
        _ => None,
    };
    let holds = || waiter.as_ref().is_none_or(Waiter::holds);
    until_changed(kind, id, options, &holds, || {
        // SAFETY: zeros are a child's that has no number.
        let mut child: siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
        let at_once = options | libc::WNOHANG;
        let place = User::lend(&mut child);
        let arguments = [kind.into(), id.into(), place.into(), at_once.into()];
        let tried = sys::call(Number::WAITID, arguments);
        // SAFETY: the kernel has filled in this part, or left it zero.
        let unchanged = tried == Ok(0) && unsafe { child.si_pid() } == 0;
        if unchanged && options & libc::WNOHANG == 0 {
            return None;
        }
        if tried.is_ok() && !unchanged || tried == Err(libc::ECHILD) {
            host::settle(libc::SIGCHLD);
        }
        if tried.is_ok() && !info.is_null() {
            if let Err(errno) = info.write(child) {
                return Some(Err(errno));
            }
        }
        Some(tried)
    })
}

/// Parks until `attempt` finds a child that has changed, or what is waited for is closed and no longer `holds`.
fn until_changed(
    kind: idtype_t,
    id: id_t,
    options: c_int,
    holds: &dyn Fn() -> bool,
    mut attempt: impl FnMut() -> Option<Answer>,
) -> Answer {
    let op = UserOp::wait_id(kind, id, options & !libc::WNOHANG | libc::WNOWAIT);
    loop {
        if let Some(answer) = attempt() {
            return answer;
        }
        if !holds() {
            return Err(libc::EBADF);
        }
        match op.perform(&until_seen(holds)) {
            // Another waiter may have taken it: the next attempt says.
            Ended::Done(0) | Ended::Pointless | Ended::Late => {}
            Ended::Done(result) if matches!(-result, libc::ECHILD | libc::EINTR) => {}
            // A child that has changed is told of first: its `SIGCHLD` may be what has ended the wait.
            Ended::Interrupted(why) => return attempt().unwrap_or_else(|| Err(interruption(why))),
            Ended::Done(_) | Ended::Unsupported => {
                return without_the_reactor(kind, id, options, holds, attempt);
            }
        }
    }
}

/// A wait for a child. epoll waits through a descriptor that tells of its end, but not of its stops; and those of a
/// child that is traced are told whatever the options. So there it ends for a look now and then.
fn until_seen(holds: &dyn Fn() -> bool) -> Wait<'_> {
    let is_told = carefree_reactor::choice().is_ok_and(|choice| choice.kind == Kind::Uring);
    let deadline = if is_told { NEVER } else { parking::next_look() };
    Wait { reason: Reason::Child, deadline, holds, unheld: false }
}

/// [`until_changed`] where the reactor cannot wait for children: the end of one child is waited for through
/// its descriptor, all else by polling.
fn without_the_reactor(
    kind: idtype_t,
    id: id_t,
    options: c_int,
    holds: &dyn Fn() -> bool,
    mut attempt: impl FnMut() -> Option<Answer>,
) -> Answer {
    static CHILDREN: Polled = Polled::new();
    let for_its_end = options & (libc::WSTOPPED | libc::WCONTINUED) == 0;
    let own = (kind == libc::P_PID && for_its_end).then(|| open(id)).flatten();
    let fd = match &own {
        Some(file) => Some(file.fd()),
        None if kind == libc::P_PIDFD && for_its_end => Some(id as c_int),
        None => None,
    };
    if let Some(fd) = fd {
        let op = UserOp::poll(fd, libc::POLLIN);
        loop {
            match op.perform(&until_seen(holds)) {
                Ended::Interrupted(why) => {
                    return attempt().unwrap_or_else(|| Err(interruption(why)));
                }
                Ended::Late => {}
                _ => break,
            }
            if let Some(answer) = attempt() {
                return answer;
            }
        }
    }
    // If there was a descriptor to wait on, the first attempt ends this.
    let mut attempt = || attempt().or_else(|| (!holds()).then_some(Err(libc::EBADF)));
    let polled = CHILDREN.poll(Reason::Child, NEVER, libc::EINTR, &mut attempt);
    polled.unwrap_or_else(|errno| attempt().unwrap_or(Err(errno)))
}

/// A descriptor of the child `pid`, which becomes readable when the child has ended.
fn open(pid: id_t) -> Option<OwnFile> {
    let fd = sys::call(Number::PIDFD_OPEN, [pid.into()]);
    fd.ok().map(OwnFile::kept)
}
