//! Operations that are to end: asked for again until they have.
//!
//! The kernel finds an operation to cancel where it waits, or in the hands of a thread of the
//! kernel's. In between it is in neither place: one whose socket has just become ready is queued to
//! be tried once more, and should another reader be faster, goes back to wait. A cancel that comes
//! meanwhile finds nothing, and says no more than what it says of an operation that is done. So an
//! operation whose completion has not come in a while is cancelled again: at once, as a rule, and
//! ever more rarely, for some cannot be cut short (a disk is being read).

use crate::clock;

/// Nanoseconds until an operation is cancelled for the second time.
const FIRST: u64 = 10_000;
/// The most between two times.
const LONGEST: u64 = 100_000_000;

#[derive(Debug, Default)]
pub(super) struct Ending {
    operations: Vec<One>,
}

#[derive(Debug)]
struct One {
    token: u64,
    /// When it is to be cancelled again.
    again: u64,
    /// How long it was left alone the last time.
    patience: u64,
}

impl Ending {
    /// The operation `token`, if it is under way, has been cancelled.
    pub(super) fn cancelled(&mut self, token: u64) {
        self.forget(token);
        self.operations.push(One { token, again: clock::now() + FIRST, patience: FIRST });
    }

    /// The operation `token` has completed, or begins.
    #[inline]
    pub(super) fn forget(&mut self, token: u64) {
        if !self.operations.is_empty() {
            self.operations.retain(|one| one.token != token);
        }
    }

    /// No operation is under way.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.operations.clear();
    }

    /// When the next one is to be cancelled again, if any is.
    pub(super) fn next(&self) -> Option<u64> {
        self.operations.iter().map(|one| one.again).min()
    }

    /// Calls `cancel` for those whose time has come.
    #[inline]
    pub(super) fn for_each_due(&mut self, cancel: impl FnMut(u64)) {
        if !self.operations.is_empty() {
            self.for_each_due_at(clock::now(), cancel);
        }
    }

    fn for_each_due_at(&mut self, now: u64, mut cancel: impl FnMut(u64)) {
        for one in self.operations.iter_mut().filter(|one| one.again <= now) {
            one.patience = (2 * one.patience).min(LONGEST);
            one.again = now + one.patience;
            cancel(one.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_is_cancelled_ever_more_rarely() {
        let mut ending = Ending::default();
        ending.cancelled(7);
        let begin = ending.next().unwrap();
        let mut times = Vec::new();
        for _ in 0..20 {
            let now = ending.next().unwrap();
            ending.for_each_due_at(now - 1, |_| panic!("too early"));
            ending.for_each_due_at(now, |token| {
                assert_eq!(token, 7);
                times.push(now - begin);
            });
        }
        let spans: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(spans[0], 2 * FIRST);
        assert!(spans.windows(2).all(|pair| pair[1] == (2 * pair[0]).min(LONGEST)));
        assert_eq!(spans.last(), Some(&LONGEST));
        ending.forget(7);
        assert_eq!(ending.next(), None);
    }
}
