//! A carrier's operations: completing those that the kernel has done, and running errands. The carrier
//! does both in its own context; while a fiber keeps it busy, another thread may ([`Carrier::rescue`]).

use carefree_reactor::Completions;

use crate::carrier::carrier::Carrier;
use crate::carrier::record;

impl Carrier {
    /// Hands over what was submitted, runs errands and completes what is done, without sleeping.
    ///
    /// # Safety
    /// The caller runs on the carrier, in its own context.
    #[inline]
    pub(crate) unsafe fn poll(&self) {
        // SAFETY: as demanded of the caller.
        unsafe {
            self.run_errands();
            if self.io.is_waiting() {
                let mut collected = self.io.poll();
                complete_all(&mut collected);
                self.io.reuse(collected);
            }
        }
    }

    /// [`poll`](Self::poll) that looks only at what is known without asking the kernel, for a carrier that has nothing to
    /// run and will sleep unless this finds something: what was submitted is handed over with the sleep, or
    /// [before](Self::hand_over) a fiber runs after all.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn peek(&self) {
        // SAFETY: as demanded of the caller.
        unsafe {
            self.run_errands();
            if self.io.is_waiting() {
                let mut collected = self.io.peek();
                complete_all(&mut collected);
                self.io.reuse(collected);
            }
        }
    }

    /// Hands over what was submitted, if it was not yet.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    pub(crate) unsafe fn hand_over(&self) {
        if self.io.is_waiting() {
            // SAFETY: the caller runs on the carrier and in its own context, so it is in no other use of the driver.
            unsafe { self.io.hand_over() };
        }
    }

    /// # Safety
    /// As for [`poll`](Self::poll).
    #[inline]
    unsafe fn run_errands(&self) {
        // SAFETY: the caller runs on the carrier and in its own context, so it is in no other use of the
        // driver. An errand's fiber waits until the errand was run, so its record is there.
        unsafe {
            while let Some(token) = self.io.next_errand() {
                record::run_errand(token, |token| self.io.cancel(token));
            }
        }
    }

    /// Sleeps until woken, until an operation is done, or until `deadline`. What is done is to be
    /// [completed](Self::complete) when the carrier no longer counts as down: a fiber that becomes ready here
    /// would wake another carrier for itself, or leave this one a wake-up for its next sleep.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn lie(&self, deadline: Option<u64>) {
        // SAFETY: the caller runs on the carrier and in its own context.
        unsafe {
            let collected = self.io.sleep(deadline);
            // Also an empty list, if it has memory: to map that anew takes longer than a completion.
            if collected.capacity() > 0 {
                self.io.reuse(collected);
            }
        }
    }

    /// Completes what was done when the carrier [lay](Self::lie).
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn complete(&self) {
        // SAFETY: the caller runs on the carrier and in its own context.
        unsafe {
            let mut collected = self.io.collected();
            complete_all(&mut collected);
            self.io.completed();
            self.io.reuse(collected);
        }
    }

    /// Wakes the fibers whose operations are done and runs errands, for a carrier that has been busy for
    /// long. For threads that are not the carrier's.
    pub(crate) fn rescue(&self) {
        // Where time is virtual, the order of completions is drawn from the seed.
        if self.virtual_time().is_some() || !self.has_operations() {
            return;
        }
        // SAFETY: an errand's fiber waits until the errand was run, which happens below.
        let (heard, mut collected) = self.io.rescue(|token| unsafe { record::is_done(token) });
        for &token in heard.iter() {
            // SAFETY: the errand was taken from the list just now, and is run once. What needs to be
            // cancelled was.
            unsafe { record::run_errand(token, |_| ()) };
        }
        complete_all(&mut collected);
    }
}

/// Completes all, and has the cache fetch what the next ones will access: among a thousand connections,
/// neither an operation's record nor its fiber's header is in a cache.
fn complete_all(collected: &mut Completions) {
    const HEADER_AHEAD: usize = 2;
    const RECORD_AHEAD: usize = 4;
    for (n, completion) in collected.iter().enumerate() {
        if let Some(later) = collected.get(n + RECORD_AHEAD) {
            record::prefetch(later.token);
        }
        if let Some(later) = collected.get(n + HEADER_AHEAD) {
            // SAFETY: tokens are given to drivers by `perform` and `perform_any` only, and this one is
            // completed by a later round of this loop.
            unsafe { record::prefetch_header(later.token) };
        }
        // SAFETY: tokens are given to drivers by `perform` and `perform_any` only, and a driver completes
        // each once.
        unsafe { record::complete(completion.token, completion.result) };
    }
    collected.clear();
}
