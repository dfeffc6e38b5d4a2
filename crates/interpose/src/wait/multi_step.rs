//! Calls that are made in several steps: a part is done, and then the rest is waited for.
//!
//! On a thread that is one system call, which keeps its file even if the number is closed. Here each step
//! names the number again. Before a later step, another fiber or thread may have closed it, and it may refer
//! to another file. So a call notes how often the number has been closed when it begins. After a part it
//! registers as a waiter of the file, so that a close waits for the call to end, and looks whether the
//! count has changed. If it has, the call answers with the part.
//!
//! *No close is missed.* A close first counts itself and then looks for waiters; the call first registers
//! and then looks at the count; each has a fence in between. So one of them sees the other. (A call that
//! begins while the number is being closed may find either file, as on threads.)
//!
//! A step that no close can end must not be made by a waiter: see [`MultiStep::offload`]. And a call that asks
//! the kernel now and then is a waiter only while it asks: see [`Named`].

use std::ffi::c_int;
use std::sync::atomic::{Ordering, fence};

use carefree_runtime::waiters::Seat;

use crate::call::answer::Answer;
use crate::descriptor;
use crate::descriptor::{File, Waiter};
use crate::wait::offload;

/// The file of a call that makes attempts on it now and then, and sleeps in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    fd: c_int,
    /// How often the number had been closed when the call began.
    closes: u32,
}

impl Named {
    /// A call on `fd` begins.
    pub(crate) fn new(fd: c_int) -> Named {
        Named { fd, closes: descriptor::file(fd).map_or(0, File::closes) }
    }

    /// Makes an attempt, which does not wait: a close of the number waits for its end.
    ///
    /// # Errors
    /// `EBADF` where the number has been closed since the call began. It may refer to another file now.
    pub(crate) fn attempt(self, attempt: impl FnOnce() -> Answer) -> Answer {
        let seat = Seat::new();
        let mut step = MultiStep { closes: self.closes, ..MultiStep::new(self.fd, &seat) };
        if step.go_on() { attempt() } else { Err(libc::EBADF) }
    }
}

/// A call in several steps, and its file.
#[derive(Debug)]
pub(crate) struct MultiStep<'s> {
    fd: c_int,
    file: Option<&'static File>,
    /// How often the number had been closed when the call began.
    closes: u32,
    seat: &'s Seat,
    /// Registered once a part is done.
    waiter: Option<Waiter<'s>>,
}

impl<'s> MultiStep<'s> {
    /// A call on `fd` begins; at `seat` it will wait.
    #[inline]
    pub(crate) fn new(fd: c_int, seat: &'s Seat) -> MultiStep<'s> {
        MultiStep::of(descriptor::file(fd), fd, seat)
    }

    /// [`new`](MultiStep::new), of a number whose place in the table is `file`.
    #[inline]
    pub(crate) fn of(file: Option<&'static File>, fd: c_int, seat: &'s Seat) -> MultiStep<'s> {
        let closes = file.map_or(0, File::closes);
        MultiStep { fd, file, closes, seat, waiter: None }
    }

    /// Called after a part: whether the call may go on, which is whether the number still refers to its
    /// file. If so, it does until the call ends or [leaves](MultiStep::leave).
    #[cold]
    pub(crate) fn go_on(&mut self) -> bool {
        if let Some(waiter) = &self.waiter {
            return waiter.holds();
        }
        let Some(waiter) = Waiter::new(self.fd, self.seat) else { return false };
        fence(Ordering::SeqCst);
        if self.file.is_some_and(|file| file.closes() != self.closes) {
            return false;
        }
        self.waiter = Some(waiter);
        true
    }

    /// Allows the number to be closed until the next step.
    pub(crate) fn leave(&mut self) {
        self.waiter = None;
    }

    /// Has a thread of the pool make a step, as [`offload::on_file`] does: a close of the number does not wait
    /// for the step to end.
    pub(crate) fn offload(&mut self, call: impl FnOnce() -> Answer + Send) -> Answer {
        match self.waiter.take() {
            Some(waiter) => offload::on_file_of(waiter, call),
            None => offload::on_file(self.fd, call),
        }
    }
}
