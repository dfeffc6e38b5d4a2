//! Waiting for a thread's end.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use carefree_runtime::{Outcome, hosted};
use libc::pthread_t;

use crate::signal;
use crate::thread::cancel;
use crate::thread::record::{self, AWAITED, DETACHED, ENDED};

/// `pthread_join` until a deadline; `None` if the thread is none of ours.
///
/// # Safety
/// As for `pthread_join`.
pub(crate) unsafe fn join(
    thread: pthread_t,
    result: *mut *mut c_void,
    deadline: &mut dyn FnMut() -> Result<u64, c_int>,
) -> Option<c_int> {
    // SAFETY: as this function demands.
    let Some((thread, record)) = (unsafe { record::find(thread) }) else {
        // SAFETY: as this function demands.
        return unsafe { hosted::is_gone(thread as usize) }.then_some(libc::ESRCH);
    };
    let asked = (!thread.has_ended()).then(&mut *deadline);
    // (Whatever else is wrong: so libc has it.)
    if asked == Some(Ok(0)) {
        return Some(libc::EBUSY);
    }
    if thread.is_me() {
        return Some(libc::EDEADLK);
    }
    if record.state.fetch_or(AWAITED, Ordering::AcqRel) & (DETACHED | AWAITED) != 0 {
        return Some(libc::EINVAL);
    }
    if let Some(deadline) = asked {
        let ended = deadline.and_then(|deadline| {
            loop {
                match thread.wait(deadline) {
                    Outcome::TimedOut => break Err(libc::ETIMEDOUT),
                    Outcome::Cancelled => {
                        signal::handle();
                        // The thread that is waited for stays joinable.
                        if cancel::is_due() {
                            break Err(libc::EINTR);
                        }
                    }
                    _ => break Ok(()),
                }
            }
        });
        if let Err(errno) = ended {
            record.state.fetch_and(!AWAITED, Ordering::AcqRel);
            cancel::test();
            return Some(errno);
        }
    }
    if !result.is_null() {
        // SAFETY: as this function demands.
        unsafe { result.write(record.value.load(Ordering::Acquire)) };
    }
    // SAFETY: AWAITED was set by this call, so no other one gives the thread up.
    unsafe { thread.give_up() };
    // What the thread has sent before its end is handled before the call returns.
    signal::handle();
    Some(0)
}

/// `pthread_detach`; `None` if the thread is none of ours.
///
/// # Safety
/// As for `pthread_detach`.
pub(crate) unsafe fn detach(thread: pthread_t) -> Option<c_int> {
    // SAFETY: as this function demands.
    let Some((thread, record)) = (unsafe { record::find(thread) }) else {
        // SAFETY: as this function demands.
        return unsafe { hosted::is_gone(thread as usize) }.then_some(libc::ESRCH);
    };
    // One that is joined just now stays so, as libc has it: the join gives it up.
    let free = |state: u32| (state & (DETACHED | AWAITED) == 0).then_some(state | DETACHED);
    let before = match record.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
        Ok(before) => before,
        Err(state) => return Some(if state & DETACHED != 0 { libc::EINVAL } else { 0 }),
    };
    if before & ENDED != 0 && !thread.is_main() {
        // SAFETY: it has ended before it was detached, so its end does not give it up.
        unsafe { thread.give_up() };
    }
    Some(0)
}

stand_in! {
    /// C11's `thrd_detach(3)`.
    fn thrd_detach(thread: pthread_t) -> c_int {
        const ERROR: c_int = 2;
        // SAFETY: the caller's argument.
        if unsafe { libc::pthread_detach(thread) } == 0 { 0 } else { ERROR }
    }
}
