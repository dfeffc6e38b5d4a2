//! Completing what the kernel has done, and running errands: a carrier's own, in its own context; or
//! another thread's, while a fiber keeps the carrier busy.

use carefree_reactor::Completion;

use crate::carrier::carrier::Carrier;
use crate::carrier::record;

impl Carrier {
    /// Hands over what was submitted, runs errands and completes what is done, without sleeping.
    ///
    /// # Safety
    /// The caller runs on the carrier, in its own context.
    #[inline]
    pub(crate) unsafe fn poll(&self) {
        // SAFETY: the caller's promises; errands are tokens of operations whose fibers wait for this.
        unsafe {
            while let Some(token) = self.io.next_errand() {
                record::run_errand(token, |token| self.io.cancel(token));
            }
            if self.io.is_waiting() {
                let mut collected = self.io.poll();
                complete_all(&mut collected);
                self.io.reuse(collected);
            }
        }
    }

    /// Sleeps until woken, until an operation is done, or until `deadline`, and completes what is done.
    ///
    /// # Safety
    /// As for [`poll`](Self::poll).
    pub(crate) unsafe fn lie(&self, deadline: Option<u64>) {
        // SAFETY: the caller's promises.
        unsafe {
            let mut collected = self.io.sleep(deadline);
            if !collected.is_empty() {
                complete_all(&mut collected);
                self.io.reuse(collected);
            }
        }
    }

    /// Wakes the fibers whose operations are done and runs errands, for a carrier that has been busy for
    /// long. For threads that are not the carrier's.
    pub(crate) fn rescue(&self) {
        // Where time is virtual, what comes when is the seed's to say.
        if self.virtual_time().is_some() || !self.has_operations() {
            return;
        }
        // SAFETY: errands are tokens of operations whose fibers wait until they are run below.
        let (heard, mut collected) = self.io.rescue(|token| unsafe { record::is_done(token) });
        for token in heard {
            // SAFETY: as above.
            unsafe { record::run_errand(token, |_| ()) };
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
            record::prefetch(later.token);
        }
        if let Some(later) = collected.get(n + HEADER_AHEAD) {
            // SAFETY: a token as below, which is not completed yet.
            unsafe { record::prefetch_header(later.token) };
        }
        // SAFETY: tokens are given to drivers by `perform` only, and each is completed once.
        unsafe { record::complete(completion.token, completion.result) };
    }
    collected.clear();
}
