//! A carrier's side towards its reactor.
//!
//! The reactor's driver is used by its carrier's kernel thread: fibers submit while they run there,
//! and the carrier's own context hands over and collects, at each visit and when it sleeps. Only a
//! carrier that a fiber keeps busy for long is helped by another thread ([`Io::rescue`]), so the
//! lock around the driver is biased.

use std::cell::{Cell, UnsafeCell};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree_reactor::clock;
use carefree_reactor::{Completion, Driver, Idle, Op, Unsupported, choice};

use crate::carrier::errand::ErrandRef;
use crate::fiber::current::without_parking;
use crate::fiber::virtual_time::VirtualTime;
use crate::protocol::bias::Bias;
use crate::protocol::injector::Injector;

/// A carrier's driver and what goes with it.
pub(crate) struct Io {
    lock: Bias,
    /// Made when it is first needed, by the carrier's thread. Under the lock.
    driver: UnsafeCell<Option<Driver>>,
    /// It could not be made, as the process is out of something, as a rule: not tried again before
    /// this time. What is offloaded meanwhile cannot be cancelled, so it is no long one.
    refused_until: Cell<u64>,
    /// Operations submitted and not completed. Written under the lock.
    pending: AtomicUsize,
    /// Operations to be cancelled.
    errands: Injector<ErrandRef>,
    /// Where the carrier sleeps.
    idle: Arc<Idle>,
    /// The runtime's own time, if it has one.
    time: Option<VirtualTime>,
    /// Where completions are collected; of the carrier's own context.
    collected: UnsafeCell<Vec<Completion>>,
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
            errands: Injector::new(),
            idle: Arc::new(Idle::new()),
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
        // SAFETY: the carrier's thread is the owner, and it is not inside: the caller's promise.
        unsafe { self.lock.enter() };
        // SAFETY: the lock is held.
        let driver = unsafe { (*self.driver.get()).as_mut() };
        let result = driver.map(|driver| {
            // It may ask the allocator for memory; a fiber that parked there would hold the lock.
            let result = without_parking(|| f(driver));
            self.pending.store(driver.pending(), Ordering::Relaxed);
            result
        });
        // SAFETY: entered above.
        unsafe { self.lock.leave() };
        result
    }

    /// Has `op` done; `unheld`: without holding its file.
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
        // SAFETY: the caller's promise.
        let submit = |driver: &mut Driver| unsafe {
            match unheld {
                true => driver.submit_unheld(token, op),
                false => driver.submit(token, op),
            }
        };
        // SAFETY: the caller's promise.
        match unsafe { self.with(submit) } {
            Some(result) => result,
            None => {
                self.make()?;
                // SAFETY: as above.
                unsafe { self.with(submit) }.unwrap_or(Err(Unsupported))
            }
        }
    }

    #[cold]
    fn make(&self) -> Result<(), Unsupported> {
        if clock::now() < self.refused_until.get() {
            return Err(Unsupported);
        }
        // The caller, a fiber, must not be moved to another carrier meanwhile: what is made asks for
        // std's locks, if only once in a process.
        let made = without_parking(|| {
            let idle = Arc::clone(&self.idle);
            match &self.time {
                Some(time) => Driver::mock(time.seed, Arc::clone(&time.clock), idle),
                None => choice().and_then(|chosen| Driver::with_idle(chosen.kind, idle)),
            }
        });
        match made {
            Ok(driver) => {
                // SAFETY: a thread that helps looks at `pending` first, and nothing has been submitted.
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
        // SAFETY: the caller's promise.
        unsafe { self.with(|driver| driver.cancel(token)) };
    }

    /// Asks from elsewhere for an operation to be cancelled.
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

    /// Whether operations are under way. A hint, but for the carrier itself.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Hands over what was submitted and collects what is done, without sleeping. The list comes back
    /// by [`reuse`](Self::reuse).
    ///
    /// # Safety
    /// The caller runs on the carrier, in its own context.
    #[inline]
    pub(crate) unsafe fn poll(&self) -> Vec<Completion> {
        // SAFETY: the caller's promises.
        unsafe {
            let mut collected = mem::take(&mut *self.collected.get());
            self.with(|driver| driver.poll(&mut collected));
            collected
        }
    }

    /// Sleeps until an operation is done, until the carrier is woken, or until `deadline`; collects what
    /// is done.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn sleep(&self, deadline: Option<u64>) -> Vec<Completion> {
        if !self.is_waiting() {
            match (&self.time, deadline) {
                (Some(time), Some(deadline)) => self.skip(time, deadline),
                _ => drop(self.idle.wait(deadline)),
            }
            return Vec::new();
        }
        // SAFETY: the caller's promises.
        unsafe {
            let mut collected = mem::take(&mut *self.collected.get());
            self.with(|driver| driver.wait(deadline, &mut collected));
            collected
        }
    }

    /// Takes a list of completions back, for the next ones.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn reuse(&self, collected: Vec<Completion>) {
        // SAFETY: the caller's promises.
        unsafe { *self.collected.get() = collected };
    }

    /// Lets virtual time pass, as the driver does while it has operations.
    fn skip(&self, time: &VirtualTime, deadline: u64) {
        /// How long to look for what happens elsewhere while time is held.
        const LOOK: Duration = Duration::from_millis(1);
        if time.clock.is_held() {
            self.idle.wait(Some(clock::after(LOOK)));
        } else {
            time.clock.set_forward(deadline);
        }
    }

    /// The token of an operation to be cancelled.
    pub(crate) fn next_errand(&self) -> Option<u64> {
        let mut next = None;
        self.errands.take(1, |errand| next = Some(errand.token()));
        next
    }

    /// Lets go of the driver in the child of a fork.
    ///
    /// # Safety
    /// There is one thread, and it is not in here.
    pub(crate) unsafe fn abandon(&self) {
        // SAFETY: the caller's promise.
        if let Some(driver) = unsafe { (*self.driver.get()).take() } {
            driver.abandon();
        }
    }

    /// Collects what is done for a carrier that has been busy for long, and has those operations
    /// cancelled whose tokens are errands. `is_done` says which of these need not be. For threads that
    /// are not the carrier's.
    ///
    /// Returns the errands and the completions. Fibers are to be woken by the caller, when the lock is
    /// free again.
    pub(crate) fn rescue(&self, is_done: impl Fn(u64) -> bool) -> (Vec<u64>, Vec<Completion>) {
        let (mut heard, mut collected) = (Vec::new(), Vec::new());
        self.lock.steal(|| {
            // SAFETY: the lock is held.
            if let Some(driver) = unsafe { (*self.driver.get()).as_mut() } {
                while let Some(token) = self.next_errand() {
                    if !is_done(token) {
                        driver.cancel(token);
                    }
                    heard.push(token);
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
