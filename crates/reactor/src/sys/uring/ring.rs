//! One ring: the submissions queued for the kernel, and its completions.
//!
//! # Nothing is lost
//!
//! *Entries.* A full submission queue is submitted at once. If the kernel does not take it then
//! (because it is out of memory, or wants its own backlog of completions fetched first), entries
//! wait in `backlog`, in order, and follow at the next call.
//!
//! *Completions.* When the completion queue is full the kernel keeps the rest (`NODROP`) and sets
//! a flag in the ring; `reap` then makes it move them to the queue, until none is left.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use carefree_ground::fatal;
use io_uring::{cqueue, opcode, squeue::Entry, types};

use super::cancels::Cancels;
use super::entry;
use super::setup::{self, Setup};
use super::unheld::Unheld;
use crate::clock;
use crate::faults;
use crate::idle::Idle;
use crate::op::{Completion, Completions, Op, Unsupported};
use crate::sys::make_ring::OwnRing;
use crate::sys::raw::syscall;

/// Tokens of the driver's own entries, above [`Driver::TOKEN_MAX`](crate::Driver).
const BELL: u64 = u64::MAX;
const CANCEL_ALL: u64 = u64::MAX - 1;
const UNHELD: u64 = u64::MAX - 2;
/// Added to the token of the operation that is to be cancelled.
const CANCEL: u64 = 1 << 63;
const _: () = assert!(crate::Driver::TOKEN_MAX < CANCEL);

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;

/// `struct io_uring_getevents_arg`: how `io_uring_enter` takes a time limit.
#[repr(C)]
struct WaitArgument {
    sigmask: u64,
    sigmask_size: u32,
    pad: u32,
    limit: u64,
}

pub(crate) struct Ring {
    ring: ManuallyDrop<OwnRing>,
    /// Entries that the kernel did not take yet.
    backlog: VecDeque<Entry>,
    pending: usize,
    cancels: Cancels,
    /// The operations that the kernel supports: bit n for `IORING_OP_` number n.
    known: u128,
    /// Whether the kernel watches the bell: it posts a completion whenever the bell rings.
    watching: bool,
    /// The operations whose files the ring does not hold.
    unheld: Unheld,
    /// The ring's set-up, in a few words.
    description: &'static str,
    /// The result of cancelling everything, when the driver is dropped.
    cancelled_all: Option<i32>,
}

impl Ring {
    /// A ring for the calling thread.
    pub(crate) fn new() -> io::Result<Ring> {
        let Setup { ring, known, description } = setup::make()?;
        Ok(Ring {
            known,
            description,
            ring: ManuallyDrop::new(ring),
            backlog: VecDeque::new(),
            pending: 0,
            cancels: Cancels::default(),
            watching: false,
            unheld: Unheld::default(),
            cancelled_all: None,
        })
    }

    /// Whether the kernel has the operation with this number.
    pub(super) fn knows(&self, code: u8) -> bool {
        self.known & 1 << code != 0
    }

