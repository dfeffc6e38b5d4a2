//! Operations on files that the ring must not hold.
//!
//! A ring is torn down some milliseconds after its process has ended, and until then the kernel holds
//! the files of the operations that wait in it. If one of these is a listener, the next process
//! finds its port in use; a lock of the file's is still taken. So such a file is watched by an epoll
//! instance instead, which holds no file, and the ring watches the instance.
//!
//! *No event is missed.* The ring watches the instance with a poll that stays. The kernel posts a
//! completion whenever something is added to what the instance has to report, and what is there is
//! collected until nothing is left ([`collect`](Unheld::collect)), whether or not an operation still
//! waits for it: what is left uncollected would not be reported again. When the completion queue is
//! full the poll ends, and is set anew, which looks at once.

use std::os::fd::RawFd;

use crate::op::{Completion, Op, Unsupported};
use crate::sys::attempt::ready;
use crate::sys::epoll::Watcher;

/// Made when the first such operation comes.
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
            // What is there need not be watched for. But those who wait come first.
            if !watcher.is_waited_for(fd) && ready(fd, libc::POLLIN) != Ok(0) {
                // SAFETY: the caller's promise.
                if unsafe { watcher.accept(token, op) } {
                    return Ok(());
                }
            }
        }
        // SAFETY: as above.
        unsafe { watcher.submit(token, op) }
    }

    /// Whether there was such an operation.
    pub(super) fn cancel(&mut self, token: u64) -> bool {
        self.watcher.as_mut().is_some_and(|watcher| watcher.cancel(token))
    }

    /// Appends what is done to `out`.
    #[inline]
    pub(super) fn collect(&mut self, out: &mut Vec<Completion>) {
        if let Some(watcher) = &mut self.watcher {
            if std::mem::take(&mut self.rang) {
                watcher.collect();
            }
            watcher.hand_out(out);
        }
    }

    /// The instance's descriptor, if the ring has to begin to watch it.
    #[inline]
    pub(super) fn begin_to_watch(&mut self) -> Option<RawFd> {
        if self.watched {
            return None;
        }
        let watcher = self.watcher.as_ref().filter(|watcher| watcher.pending() > 0)?;
        self.watched = true;
        Some(watcher.fd())
    }

    /// The ring's poll of the instance has a completion; whether `more` may follow.
    pub(super) fn ring(&mut self, more: bool) {
        self.rang = true;
        self.watched = more;
    }

    #[inline]
    pub(super) fn pending(&self) -> usize {
        self.watcher.as_ref().map_or(0, |watcher| watcher.pending())
    }

    /// As [`Watcher::abandon`].
    pub(super) fn abandon(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abandon();
        }
    }
}
