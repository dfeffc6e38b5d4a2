//! An epoll descriptor, and its wait with a limit in nanoseconds.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use carefree_ground::fatal;
use carefree_ground::number::Own;

use crate::clock;
use crate::sys::bell::Bell;
use crate::sys::poll::{epoll, is_refusal, poll};
use crate::sys::raw::syscall;

/// The most events fetched at once.
const BATCH: usize = 128;

/// The name of the bell's events. No descriptor's name is all ones.
pub(super) const BELL: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Poller {
    fd: Own,
    /// Whether the kernel has `epoll_pwait2` (Linux 5.11), as far as is known.
    precise: bool,
}

/// A change of registrations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Add,
    Modify,
}

/// Events fetched at once.
pub(crate) struct Events([libc::epoll_event; BATCH]);

impl Poller {
    /// Makes an epoll instance that watches `bell`, if given: each ring is an event named [`BELL`].
    pub(crate) fn new(bell: Option<&Bell>) -> io::Result<Poller> {
        // SAFETY: accesses no memory.
        let fd = unsafe {
            syscall(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC as usize, 0, 0, 0, 0, 0])
        }
        .map_err(io::Error::from_raw_os_error)?;
        // SAFETY: a new descriptor, which nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let poller = Poller { fd: Own::new(fd), precise: true };
        if let Some(bell) = bell {
            let each = (libc::EPOLLIN | libc::EPOLLET) as u32;
            let added = poller.control(Change::Add, bell.fd(), each, BELL);
            added.map_err(io::Error::from_raw_os_error)?;
        }
        Ok(poller)
    }

    /// For a poll that reports when there are events to collect.
    pub(crate) fn pollfd(&self) -> libc::pollfd {
        libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Adds or changes the events of `fd` that are reported, and their name.
    pub(crate) fn control(
        &self,
        change: Change,
        fd: RawFd,
        events: u32,
        name: u64,
    ) -> Result<(), i32> {
        let operation = match change {
            Change::Add => libc::EPOLL_CTL_ADD,
            Change::Modify => libc::EPOLL_CTL_MOD,
        };
        let event = libc::epoll_event { events, u64: name };
        let args =
            [self.number(), operation as usize, fd as usize, &raw const event as usize, 0, 0];
        // SAFETY: the kernel only reads `event`.
        unsafe { syscall(libc::SYS_epoll_ctl, args) }.map(|_| ())
    }

    /// Fetches events without waiting.
    pub(crate) fn collect<'e>(&self, events: &'e mut Events) -> &'e [libc::epoll_event] {
        loop {
            let count = epoll(self.fd.as_raw_fd(), &mut events.0, Some(0));
            // A poll of this descriptor reports events only once, so an interrupted call must not
            // be taken for one without events.
            if count != Err(libc::EINTR) {
                return events.first(count);
            }
        }
    }

    /// Fetches events, and sleeps until there is one or until `deadline`.
    pub(crate) fn wait<'e>(
        &mut self,
        deadline: Option<u64>,
        events: &'e mut Events,
    ) -> &'e [libc::epoll_event] {
        let limit = deadline.map(|at| at.saturating_sub(clock::now()));
        if self.precise {
            let span = limit.map(clock::timespec);
            let limit = span.as_ref().map_or(0, |span| &raw const *span as usize);
            let args = [self.number(), events.address(), BATCH, limit, 0, size_of::<u64>()];
            // SAFETY: the kernel writes at most `BATCH` events, and reads the limit, which lives
            // until the call returns or is null.
            match unsafe { syscall(libc::SYS_epoll_pwait2, args) } {
                // An old kernel, or a seccomp filter made for one.
                Err(errno) if is_refusal(errno) => self.precise = false,
                result => return events.first(result),
            }
        }
        // An epoll descriptor can itself be polled, with a limit in nanoseconds.
        let waited = poll(&mut [self.pollfd()], limit);
        if waited.is_err_and(is_refusal) {
            let count = epoll(self.fd.as_raw_fd(), &mut events.0, limit);
            return events.first(count);
        }
        self.collect(events)
    }

    fn number(&self) -> usize {
        self.fd.as_raw_fd() as usize
    }
}

impl Events {
    pub(crate) fn new() -> Self {
        Events([libc::epoll_event { events: 0, u64: 0 }; BATCH])
    }

    fn address(&mut self) -> usize {
        self.0.as_mut_ptr() as usize
    }

    /// The events that the kernel has written.
    fn first(&self, count: Result<usize, i32>) -> &[libc::epoll_event] {
        match count {
            Ok(count) => &self.0[..count],
            Err(errno @ (libc::EBADF | libc::EINVAL)) => fatal::abort(format_args!(
                "epoll_wait failed with errno {errno}: has the program closed a descriptor that \
                 it did not open?"
            )),
            // A signal, or a lack of memory: no events yet.
            Err(_) => &[],
        }
    }

    /// Whether there may be more events than those fetched.
    pub(crate) fn may_be_more(taken: usize) -> bool {
        taken == BATCH
    }
}
