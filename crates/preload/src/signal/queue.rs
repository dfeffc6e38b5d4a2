//! The signals that have come for a thread and are not handled yet.

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use carefree_ground::lock::Lock;
use carefree_runtime::wait::without_parking;
use libc::siginfo_t;

use crate::signal::expiry::{self, Expiry};
use crate::signal::sent;
use crate::signal::set::bit;

/// Signals from here on are queued as often as they are sent; those before only once.
const FIRST_QUEUED: c_int = 32;

/// One that has come.
struct Came {
    info: siginfo_t,
    /// It is for the process, and this thread was chosen: another may have it as well.
    for_any: bool,
}

// SAFETY: plain data.
unsafe impl Send for Came {}

/// Signals that have come.
pub(crate) struct Queue {
    /// Those of which there is one at least. Changed under the lock.
    set: AtomicU64,
    /// Whether the thread takes no more. Set under the lock.
    closed: AtomicBool,
    /// Those that calls of the thread's have raised and that are not in the list yet: a handler can add no more.
    /// (Standard ones, so 32 bits will do: a thread's page has few to spare.)
    raised: AtomicU32,
    came: Lock<Vec<Came>>,
}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue {
            set: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            raised: AtomicU32::new(0),
            came: Lock::new(Vec::new()),
        }
    }

    /// Those of which there is one at least.
    #[inline]
    pub(crate) fn set(&self) -> u64 {
        self.set.load(Ordering::SeqCst)
    }

    /// Whether the thread takes no more, because it ends.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Adds a signal, `for_any` if the process's; false if the thread takes no more.
    pub(crate) fn push(&self, mut info: siginfo_t, for_any: bool) -> bool {
        // The list grows under its lock: the caller must not park in the allocator meanwhile.
        without_parking(|| {
            let mut came = self.came.lock();
            if self.is_closed() {
                return false;
            }
            let own = bit(info.si_signo);
            // A timer's is there once, and tells how often it would have come.
            if let Some(expiry) = Expiry::of(&mut info).copied() {
                let mut timers = came.iter_mut().filter_map(|came| Expiry::of(&mut came.info));
                if let Some(before) = timers.find(|before| before.is_same(&expiry)) {
                    let more = expiry.overrun.saturating_add(1);
                    before.overrun = before.overrun.saturating_add(more);
                    return true;
                }
            }
            // The thread and the process have one each.
            let is_same = |one: &Came| one.info.si_signo == info.si_signo && one.for_any == for_any;
            let is_raised = || !for_any && u64::from(self.raised.load(Ordering::SeqCst)) & own != 0;
            if info.si_signo >= FIRST_QUEUED || !is_raised() && !came.iter().any(is_same) {
                came.push(Came { info, for_any });
                self.set.fetch_or(own, Ordering::SeqCst);
            }
            true
        })
    }

    /// A call of the thread's raises a signal, in whose handler this is called: anywhere.
    pub(crate) fn raise(&self, signal: c_int) {
        self.raised.fetch_or(bit(signal) as u32, Ordering::SeqCst);
        self.set.fetch_or(bit(signal), Ordering::SeqCst);
    }

    /// Takes the first signal of a set, for the program: the thread's own before the process's, of these the lowest first.
    #[inline]
    pub(crate) fn take(&self, of: u64) -> Option<siginfo_t> {
        // Each call that may wait asks this at its end.
        if self.set() & of == 0 {
            return None;
        }
        let mut taken =
            self.take_if(of, |came| !came.for_any).or_else(|| self.take_if(of, |_| true));
        if let Some(expiry) = taken.as_mut().and_then(Expiry::of) {
            without_parking(|| expiry::taken(expiry));
        }
        taken
    }

    /// [`take`](Self::take) of those that another thread may have as well.
    pub(crate) fn take_for_any(&self, of: u64) -> Option<siginfo_t> {
        if self.set() & of == 0 {
            return None;
        }
        self.take_if(of, |came| came.for_any)
    }

    #[cold]
    fn take_if(&self, of: u64, test: impl Fn(&Came) -> bool) -> Option<siginfo_t> {
        without_parking(|| {
            let mut came = self.came.lock();
            let raised = u64::from(self.raised.swap(0, Ordering::SeqCst));
            for signal in (1..FIRST_QUEUED).filter(|signal| raised & bit(*signal) != 0) {
                if came.iter().all(|one| one.for_any || one.info.si_signo != signal) {
                    came.push(Came { info: sent::told(signal, libc::SI_USER, 0), for_any: false });
                }
            }
            let takes = |one: &Came| of & bit(one.info.si_signo) != 0 && test(one);
            let first = came.iter().filter(|one| takes(one)).map(|one| one.info.si_signo).min();
            let is_first = |one: &Came| Some(one.info.si_signo) == first && takes(one);
            let index = came.iter().position(is_first);
            let taken = index.map(|index| came.remove(index).info);
            self.reduce_set(&came);
            if came.is_empty() {
                *came = Vec::new();
            }
            taken
        })
    }

    /// Takes those of which there is none any more out of the set, under the lock.
    ///
    /// [`raise`](Self::raise) does not have the lock: it notes a signal, and then adds it to the set. If it notes one
    /// meanwhile, the signal stays in the set: it is added there by `raise`, or here, where the notes are read last. And
    /// if another thread takes the signal (as a change of its action does) before `raise` adds it to the set, the next
    /// take finds none, and takes it out here.
    fn reduce_set(&self, came: &[Came]) {
        let there = came.iter().fold(0, |set, one| set | bit(one.info.si_signo));
        self.set.fetch_and(there, Ordering::SeqCst);
        let raised = u64::from(self.raised.load(Ordering::SeqCst));
        if raised != 0 {
            self.set.fetch_or(raised, Ordering::SeqCst);
        }
    }

    /// Forgets those of a set, which the program ignores from now on.
    pub(crate) fn discard(&self, of: u64) {
        while self.take(of).is_some() {}
    }

    /// Has the thread take no more, if none has come that it does not block.
    pub(crate) fn close(&self, mask: u64) -> bool {
        let _came = self.came.lock();
        let closes = self.set.load(Ordering::Relaxed) & !mask == 0;
        if closes {
            self.closed.store(true, Ordering::Relaxed);
        }
        closes
    }

    /// Begins anew: in the child of a fork, which inherits no pending signals.
    ///
    /// # Safety
    /// There is one thread, and it is not in here.
    pub(crate) unsafe fn renew(&self) {
        // SAFETY: there is one thread, and it does not have the lock.
        unsafe { self.came.renew(Vec::new()) };
        self.set.store(0, Ordering::Relaxed);
        self.raised.store(0, Ordering::Relaxed);
        self.closed.store(false, Ordering::Relaxed);
    }

    /// Forgets what has come, when the queue is closed.
    pub(crate) fn clear(&self) {
        without_parking(|| *self.came.lock() = Vec::new());
        self.set.store(0, Ordering::SeqCst);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Queue").field("set", &self.set).finish_non_exhaustive()
    }
}
