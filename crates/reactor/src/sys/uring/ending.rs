//! Operations that are to end: asked for again until they have.
//!
//! The kernel finds an operation to cancel where it waits, or in the hands of a thread of the
//! kernel's. In between it is in neither place: one whose socket has just become ready is queued to
//! be tried once more, and should another reader be faster, goes back to wait. A cancel that comes
//! meanwhile finds nothing, and says no more than what it says of an operation that is done. So an
//! operation whose cancel has missed, and whose completion has not come in a while, is cancelled again:
//! at once, as a rule, and ever more rarely, for some cannot be cut short (a disk is being read).
//!
//! *None is forgotten.* From when it is to end until its completion, an operation has a cancel that the
//! kernel has still to answer, or a time at which it is cancelled again. A token can be used again while
//! the answer about its last operation is under way. Taken for an answer about the next one, it only
//! sets the time, which that one's own answer, coming later, sets anew.
//!
//! # Many at once
//!
//! A hundred thousand operations may end together, as when a limit is the same for all. There are few
//! spans between two times, each twice the one before; so there is a queue for each span, in which
//! operations stand in the order of their times, without sorting. One that completes is forgotten by
//! taking it out of the table alone: its place in a queue is passed over when it comes to the front.
//! So each step takes constant time, but for as many places as are passed over, each once.

use std::collections::{HashMap, VecDeque};

use crate::clock;

/// Nanoseconds from a cancel that has missed until the next one.
const FIRST: u64 = 10_000;
/// The most between two of them.
const LONGEST: u64 = 100_000_000;
/// Spans: [`FIRST`], doubled until it is [`LONGEST`].
const SPANS: usize = (LONGEST / FIRST).ilog2() as usize + 2;

#[derive(Debug, Default)]
pub(super) struct Ending {
    /// By token.
    operations: HashMap<u64, One>,
    /// By span: when operations are to be cancelled again, in the order of their times.
    queues: [VecDeque<Place>; SPANS],
    /// Places given so far.
    places: u64,
    /// Places looked at, for the test that counts them.
    #[cfg(test)]
    looks: usize,
}

#[derive(Debug)]
struct One {
    /// The number of its place in a queue; 0 while the kernel has still to answer.
    place: u64,
    /// The span it is left alone for when the next cancel misses.
    span: usize,
}

#[derive(Debug)]
struct Place {
    token: u64,
    /// The place is the operation's as long as the table says so.
    number: u64,
    /// When it is to be cancelled again.
    again: u64,
}

impl Ending {
    /// The operation `token`, if it is under way, is to end: the kernel is asked for the first time.
    pub(super) fn cancelled(&mut self, token: u64) {
        self.operations.insert(token, One { place: 0, span: 0 });
    }

    /// The kernel's answer to a cancel: whether it has found the operation, whose completion comes then.
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

    /// The operation `token` has completed, or begins.
    #[inline]
    pub(super) fn forget(&mut self, token: u64) {
        if !self.operations.is_empty() {
            self.operations.remove(&token);
            if self.operations.is_empty() {
                self.clear();
            }
        }
    }

    /// No operation is under way.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.operations.clear();
        for queue in &mut self.queues {
            queue.clear();
        }
    }

    /// When the next one is to be cancelled again, if any is.
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.operations.is_empty() {
            return None;
        }
        (0..SPANS).filter_map(|span| self.front(span)).min()
    }

    /// When the first operation of a queue is to be cancelled again. Passes over places that are
    /// no operation's any more.
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

    /// Calls `cancel` for those whose time has come.
    #[inline]
    pub(super) fn for_each_due(&mut self, cancel: impl FnMut(u64)) {
        if !self.operations.is_empty() {
            self.for_each_due_at(clock::now(), cancel);
        }
    }

    fn for_each_due_at(&mut self, now: u64, mut cancel: impl FnMut(u64)) {
        for span in 0..SPANS {
            while self.front(span).is_some_and(|again| again <= now) {
                let place = self.queues[span].pop_front().expect("just looked at");
                self.operations.get_mut(&place.token).expect("its place").place = 0;
                cancel(place.token);
            }
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
        assert_eq!(ending.next(), None, "the kernel has not answered");
        let mut now = 1;
        let mut spans = Vec::new();
        for _ in 0..20 {
            ending.answered_at(now, 7, false);
            let next = ending.next().unwrap();
            ending.for_each_due_at(next - 1, |_| panic!("too early"));
            let mut due = Vec::new();
            ending.for_each_due_at(next, |token| due.push(token));
            assert_eq!(due, [7]);
            ending.for_each_due_at(u64::MAX, |_| panic!("the kernel has not answered"));
            spans.push(next - now);
            now = next;
        }
        assert_eq!(spans[0], FIRST);
        assert!(spans.windows(2).all(|pair| pair[1] == (2 * pair[0]).min(LONGEST)));
        assert_eq!(spans.last(), Some(&LONGEST));
        ending.answered_at(now, 7, false);
        ending.forget(7);
        assert_eq!(ending.next(), None);
    }

    #[test]
    fn what_was_found_is_left_alone_for_long() {
        let mut ending = Ending::default();
        ending.cancelled(7);
        ending.answered_at(1, 7, true);
        assert_eq!(ending.next(), Some(1 + LONGEST));
    }

    #[test]
    fn a_token_that_is_used_again_is_another_operation() {
        let mut ending = Ending::default();
        ending.cancelled(1);
        ending.cancelled(2);
        ending.answered_at(5, 2, false);
        ending.forget(1);
        // The answer about the first one comes when the second one is to end as well.
        ending.cancelled(1);
        ending.answered_at(6, 1, true);
        ending.answered_at(7, 1, false);
        let mut due = Vec::new();
        ending.for_each_due_at(7 + FIRST, |token| due.push(token));
        assert_eq!(due, [2, 1]);
        // What comes after the end is about none.
        ending.forget(1);
        ending.forget(2);
        ending.answered_at(8, 2, false);
        assert_eq!(ending.next(), None);
    }

    /// Counts work, not time.
    #[test]
    fn many_that_end_together_take_constant_time_each() {
        const MANY: usize = 100_000;
        let mut ending = Ending::default();
        for token in 0..MANY as u64 {
            ending.cancelled(token);
        }
        for token in 0..MANY as u64 {
            ending.answered_at(token, token, token % 2 == 0);
        }
        let mut again = Vec::new();
        // They complete in any order, and the carrier looks in between when the next one is due.
        for round in 0..MANY as u64 {
            if let Some(next) = ending.next().filter(|_| round % 64 == 0) {
                ending.for_each_due_at(next, |token| again.push(token));
                for token in again.drain(..) {
                    ending.answered_at(next, token, false);
                }
            }
            ending.forget(round * 7919 % MANY as u64);
        }
        assert_eq!(ending.next(), None);
        assert!(ending.queues.iter().all(VecDeque::is_empty), "what has ended is kept");
        assert!(ending.looks > 0 && ending.looks <= 8 * MANY, "{} places", ending.looks);
    }
}
