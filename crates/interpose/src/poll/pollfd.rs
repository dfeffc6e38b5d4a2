//! `poll`, `ppoll`.

use std::ffi::c_int;

use libc::{nfds_t, pollfd, sigset_t, timespec};

use crate::call::answer::{Answer, answer};
use crate::call::memory;
use crate::call::uninterrupted::offload;
use crate::poll::mask::changes_signals;
use crate::poll::several::{Wanted, Woken, left, nothing_yet, park};
use crate::time::duration::{deadline, deadline_of_millis};
use crate::wait::readiness::{self, Form};

unsafe extern "C-unwind" fn raw_poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let nanos = u64::try_from(timeout).ok().map(|millis| millis * 1_000_000);
    // SAFETY: the caller's promise.
    answer(unsafe { readiness::poll(Form::Plain, files, count as usize, nanos) }) as c_int
}

unsafe extern "C-unwind" fn raw_ppoll(
    files: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // The kernel says in it how much time is left, libc does not.
    // SAFETY: the caller's promise.
    let copy = unsafe { timeout.as_ref() }.copied();
    // SAFETY: as above.
    answer(unsafe { readiness::ppoll(files, count as usize, copy, mask) }) as c_int
}

interpose! {
    /// `poll(2)`.
    fn poll(files: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, else raw_poll {
        // SAFETY: the caller's promise.
        let polled = unsafe { poll_until(Form::Plain, files, count, deadline_of_millis(timeout)) };
        answer(polled) as c_int
    }
}

interpose! {
    /// `ppoll(2)`.
    fn ppoll(
        files: *mut pollfd,
        count: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int, else raw_ppoll {
        if changes_signals(mask) {
            // SAFETY: the caller's promise, and the caller waits.
            return unsafe { offload(|| original(files, count, timeout, mask)) };
        }
        // SAFETY: the caller's promise.
        let poll = |deadline| unsafe { poll_until(Form::Masked, files, count, deadline) };
        let polled = deadline(timeout).and_then(poll);
        answer(polled) as c_int
    }
}

/// `poll` until `deadline`.
///
/// # Safety
/// As for libc's.
unsafe fn poll_until(form: Form, files: *mut pollfd, count: nfds_t, deadline: u64) -> Answer {
    let mut wanted: Option<Vec<Wanted>> = None;
    loop {
        // SAFETY: the caller's promise.
        let tried = unsafe { readiness::poll(form, files, count as usize, Some(0)) };
        if tried == Err(libc::EINTR) {
            // A signal came, though the call did not wait. Signals end no fiber's calls.
            continue;
        }
        if tried == Err(libc::EFAULT) && !nothing_yet(deadline) {
            // What can be read and not be written is told of when the wait is over.
            memory::check(files, count as usize)?;
            // SAFETY: the caller's promise.
            return unsafe { poll_elsewhere(form, files, count, deadline) };
        }
        if tried != Ok(0) || nothing_yet(deadline) {
            return tried;
        }
        let wanted = wanted.get_or_insert_with(|| {
            let of = |place| {
                // SAFETY: the kernel has found them there, and does not ask for alignment.
                let file = unsafe { files.add(place).read_unaligned() };
                let events = u32::from(file.events as u16);
                Wanted { fd: file.fd, events, place, hopeless: false }
            };
            (0..count as usize).map(of).filter(|wanted| wanted.fd >= 0).collect()
        });
        match park(wanted, deadline) {
            Woken::Perhaps => {}
            Woken::Late => return Ok(0),
            Woken::Failed(errno) => return Err(errno),
            Woken::Closed(places) => {
                for &place in &places {
                    // SAFETY: as above, and they are the caller's to be written.
                    unsafe {
                        (&raw mut (*files.add(place)).revents).write_unaligned(libc::POLLNVAL);
                    }
                }
                return Ok(places.len());
            }
            Woken::Unsupported => {
                // SAFETY: the caller's promise.
                return unsafe { poll_elsewhere(form, files, count, deadline) };
            }
        }
    }
}

/// `poll` until `deadline` by a thread that may block.
///
/// # Safety
/// As for libc's.
unsafe fn poll_elsewhere(form: Form, files: *mut pollfd, count: nfds_t, deadline: u64) -> Answer {
    let left = left(deadline);
    // SAFETY: the caller's promise, and the caller waits.
    unsafe { offload(|| readiness::poll(form, files, count as usize, left)) }
}
