//! Cancels under way, which are repeated until their operations have completed.
//!
//! The kernel finds an operation to cancel where it waits, or while one of the kernel's threads
//! executes it. In between it is in neither place: an operation whose socket has just become ready
//! is queued to be tried again and, if another reader is faster, waits again. A cancel during that
//! time finds nothing, and reports the same as for an operation that has completed. So an operation
//! whose cancel has missed and which does not complete for a while is cancelled again: soon at
//! first, then ever more rarely, since some operations cannot be cut short (a disk is being read).
//!
//! *No operation is forgotten.* From its cancel until its completion, an operation has either a
//! cancel that the kernel has not yet answered, or a time at which it is cancelled again. A token
//! can be reused while the answer about its former operation is under way. If that is taken for an
//! answer about the new operation, it only sets the time, which the new one's own answer sets again
//! later.
//!
//! # Many at once
//!
//! A hundred thousand operations may be cancelled together, for example by a common deadline. There
//! are few spans between two cancels of an operation, each twice the one before. Each span has a
//! queue, in which operations are in the order of their times without sorting. An operation that
//! completes is only removed from the table: its place in a queue is skipped when it reaches the
//! front. So each step takes constant time, except for skipping places, each of which is skipped
//! once.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::clock;

/// Nanoseconds from the first cancel that has missed until the next one.
const FIRST: u64 = 10_000;
/// The most nanoseconds between two of them.
const LONGEST: u64 = 100_000_000;
/// The number of spans: [`FIRST`], doubled until [`LONGEST`].
const SPANS: usize = (LONGEST / FIRST).ilog2() as usize + 2;

#[derive(Debug, Default)]
pub(super) struct Cancels {
    /// By token.
    operations: FxHashMap<u64, One>,
    /// By span: the operations to be cancelled again, in the order of their times.
    queues: [VecDeque<Place>; SPANS],
    /// The number of places given so far.
    places: u64,
    /// Places read, for the test that counts them.
    #[cfg(test)]
    looks: usize,
}

#[derive(Debug)]
struct One {
    /// The number of its place in a queue; 0 while the kernel has not answered.
    place: u64,
    /// The span until the following cancel if the next one misses.
    span: usize,
}

#[derive(Debug)]
struct Place {
    token: u64,
    /// The place is valid as long as the table has this number for the operation.
    number: u64,
    /// The time at which it is to be cancelled again.
    again: u64,
}

impl Cancels {
    /// Notes that the operation `token`, which may be under way, is cancelled for the first time.
    pub(super) fn cancelled(&mut self, token: u64) {
        self.operations.insert(token, One { place: 0, span: 0 });
    }

    /// Notes the kernel's answer to a cancel: whether it has `found` the operation, which then
    /// completes.
    pub(super) fn answered(&mut self, token: u64, found: bool) {
        if !self.operations.is_empty() {
            self.answered_at(clock::now(), token, found);
        }
    }

    fn answered_at(&mut self, now: u64, token: u64, found: bool) {
        let Some(one) = self.operations.get_mut(&token) else { return };
        self.places += 1;
        one.place = self.places;
        let span = if found { SPANS - 1 } else { one.span };
        if !found {
            one.span = (span + 1).min(SPANS - 1);
        }
        let again = now + (FIRST << span).min(LONGEST);
        self.queues[span].push_back(Place { token, number: self.places, again });
    }

    /// Forgets the operation `token`, which has completed, or a former one when another begins
    /// under it.
    #[inline]
    pub(super) fn forget(&mut self, token: u64) {
        if !self.operations.is_empty() {
            self.operations.remove(&token);
            if self.operations.is_empty() {
                self.clear();
            }
        }
    }

