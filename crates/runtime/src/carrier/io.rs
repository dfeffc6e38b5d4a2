//! What a carrier has of the reactor: a driver, and where the carrier sleeps.
//!
//! The driver is used by its carrier's kernel thread: fibers submit operations while they run there, and
//! the carrier's own context passes these to the kernel and collects completions: when it sleeps, and at each visit
//! that finds something to run. Another thread uses the driver only for a carrier that a fiber keeps busy for long
//! ([`Io::rescue`]), so the lock around it is biased.

use std::cell::{Cell, UnsafeCell};
use std::mem;
#[cfg(not(simulated))]
use std::sync::Arc;
use std::time::Duration;

use carefree_ground::mapped::Mapped;
#[cfg(simulated)]
use std::boxed::Box as Shared;

use carefree_reactor::{Completions, Driver, Op, Unsupported};
#[cfg(not(simulated))]
use carefree_reactor::{Shared, choice};

use crate::carrier::errand::ErrandRef;
use crate::fiber::current::without_parking;
use crate::fiber::virtual_time::VirtualTime;
use crate::protocol::bias::Bias;
use crate::protocol::injector::Injector;
use crate::protocol::sync::{AtomicUsize, Idle, Ordering, clock};

/// A carrier's driver and what goes with it.
pub(crate) struct Io {
    lock: Bias,
    /// Made by the carrier's thread when it is first needed. Accessed under the lock.
    driver: UnsafeCell<Option<Driver>>,
    /// When to try again to make the driver, if that has failed: as a rule, because the process has no
    /// descriptors or memory left. (A short pause: calls are offloaded meanwhile, and cannot be
    /// cancelled.)
    refused_until: Cell<u64>,
    /// Operations submitted that the driver has not completed. Written under the lock.
    pending: AtomicUsize,
    /// Those that the driver has completed in a sleep, and the carrier has not.
    uncompleted: AtomicUsize,
    /// Requests to cancel operations, from fibers on other carriers.
    errands: Injector<ErrandRef>,
    /// Where the carrier sleeps.
    idle: Shared<Idle>,
    /// The runtime's own time, if it has one.
    time: Option<VirtualTime>,
    /// A list with room for completions, empty but between a sleep and the completing of what was done then; of the
    /// carrier's own context.
    collected: UnsafeCell<Completions>,
}

/// Time until a driver that could not be made is tried again.
const PAUSE: Duration = Duration::from_millis(50);

impl Io {
    pub(crate) fn new(time: Option<VirtualTime>) -> Self {
        Io {
            lock: Bias::new(),
            driver: UnsafeCell::new(None),
            refused_until: Cell::new(0),
            pending: AtomicUsize::new(0),
            uncompleted: AtomicUsize::new(0),
            errands: Injector::new(),
            idle: Shared::new(Idle::new()),
            time,
            collected: UnsafeCell::default(),
        }
    }

    /// Calls `f` with the driver, if there is one.
    ///
    /// # Safety
    /// The caller runs on the carrier, and `f` does not switch, nor come here again.
    #[inline]
    unsafe fn with<R>(&self, f: impl FnOnce(&mut Driver) -> R) -> Option<R> {
        // SAFETY: the caller is on the carrier's thread, the owner. It is not inside already, for what
        // runs inside neither switches nor comes here again.
        unsafe { self.lock.enter() };
        // SAFETY: the lock is held.
        let driver = unsafe { (*self.driver.get()).as_mut() };
        let result = driver.map(|driver| {
            // The driver may allocate; a fiber that parked in the allocator would keep the lock.
            let result = without_parking(|| f(driver));
            // A thread that sees that none is pending also sees those that are uncompleted.
            self.pending.store(driver.pending(), Ordering::Release);
            result
        });
        // SAFETY: entered above.
        unsafe { self.lock.leave() };
        result
    }

    /// Submits `op`, whose completion will carry `token`. `unheld` says that its file must be gone with
    /// the process (`Driver::submit_unheld`).
    ///
    /// # Safety
    /// As for [`with`](Self::with); what `op` points to is valid until its completion.
    #[inline]
    pub(crate) unsafe fn submit(
        &self,
        token: u64,
        op: &Op,
        unheld: bool,
    ) -> Result<(), Unsupported> {
        // SAFETY: what `op` points to stays valid until its completion, as this function demands too.
        let submit = |driver: &mut Driver| unsafe {
            match unheld {
                true => driver.submit_unheld(token, op),
                false => driver.submit(token, op),
            }
        };
        // SAFETY: the caller runs on the carrier; a driver calls nothing of the runtime's.
        match unsafe { self.with(submit) } {
            Some(result) => result,
            None => {
                self.make()?;
                // SAFETY: as for the first attempt, which has left the lock.
                unsafe { self.with(submit) }.unwrap_or(Err(Unsupported))
            }
        }
    }

    /// A machine that is simulated has no kernel to ask.
    #[cfg(simulated)]
    fn make(&self) -> Result<(), Unsupported> {
        self.refused_until.set(clock::after(PAUSE));
        Err(Unsupported)
    }

    #[cfg(not(simulated))]
    #[cold]
    fn make(&self) -> Result<(), Unsupported> {
        if clock::now() < self.refused_until.get() {
            return Err(Unsupported);
        }
        // The calling fiber must not park, and perhaps be moved to another carrier: the first driver of
        // a process takes locks of std's.
        let made = without_parking(|| {
            let idle = self.idle.clone();
            match &self.time {
                Some(time) => Driver::mock(time.seed, Arc::clone(&time.clock), idle),
                None => choice().and_then(|chosen| Driver::with_idle(chosen.kind, idle)),
            }
        });
        match made {
            Ok(driver) => {
                // SAFETY: this is the carrier's thread. Other threads access the driver in `rescue` only,
                // and only where `pending` or an errand says that something was submitted to it.
                unsafe { *self.driver.get() = Some(driver) };
                Ok(())
            }
            Err(_) => {
                self.refused_until.set(clock::after(PAUSE));
                Err(Unsupported)
            }
        }
    }

