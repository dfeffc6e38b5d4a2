//! Operations on files that the ring must not hold.
//!
//! A ring is torn down some milliseconds after its process has ended, and until then the kernel holds
//! the files of the operations that wait in it. If one of these is a listener, the next process
//! finds its port in use; a file's lock is still taken. So such a file is watched by an epoll
//! instance instead, which holds no file, and the ring watches the instance.
//!
//! *No event is missed.* The ring watches the instance with a multishot poll. The kernel posts a
//! completion whenever the instance gets an event, and then all events are collected
//! ([`collect`](Unheld::collect)), even if no operation waits for them any more: an event that is
//! not collected would not be reported again. When the completion queue is full the poll ends and
//! is renewed, which checks the instance at once.

use std::os::fd::RawFd;

use carefree_ground::own::unboxed;

use crate::op::{Completions, Op, Unsupported};
use crate::sys::attempt::ready;
use crate::sys::epoll::Watcher;

/// The epoll instance is made for the first such operation.
#[derive(Debug, Default)]
pub(super) struct Unheld {
    watcher: Option<Box<Watcher>>,
    /// Whether the ring watches the instance.
    watched: bool,
    /// Whether there may be something to collect.
    rang: bool,
}

impl Unheld {
    /// # Safety
    /// As for [`Driver::submit`](crate::Driver::submit).
    pub(super) unsafe fn submit(&mut self, token: u64, op: &Op) -> Result<(), Unsupported> {
        if self.watcher.is_none() {
            self.watcher = Watcher::polled().ok().map(Box::new);
        }
        let watcher = self.watcher.as_mut().ok_or(Unsupported)?;
        if let Op::Accept { fd, .. } = *op {
            watcher.make_acceptor();
            // If a connection is there it is accepted at once, unless other operations wait for one.
            if !watcher.is_waited_for(fd) && ready(fd, libc::POLLIN) != Ok(0) {
                // SAFETY: the operation's memory stays valid until its completion is handed out.
                if unsafe { watcher.accept(token, op) } {
                    return Ok(());
                }
            }
        }
        // SAFETY: the operation's memory stays valid until its completion is handed out.
        unsafe { watcher.submit(token, op) }
    }

    /// Cancels the operation; returns whether there was one.
    pub(super) fn cancel(&mut self, token: u64) -> bool {
        self.watcher.as_mut().is_some_and(|watcher| watcher.cancel(token))
    }

    /// Appends completions to `out`.
    #[inline]
    pub(super) fn collect(&mut self, out: &mut Completions) {
        if let Some(watcher) = &mut self.watcher {
            if std::mem::take(&mut self.rang) {
                watcher.collect();
            }
            watcher.hand_out(out);
        }
    }

    /// The instance's descriptor, if the ring must begin to watch it.
    #[inline]
    pub(super) fn begin_to_watch(&mut self) -> Option<RawFd> {
        if self.watched {
            return None;
        }
        let watcher = self.watcher.as_ref().filter(|watcher| watcher.pending() > 0)?;
        self.watched = true;
        Some(watcher.fd())
    }

    /// Notes a completion of the ring's poll of the instance, and whether `more` may follow.
    pub(super) fn ring(&mut self, more: bool) {
        self.rang = true;
        self.watched = more;
    }

    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.watcher.as_ref().map_or(0, |watcher| watcher.pending())
    }

    /// See [`Watcher::abandon`].
    pub(super) fn abandon(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            unboxed(watcher).abandon();
        }
    }
}
