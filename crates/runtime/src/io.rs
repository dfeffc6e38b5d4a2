//! A carrier's side towards its reactor.
//!
//! The reactor's driver is used by its carrier's kernel thread: fibers submit while they run there,
//! and the carrier's own context hands over and collects, at each visit and when it sleeps. Only a
//! carrier that a fiber keeps busy for long is helped by another thread ([`Io::rescue`]), so the
//! lock around the driver is biased.

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree_reactor::clock;
use carefree_reactor::{Completion, Driver, Idle, Op, Unsupported, choice};
use crossbeam_deque::{Injector, Steal};

use crate::bias::Bias;
use crate::clock::VirtualTime;
use crate::operation;
use crate::wait;

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
    /// Operations to be cancelled, by their tokens.
    errands: Injector<u64>,
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
            // It may ask the allocator for memory; whoever parked there would hold the lock.
            let result = wait::without_parking(|| f(driver));
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
        let made = wait::without_parking(|| {
            let idle = Arc::clone(&self.idle);
            match &self.time {
                Some(time) => Driver::mock(time.seed, Arc::clone(&time.clock), idle),
                None => choice().and_then(|chosen| Driver::with_idle(chosen.kind, idle)),
            }
        });
        match made {
            Ok(driver) => {
                // SAFETY: who helps looks at `pending` first, and nothing has been submitted.
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
    pub(crate) fn leave_errand(&self, token: u64) {
        // It allocates, and gives the processor away when others push.
        wait::without_parking(|| self.errands.push(token));
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

    /// Hands over what was submitted and completes what is done, without sleeping.
    ///
    /// # Safety
    /// The caller runs on the carrier, in its own context.
    #[inline]
    pub(crate) unsafe fn poll(&self) {
        // SAFETY: the caller's promises.
        unsafe {
            self.run_errands();
            if self.is_waiting() {
                let mut collected = std::mem::take(&mut *self.collected.get());
                self.with(|driver| driver.poll(&mut collected));
                complete_all(&mut collected);
                *self.collected.get() = collected;
            }
        }
    }

    /// Sleeps until an operation is done, until the carrier is woken, or until `deadline`.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn sleep(&self, deadline: Option<u64>) {
        if !self.is_waiting() {
            return match (&self.time, deadline) {
                (Some(time), Some(deadline)) => self.skip(time, deadline),
                _ => drop(self.idle.wait(deadline)),
            };
        }
        // SAFETY: the caller's promises.
        unsafe {
            let mut collected = std::mem::take(&mut *self.collected.get());
            self.with(|driver| driver.wait(deadline, &mut collected));
            complete_all(&mut collected);
            *self.collected.get() = collected;
        }
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

    /// # Safety
    /// As for [`poll`](Self::poll).
    unsafe fn run_errands(&self) {
        while let Some(token) = self.next_errand() {
            // SAFETY: errands are tokens of operations whose fibers wait for this.
            unsafe { operation::run_errand(token, |token| self.cancel(token)) };
        }
    }

    fn next_errand(&self) -> Option<u64> {
        while !self.errands.is_empty() {
            match self.errands.steal() {
                Steal::Success(token) => return Some(token),
                Steal::Retry => {}
                Steal::Empty => break,
            }
        }
        None
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

    /// Completes what is done for a carrier that has been busy for long, and runs its errands. For
    /// threads that are not the carrier's.
    pub(crate) fn rescue(&self) {
        if !self.is_waiting() && !self.has_errands() {
            return;
        }
        let mut collected = Vec::new();
        let mut heard = Vec::new();
        self.lock.steal(|| {
            // SAFETY: the lock is held.
            if let Some(driver) = unsafe { (*self.driver.get()).as_mut() } {
                while let Some(token) = self.next_errand() {
                    // SAFETY: as in `run_errands`. Fibers are woken when the lock is free again.
                    if !unsafe { operation::is_done(token) } {
                        driver.cancel(token);
                    }
                    heard.push(token);
                }
                driver.harvest(&mut collected);
                self.pending.store(driver.pending(), Ordering::Relaxed);
            }
        });
        for token in heard {
            // SAFETY: as above.
            unsafe { operation::run_errand(token, |_| ()) };
        }
        complete_all(&mut collected);
    }
}

/// Completes all, and has what the next ones will touch fetched meanwhile: of a thousand connections
/// neither the operation's record nor its fiber's header is in a cache.
fn complete_all(collected: &mut Vec<Completion>) {
    const HEADER_AHEAD: usize = 2;
    const RECORD_AHEAD: usize = 4;
    for (n, completion) in collected.iter().enumerate() {
        if let Some(later) = collected.get(n + RECORD_AHEAD) {
            operation::prefetch_record(later.token);
        }
        if let Some(later) = collected.get(n + HEADER_AHEAD) {
            // SAFETY: a token as below, which is not completed yet.
            unsafe { operation::prefetch_header(later.token) };
        }
        // SAFETY: tokens are given to drivers by `perform` only, and each is completed once.
        unsafe { operation::complete(completion.token, completion.result) };
    }
    collected.clear();
}

impl std::fmt::Debug for Io {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Io").field("pending", &self.pending).finish_non_exhaustive()
    }
}