    /// Asks the driver to cancel an operation of its own.
    ///
    /// # Safety
    /// As for [`with`](Self::with).
    pub(crate) unsafe fn cancel(&self, token: u64) {
        // SAFETY: the caller runs on the carrier; a driver calls nothing of the runtime's.
        unsafe { self.with(|driver| driver.cancel(token)) };
    }

    /// Asks for an operation to be cancelled, from any thread.
    pub(crate) fn leave_errand(&self, errand: ErrandRef) {
        self.errands.push(errand);
    }

    pub(crate) fn has_errands(&self) -> bool {
        !self.errands.is_empty()
    }

    /// Wakes the carrier if it sleeps.
    pub(crate) fn wake(&self) {
        self.idle.wake();
    }

    /// Whether an operation is under way, or was done in a sleep and is yet to be completed. A hint, but for the
    /// carrier itself.
    pub(crate) fn has_operations(&self) -> bool {
        self.pending.load(Ordering::Acquire) != 0 || self.uncompleted.load(Ordering::Relaxed) != 0
    }

    /// Whether operations are under way. A hint, but for the carrier itself.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Passes what was submitted to the kernel and collects what is done, without sleeping. The caller
    /// gives the list back by [`reuse`](Self::reuse).
    ///
    /// # Safety
    /// The caller runs on the carrier, in its own context.
    #[inline]
    pub(crate) unsafe fn poll(&self) -> Completions {
        // SAFETY: the caller is in the carrier's own context, which alone has `collected`, and is not
        // within `with`.
        unsafe {
            let mut collected = self.collected();
            self.with(|driver| driver.poll(&mut collected));
            collected
        }
    }

    /// [`poll`](Self::poll) without entering the kernel: what was submitted goes there with the next sleep or poll.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn peek(&self) -> Completions {
        // SAFETY: as in `poll`.
        unsafe {
            let mut collected = self.collected();
            self.with(|driver| driver.peek(&mut collected));
            collected
        }
    }

    /// Passes what was submitted to the kernel.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn hand_over(&self) {
        // SAFETY: as in `poll`.
        unsafe { self.with(Driver::hand_over) };
    }

    /// Sleeps until an operation is done, until the carrier is woken, or until `deadline`; collects what
    /// is done.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn sleep(&self, deadline: Option<u64>) -> Completions {
        if !self.is_waiting() {
            match (&self.time, deadline) {
                (Some(time), Some(deadline)) => self.skip(time, deadline),
                _ => drop(self.idle.wait(deadline)),
            }
            return Completions::new();
        }
        // SAFETY: as in `poll`.
        unsafe {
            let mut collected = self.collected();
            self.with(|driver| {
                driver.wait(deadline, &mut collected);
                self.uncompleted.store(collected.len(), Ordering::Relaxed);
            });
            collected
        }
    }

    /// The list that was given back last.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn collected(&self) -> Completions {
        // SAFETY: the caller is in the carrier's own context, which alone has `collected`.
        mem::take(unsafe { &mut *self.collected.get() })
    }

    /// What was done in a sleep is completed.
    pub(crate) fn completed(&self) {
        self.uncompleted.store(0, Ordering::Release);
    }

    /// Takes a list of completions back, for the next ones.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn reuse(&self, collected: Completions) {
        // SAFETY: the caller is in the carrier's own context, which alone has `collected`.
        unsafe { *self.collected.get() = collected };
    }

    /// Lets virtual time pass, as the driver does itself while it has operations.
    fn skip(&self, time: &VirtualTime, deadline: u64) {
        /// While an offloaded call holds the time: when to look again whether it still does.
        const LOOK: Duration = Duration::from_millis(1);
        if time.clock.is_held() {
            self.idle.wait(Some(clock::after(LOOK)));
        } else {
            time.clock.set_forward(deadline);
        }
    }

    /// Takes the oldest errand; returns its operation's token.
    pub(crate) fn next_errand(&self) -> Option<u64> {
        let mut next = None;
        self.errands.take(1, |errand| next = Some(errand.token()));
        next
    }

    /// Drops the driver in the child of a fork, without a word to what it shares with the parent's.
    ///
    /// # Safety
    /// There is one thread, and it is not in here.
    pub(crate) unsafe fn abandon(&self) {
        // SAFETY: the caller is the only thread, and nothing borrows the driver.
        if let Some(driver) = unsafe { (*self.driver.get()).take() } {
            driver.abandon();
        }
    }

    /// Does the work of a carrier that has been busy for long, for another thread: cancels the operations
    /// for which there are errands, but for those that `is_done`, and collects what is done.
    ///
    /// Returns the tokens of these errands, and the completions. The caller wakes their fibers, now that
    /// the lock is free again.
    pub(crate) fn rescue(&self, is_done: impl Fn(u64) -> bool) -> (Mapped<u64>, Completions) {
        let (mut heard, mut collected) = (Mapped::new(), Completions::new());
        self.lock.steal(|| {
            // SAFETY: the lock is held.
            if let Some(driver) = unsafe { (*self.driver.get()).as_mut() } {
                while let Some(token) = self.next_errand() {
                    if !is_done(token) {
                        driver.cancel(token);
                    }
                    heard.push_or_abort(token);
                }
                driver.harvest(&mut collected);
                self.pending.store(driver.pending(), Ordering::Relaxed);
            }
        });
        (heard, collected)
    }
}

impl std::fmt::Debug for Io {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Io").field("pending", &self.pending).finish_non_exhaustive()
    }
}