    /// The ring's set-up, in a few words.
    pub(super) fn describe(&self) -> &'static str {
        self.description
    }

    /// Enters the kernel without a request, to check whether that is permitted.
    pub(super) fn try_out(&mut self) -> io::Result<()> {
        self.try_enter(0, 0, ENTER_GETEVENTS, None).map(drop).map_err(io::Error::from_raw_os_error)
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending + self.unheld.pending()
    }

    /// # Safety
    /// As for [`Driver::submit`](crate::Driver::submit).
    pub(crate) unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        if !self.knows(entry::code(op)) {
            return Err(Unsupported);
        }
        self.cancels.forget(token);
        self.push(&entry::of(op, token));
        self.pending += 1;
        Ok(())
    }

    /// # Safety
    /// As for [`Driver::submit_unheld`](crate::Driver::submit_unheld).
    pub(crate) unsafe fn submit_unheld(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        self.cancels.forget(token);
        // SAFETY: the operation's memory stays valid until its completion is handed out.
        unsafe { self.unheld.submit(token, op) }?;
        self.watch_unheld();
        Ok(())
    }

    /// Makes the ring watch the epoll instance of unheld operations, unless it does already.
    #[inline]
    fn watch_unheld(&mut self) {
        if let Some(fd) = self.unheld.begin_to_watch() {
            let watch = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true);
            self.push(&watch.build().user_data(UNHELD));
        }
    }

    pub(crate) fn cancel(&mut self, token: u64) {
        if self.unheld.cancel(token) {
            return;
        }
        self.cancels.cancelled(token);
        self.push(&cancel(token));
    }

    pub(crate) fn poll(&mut self, out: &mut Completions) {
        self.watch_unheld();
        self.hand_over();
        self.reap(out);
    }

    pub(crate) fn peek(&mut self, out: &mut Completions) {
        self.reap(out);
    }

    pub(crate) fn wait(
        &mut self,
        idle: &Idle,
        deadline: Option<u64>,
        out: &mut Completions,
    ) -> bool {
        if self.pending() == 0 {
            // Only a wake-up or the deadline can end the wait, and waking from a futex is cheaper.
            // A cancel may be left in the queue, but its operation has completed.
            self.cancels.clear();
            return idle.wait(deadline);
        }
        let before = out.len();
        self.reap(out);
        if out.len() > before {
            self.poll(out);
            return false;
        }
        if !self.watching {
            let bell = types::Fd(idle.bell().fd());
            let watch = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true);
            self.push(&watch.build().user_data(BELL));
            self.watching = true;
        }
        self.watch_unheld();
        self.cancel_again();
        if !self.backlog.is_empty() {
            self.hand_over();
        }
        let woken = idle.listen(deadline.is_some(), || self.sleep(deadline));
        self.reap(out);
        woken
    }

    /// Discards a ring that belongs to the parent process.
    pub(crate) fn abandon(mut self) {
        self.unheld.abandon();
        // Its descriptor and its mappings are this process's own copies: while the parent has them, closing
        // them cancels nothing. The backlog is leaked, for its owner may have been changing it.
        let mut abandoned = ManuallyDrop::new(self);
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::drop(&mut abandoned.ring) };
    }

    /// Queues an entry; if the queue is full, submits it first.
    fn push(&mut self, entry: &Entry) {
        if self.backlog.is_empty() && self.queue(entry) {
            return;
        }
        self.backlog.push_back(entry.clone());
        self.hand_over();
    }

    fn queue(&mut self, entry: &Entry) -> bool {
        // SAFETY: entries are made from operations whose memory stays valid until they complete, as
        // `submit` requires, or refer to no memory.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Submits what is queued, and fetches what the kernel holds back. Makes no system call if
    /// there is neither.
    pub(crate) fn hand_over(&mut self) {
        self.cancel_again();
        loop {
            while let Some(entry) = self.backlog.pop_front() {
                if !self.queue(&entry) {
                    self.backlog.push_front(entry);
                    break;
                }
            }
            let (queued, held_back) = {
                let queue = self.ring.submission();
                (queue.len(), queue.taskrun() || queue.cq_overflow())
            };
            if queued == 0 && !held_back {
                return;
            }
            let flags = if held_back { ENTER_GETEVENTS } else { 0 };
            let taken = self.enter(queued, 0, flags, None);
            if !matches!(taken, Ok(taken) if taken > 0) || self.backlog.is_empty() {
                // Entries that were not taken wait for the next call.
                return;
            }
        }
    }

    /// Queues further cancels of operations that have not completed.
    #[inline]
    fn cancel_again(&mut self) {
        let Ring { cancels, backlog, .. } = self;
        cancels.for_each_due(|token| backlog.push_back(cancel(token)));
    }

    /// Submits what is queued and sleeps until there is a completion, until `deadline`, or until an
    /// operation is to be cancelled again. While entries wait in the backlog it only sleeps for a
    /// millisecond: the kernel has refused them, and perhaps nothing else will ever happen.
    fn sleep(&mut self, deadline: Option<u64>) {
        let refused = (!self.backlog.is_empty()).then(|| clock::now() + 1_000_000);
        let deadline = deadline.into_iter().chain(self.cancels.next()).chain(refused).min();
        /// Nanoseconds. Older kernels add the span to the time, and a sum of more than 63 bits has passed already.
        const LONGEST: u64 = i64::MAX as u64 / 2;
        let limit = deadline.map(|deadline| {
            let span = deadline.saturating_sub(clock::now()).min(LONGEST);
            types::Timespec::new().sec(span / 1_000_000_000).nsec((span % 1_000_000_000) as u32)
        });
        let queued = self.ring.submission().len();
        match self.enter(queued, 1, ENTER_GETEVENTS, limit.as_ref()) {
            Ok(_) | Err(libc::ETIME | libc::EINTR) => {}
            Err(_) => {
                // The kernel refuses entries (or, before Linux 6.0, first wants its own backlog to be
                // fetched): sleep for a millisecond, or until the next completion.
                let moment = types::Timespec::new().nsec(1_000_000);
                let _ = self.enter(0, 1, ENTER_GETEVENTS, Some(&moment));
            }
        }
    }

    /// `io_uring_enter`. Returns how many entries were taken.
    fn enter(
        &mut self,
        submit: usize,
        complete: u32,
        flags: u32,
        limit: Option<&types::Timespec>,
    ) -> Result<usize, i32> {
        let result = self.try_enter(submit, complete, flags, limit);
        if let Err(errno @ (libc::ENOSYS | libc::EPERM | libc::EACCES)) = result {
            fatal::abort(format_args!(
                "io_uring_enter is refused since the program has begun to use it (errno {errno}), as by a \
                 seccomp filter: set CAREFREE_REACTOR=epoll, or have the filter allow it"
            ));
        }
        result
    }

    /// [`enter`](Self::enter), which the kernel may refuse altogether.
    fn try_enter(
        &mut self,
        submit: usize,
        complete: u32,
        flags: u32,
        limit: Option<&types::Timespec>,
    ) -> Result<usize, i32> {
        let argument = WaitArgument {
            sigmask: 0,
            sigmask_size: 0,
            pad: 0,
            limit: limit.map_or(0, |limit| &raw const *limit as u64),
        };
        // SAFETY: the descriptor is a ring's, and the argument and the time limit live until the
        // call returns. The memory of queued entries is valid: see `queue`.
        let result = unsafe {
            syscall(
                libc::SYS_io_uring_enter,
                [
                    self.ring.as_raw_fd() as usize,
                    submit,
                    complete as usize,
                    (flags | ENTER_EXT_ARG) as usize,
                    &raw const argument as usize,
                    size_of::<WaitArgument>(),
                ],
            )
        };
        if let Err(errno @ (libc::EBADF | libc::EOPNOTSUPP | libc::EBADFD)) = result {
            // No panic: the kernel may be about to write to frames above this one.
            fatal::abort(format_args!(
                "io_uring_enter failed with errno {errno}: has the program closed a descriptor \
                 that it did not open?"
            ));
        }
        result
    }

    /// Takes all completions, also those that the kernel holds back.
    fn reap(&mut self, out: &mut Completions) {
        self.reap_ring(out);
        let before = out.len();
        self.unheld.collect(out);
        // An unheld operation that was done when it was cancelled was taken for one of the ring's.
        for done in &out[before..] {
            self.cancels.forget(done.token);
        }
    }

    fn reap_ring(&mut self, out: &mut Completions) {
        loop {
            let mut more = false;
            for done in self.ring.completion() {
                match done.user_data() {
                    CANCEL_ALL => self.cancelled_all = Some(done.result()),
                    // The watch ends when the completion queue is full, and must be renewed.
                    BELL => self.watching = cqueue::more(done.flags()),
                    UNHELD => self.unheld.ring(cqueue::more(done.flags())),
                    answer if answer & CANCEL != 0 => {
                        self.cancels.answered(answer & !CANCEL, done.result() == 0);
                    }
                    token => {
                        self.pending -= 1;
                        self.cancels.forget(token);
                        more = true;
                        out.push_or_abort(Completion { token, result: done.result() });
                    }
                }
            }
            if !self.ring.submission().cq_overflow() {
                return;
            }
            // Any thread may do this.
            if self.enter(0, 0, ENTER_GETEVENTS, None).is_err() && !more {
                return;
            }
        }
    }
}

