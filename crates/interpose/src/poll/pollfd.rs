//! `poll`, `ppoll`.

use std::ffi::{c_int, c_uint};

use libc::{nfds_t, pollfd, sigset_t, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::uninterrupted::offload;
use crate::call::user::User;
use crate::poll::mask::{changes_signals, wait_hosted};
use crate::poll::several::{Wanted, Woken, left, nothing_yet, or_happened, park};
use crate::time::duration::{deadline, deadline_of_millis};
use crate::wait::readiness::{self, Form};

extern "C-unwind" fn raw_poll(files: User<pollfd>, count: nfds_t, timeout: c_int) -> c_int {
    let nanos = u64::try_from(timeout).ok().map(|millis| millis * 1_000_000);
    answer(readiness::poll(Form::Plain, files, count as usize, nanos)) as c_int
}

extern "C-unwind" fn raw_ppoll(
    files: User<pollfd>,
    count: nfds_t,
    timeout: User<timespec>,
    mask: User<sigset_t>,
) -> c_int {
    // The kernel writes the time that is left to it; libc's function does not.
    // SAFETY: libc's function reads it unasked.
    let copy = (!timeout.is_null()).then(|| unsafe { timeout.read_seen() });
    answer(readiness::ppoll(files, count as usize, copy, mask)) as c_int
}

interpose! {
    /// `poll(2)`.
    safe fn poll(files: User<pollfd>, count: nfds_t, timeout: c_int) -> c_int, else raw_poll {
        let polled = poll_until(Form::Plain, files, count, deadline_of_millis(timeout));
        answer(polled) as c_int
    }
}

interpose! {
    /// `ppoll(2)`.
    safe fn ppoll(
        files: User<pollfd>,
        count: nfds_t,
        timeout: User<timespec>,
        mask: User<sigset_t>,
    ) -> c_int, else raw_ppoll {
        let poll = |deadline| poll_until(Form::Masked, files, count, deadline);
        if let Some(polled) = wait_hosted(mask, || deadline(timeout), poll) {
            return answer(polled) as c_int;
        }
        if changes_signals(mask) {
            return offload(|| original(files, count, timeout, mask));
        }
        let polled = deadline(timeout).and_then(poll);
        answer(polled) as c_int
    }
}

/// What `poll` reports of each file, asked or not.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// `poll` until `deadline`.
fn poll_until(form: Form, files: User<pollfd>, count: nfds_t, deadline: u64) -> Answer {
    // The kernel takes an `unsigned int`.
    let count = count as c_uint as usize;
    let mut wanted: Option<Vec<Wanted>> = None;
    loop {
        let tried = readiness::poll(form, files, count, Some(0));
        if tried == Err(libc::EINTR) {
            // A signal interrupted the call though it did not wait. Signals end no fiber's calls.
            continue;
        }
        if tried == Err(libc::EFAULT) && !nothing_yet(deadline) {
            // That the array can be read but not written is reported when the wait is over.
            files.check(count)?;
            return poll_elsewhere(form, files, count, deadline);
        }
        if tried != Ok(0) || nothing_yet(deadline) {
            return tried;
        }
        let wanted = wanted.get_or_insert_with(|| {
            let of = |place| {
                // SAFETY: the kernel has found them there, and does not ask for alignment.
                let file = unsafe { files.after(place).read_seen() };
                let events = u32::from((file.events | ALWAYS) as u16);
                Wanted::new(file.fd, events, place)
            };
            (0..count).map(of).filter(|wanted| wanted.fd >= 0).collect()
        });
        match park(wanted, deadline) {
            Woken::Perhaps => {}
            Woken::Late => return Ok(0),
            Woken::Failed(errno) => {
                let look = || readiness::poll(form, files, count, Some(0));
                return or_happened(errno, look);
            }
            Woken::Closed(places) => {
                for &place in &places {
                    // SAFETY: the kernel has written there.
                    unsafe {
                        let mut file = files.after(place).read_seen();
                        file.revents = libc::POLLNVAL;
                        files.after(place).write_seen(file);
                    }
                }
                return Ok(places.len());
            }
            Woken::Unsupported => {
                return poll_elsewhere(form, files, count, deadline);
            }
        }
    }
}

/// `poll` until `deadline` by a thread that may block.
fn poll_elsewhere(form: Form, files: User<pollfd>, count: usize, deadline: u64) -> Answer {
    let left = left(deadline);
    offload(|| readiness::poll(form, files, count, left))
}
