//! `epoll_wait`, `epoll_pwait`, `epoll_pwait2`.

use std::ffi::c_int;
use std::mem;

use carefree_runtime::clock::{self, NEVER};
use libc::{epoll_event, sigset_t, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::sys::{self, Number};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::descriptor::{self, File};
use crate::poll::mask::{changes_signals, wait_hosted};
use crate::poll::several::{
    Wanted, Woken, collect, left, nothing_yet, or_happened, park, wait_out,
};
use crate::time::duration::{deadline, deadline_of_millis};
use crate::wait::readiness::{self, Form, SIGNALS};
use crate::wait::user_op::UserOp;

extern "C-unwind" fn raw_epoll_wait(
    epoll: c_int,
    events: User<epoll_event>,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let nanos = u64::try_from(timeout).ok().map(|millis| millis * 1_000_000);
    answer(readiness::epoll(Form::Plain, epoll, events, most, nanos)) as c_int
}

extern "C-unwind" fn raw_epoll_pwait(
    epoll: c_int,
    events: User<epoll_event>,
    most: c_int,
    timeout: c_int,
    mask: User<sigset_t>,
) -> c_int {
    let arguments =
        [epoll.into(), events.into(), most.into(), timeout.into(), mask.into(), SIGNALS.into()];
    answer(sys::call(Number::EPOLL_PWAIT, arguments)) as c_int
}

extern "C-unwind" fn raw_epoll_pwait2(
    epoll: c_int,
    events: User<epoll_event>,
    most: c_int,
    timeout: User<timespec>,
    mask: User<sigset_t>,
) -> c_int {
    let arguments =
        [epoll.into(), events.into(), most.into(), timeout.into(), mask.into(), SIGNALS.into()];
    answer(sys::call(Number::EPOLL_PWAIT2, arguments)) as c_int
}

interpose! {
    /// `epoll_wait(2)`.
    safe fn epoll_wait(
        epoll: c_int,
        events: User<epoll_event>,
        most: c_int,
        timeout: c_int,
    ) -> c_int, else raw_epoll_wait {
        let deadline = deadline_of_millis(timeout);
        answer(epoll_until(Form::Plain, epoll, events, most, deadline)) as c_int
    }
}

interpose! {
    /// `epoll_pwait(2)`.
    safe fn epoll_pwait(
        epoll: c_int,
        events: User<epoll_event>,
        most: c_int,
        timeout: c_int,
        mask: User<sigset_t>,
    ) -> c_int, else raw_epoll_pwait {
        let wait = |deadline| epoll_until(Form::Masked, epoll, events, most, deadline);
        if let Some(waited) = wait_hosted(mask, || Ok(deadline_of_millis(timeout)), wait) {
            return answer(waited) as c_int;
        }
        if changes_signals(mask) {
            return offload(|| original(epoll, events, most, timeout, mask));
        }
        answer(wait(deadline_of_millis(timeout))) as c_int
    }
}

interpose! {
    /// `epoll_pwait2(2)`.
    safe fn epoll_pwait2(
        epoll: c_int,
        events: User<epoll_event>,
        most: c_int,
        timeout: User<timespec>,
        mask: User<sigset_t>,
    ) -> c_int, else raw_epoll_pwait2 {
        let wait = |deadline| epoll_until(Form::Precise, epoll, events, most, deadline);
        if let Some(waited) = wait_hosted(mask, || deadline(timeout), wait) {
            return answer(waited) as c_int;
        }
        if changes_signals(mask) {
            return offload(|| original(epoll, events, most, timeout, mask));
        }
        let waited = deadline(timeout).and_then(wait);
        answer(waited) as c_int
    }
}

/// `epoll_wait` until `deadline`. Where tries keep finding nothing, they are left out, as those of
/// [reads](crate::io::stream) are.
fn epoll_until(
    form: Form,
    epoll: c_int,
    events: User<epoll_event>,
    most: c_int,
    deadline: u64,
) -> Answer {
    let read = u32::from(libc::POLLIN as u16);
    let mut wanted = [Wanted::new(epoll, read, 0)];
    let op = UserOp::epoll_wait(epoll, events, most as u32);
    let file = descriptor::file(epoll);
    let is_over = || deadline != NEVER && deadline <= clock::now();
    let mut tries = most <= 0 || file.is_none_or(File::is_worth_a_try) || is_over();
    loop {
        if tries {
            let tried = readiness::epoll(form, epoll, events, most, Some(0));
            if tried == Err(libc::EINTR) {
                continue;
            }
            if let Some(file) = file {
                file.tried(tried != Ok(0));
            }
            if tried != Ok(0) || nothing_yet(deadline) {
                return tried;
            }
        }
        let was_tried = mem::replace(&mut tries, true);
        let woken = match collect(&op, epoll, deadline) {
            Ok(found) => return Ok(found),
            // Only a try says that the file is no instance of epoll.
            Err(Woken::Unsupported) if !was_tried => continue,
            Err(Woken::Unsupported) => park(&mut wanted, deadline),
            Err(woken) => woken,
        };
        match woken {
            // A call with a time limit goes on until then where the instance is closed. (On a thread it still gets
            // events, for the call holds the instance.)
            Woken::Perhaps if wanted[0].gone => return wait_out(deadline),
            Woken::Perhaps => {}
            Woken::Late => return Ok(0),
            Woken::Failed(errno) => {
                let look = || readiness::epoll(form, epoll, events, most, Some(0));
                return or_happened(errno, look);
            }
            Woken::Closed(_) if deadline != NEVER => return wait_out(deadline),
            Woken::Closed(_) => return Err(libc::EBADF),
            Woken::Unsupported => {
                let left = left(deadline);
                return offload(|| readiness::epoll(form, epoll, events, most, left));
            }
        }
    }
}