/// The entry that cancels the operation `token`.
fn cancel(token: u64) -> Entry {
    let misses = faults::hooks().is_some_and(|hooks| (hooks.misses)(token));
    // Tokens are addresses, so no operation has this one.
    let target = if misses { token | 1 << 62 } else { token };
    opcode::AsyncCancel::new(target).build().user_data(CANCEL | token)
}

impl Drop for Ring {
    /// Cancels pending operations and waits for them, so that the kernel no longer uses the
    /// callers' memory. (Linux before 5.19 has no way to cancel everything; there closing the ring
    /// does, slightly later.)
    fn drop(&mut self) {
        if self.pending > 0 {
            let mut out = Completions::new();
            while self.pending > 0 && self.cancelled_all != Some(-libc::EINVAL) {
                // Repeatedly: see `cancels.rs`.
                let all = types::CancelBuilder::any();
                self.push(&opcode::AsyncCancel2::new(all).build().user_data(CANCEL_ALL));
                self.hand_over();
                self.sleep(Some(clock::now() + 1_000_000));
                self.reap(&mut out);
            }
        }
        // SAFETY: dropped once; the ring is not used again.
        unsafe { ManuallyDrop::drop(&mut self.ring) }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ring").field("pending", &self.pending).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::Arc;

    /// More completions than the queue holds, the bell's among them, end the watch of the bell.
    #[test]
    fn the_watch_of_the_bell_is_renewed_after_a_full_queue() {
        const MANY: u64 = 2 * setup::COMPLETIONS as u64;
        let idle = Arc::new(Idle::new());
        idle.bell().hang().unwrap();
        let mut ring = Ring::new().unwrap();
        let mut out = Completions::new();
        for token in 0..MANY {
            let poll = Op::Poll { fd: idle.bell().fd(), events: libc::POLLIN as u32 };
            // SAFETY: refers to no memory.
            unsafe { ring.submit(token, &poll) }.unwrap();
        }
        let ring_later = |idle: &Arc<Idle>| {
            let idle = Arc::clone(idle);
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                idle.wake();
            })
        };
        let other = ring_later(&idle);
        while !ring.wait(&idle, None, &mut out) {}
        // It was not rung by a waker that was faster than this thread.
        idle.bell().ring();
        while ring.pending() > 0 {
            ring.wait(&idle, None, &mut out);
        }
        assert_eq!(out.len() as u64, MANY);
        other.join().unwrap();

        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let poll = Op::Poll { fd: here.as_raw_fd(), events: libc::POLLIN as u32 };
        // SAFETY: refers to no memory.
        unsafe { ring.submit(0, &poll) }.unwrap();
        for _ in 0..3 {
            let other = ring_later(&idle);
            let end = clock::after(std::time::Duration::from_secs(10));
            while !ring.wait(&idle, Some(end), &mut out) {
                assert!(clock::now() < end, "the bell was not noticed");
            }
            other.join().unwrap();
        }
        drop(there);
        ring.wait(&idle, None, &mut out);
    }

    /// A connection that is accepted at once is a completion, though it is not handed out yet.
    #[test]
    fn a_completed_operation_is_not_cancelled_repeatedly() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut ring = Ring::new().unwrap();
        let (address, length) = (std::ptr::null_mut(), std::ptr::null_mut());
        let flags = libc::SOCK_CLOEXEC;
        let accept = Op::Accept { fd: listener.as_raw_fd(), address, length, flags };
        // SAFETY: refers to no memory.
        unsafe { ring.submit_unheld(7, &accept) }.unwrap();
        ring.cancel(7);
        let mut out = Completions::new();
        ring.poll(&mut out);
        assert_eq!(out.len(), 1);
        if out[0].result >= 0 {
            // SAFETY: a new descriptor, which nothing else owns.
            drop(unsafe { OwnedFd::from_raw_fd(out[0].result) });
        }
        assert_eq!(ring.cancels.next(), None);
    }
}