    /// Forgets all operations, when none is under way.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.operations.clear();
        for queue in &mut self.queues {
            queue.clear();
        }
    }

    /// The time of the next repeated cancel, if there is one.
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.operations.is_empty() {
            return None;
        }
        (0..SPANS).filter_map(|span| self.front(span)).min()
    }

    /// The time at which the first operation of a queue is to be cancelled again. Removes places
    /// that are no longer valid.
    fn front(&mut self, span: usize) -> Option<u64> {
        loop {
            let place = self.queues[span].front()?;
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if self.operations.get(&place.token).is_some_and(|one| one.place == place.number) {
                return Some(place.again);
            }
            self.queues[span].pop_front();
        }
    }

    /// Calls `cancel` for each operation that is due to be cancelled again.
    #[inline]
    pub(super) fn for_each_due(&mut self, cancel: impl FnMut(u64)) {
        if !self.operations.is_empty() {
            self.for_each_due_at(clock::now(), cancel);
        }
    }

    fn for_each_due_at(&mut self, now: u64, mut cancel: impl FnMut(u64)) {
        for span in 0..SPANS {
            while self.front(span).is_some_and(|again| again <= now) {
                let place = self.queues[span].pop_front().expect("front() has found it");
                self.operations.get_mut(&place.token).expect("front() has found it").place = 0;
                cancel(place.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_cancel_is_repeated_ever_more_rarely() {
        let mut cancels = Cancels::default();
        cancels.cancelled(7);
        assert_eq!(cancels.next(), None, "the kernel has not answered");
        let mut now = 1;
        let mut spans = Vec::new();
        for _ in 0..20 {
            cancels.answered_at(now, 7, false);
            let next = cancels.next().unwrap();
            cancels.for_each_due_at(next - 1, |_| panic!("too early"));
            let mut due = Vec::new();
            cancels.for_each_due_at(next, |token| due.push(token));
            assert_eq!(due, [7]);
            cancels.for_each_due_at(u64::MAX, |_| panic!("the kernel has not answered"));
            spans.push(next - now);
            now = next;
        }
        assert_eq!(spans[0], FIRST);
        assert!(spans.windows(2).all(|pair| pair[1] == (2 * pair[0]).min(LONGEST)));
        assert_eq!(spans.last(), Some(&LONGEST));
        cancels.answered_at(now, 7, false);
        cancels.forget(7);
        assert_eq!(cancels.next(), None);
    }

    #[test]
    fn a_found_operation_is_cancelled_again_late_only() {
        let mut cancels = Cancels::default();
        cancels.cancelled(7);
        cancels.answered_at(1, 7, true);
        assert_eq!(cancels.next(), Some(1 + LONGEST));
    }

    #[test]
    fn a_reused_token_is_another_operation() {
        let mut cancels = Cancels::default();
        cancels.cancelled(1);
        cancels.cancelled(2);
        cancels.answered_at(5, 2, false);
        cancels.forget(1);
        // The answer about the first operation comes when the second is cancelled as well.
        cancels.cancelled(1);
        cancels.answered_at(6, 1, true);
        cancels.answered_at(7, 1, false);
        let mut due = Vec::new();
        cancels.for_each_due_at(7 + FIRST, |token| due.push(token));
        assert_eq!(due, [2, 1]);
        // An answer after the completion has no effect.
        cancels.forget(1);
        cancels.forget(2);
        cancels.answered_at(8, 2, false);
        assert_eq!(cancels.next(), None);
    }

    /// Counts work, not time.
    #[test]
    fn many_cancels_together_take_constant_time_each() {
        const MANY: usize = 100_000;
        let mut cancels = Cancels::default();
        for token in 0..MANY as u64 {
            cancels.cancelled(token);
        }
        for token in 0..MANY as u64 {
            cancels.answered_at(token, token, token % 2 == 0);
        }
        let mut again = Vec::new();
        // They complete in any order; in between, the carrier asks for the next time.
        for round in 0..MANY as u64 {
            if let Some(next) = cancels.next().filter(|_| round % 64 == 0) {
                cancels.for_each_due_at(next, |token| again.push(token));
                for token in again.drain(..) {
                    cancels.answered_at(next, token, false);
                }
            }
            cancels.forget(round * 7919 % MANY as u64);
        }
        assert_eq!(cancels.next(), None);
        assert!(cancels.queues.iter().all(VecDeque::is_empty), "completed operations are kept");
        assert!(cancels.looks > 0 && cancels.looks <= 8 * MANY, "{} places", cancels.looks);
    }
}
