//! Operations that are to end: asked for again until they have.
//!
//! The kernel finds an operation to cancel where it waits, or in the hands of a thread of the
//! kernel's. In between it is in neither place: one whose socket has just become ready is queued to
//! be tried once more, and should another reader be faster, goes back to wait. A cancel that comes
//! meanwhile finds nothing, and says no more than what it says of an operation that is done. So an
//! operation whose completion has not come in a while is cancelled again: at once, as a rule, and
//! ever more rarely, for some cannot be cut short (a disk is being read).

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

/// Nanoseconds until an operation is cancelled for the second time.
const FIRST: u64 = 10_000;
/// The most between two times.
const LONGEST: u64 = 100_000_000;
/// Spans: [`FIRST`], doubled until it is [`LONGEST`].
const SPANS: usize = (LONGEST / FIRST).ilog2() as usize + 2;

#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Which place in a queue is whose, by token.
    operations: HashMap<u64, u64>,
    /// By span: operations that were left alone for that long the last time, in the order of their times.
    queues: [VecDeque<Place>; SPANS],
    /// Places given so far.
    places: u64,
    /// Places looked at, for the test that counts them.
    #[cfg(test)]
    looks: usize,
}

#[derive(Debug)]
struct Place {
    token: u64,
    /// The place is the operation's as long as the table says so.
    number: u64,
    /// When it is to be cancelled again.
    again: u64,
}

/// How long an operation is left alone, by the number of the span.
fn span(number: usize) -> u64 {
    (FIRST << number).min(LONGEST)
}

impl Ending {
    /// The operation `token`, if it is under way, has been cancelled.
    pub(super) fn cancelled(&mut self, token: u64) {
        self.queue(token, 0, clock::now());
    }

    fn queue(&mut self, token: u64, number: usize, now: u64) {
        self.places += 1;
        self.operations.insert(token, self.places);
        let place = Place { token, number: self.places, again: now + span(number) };
        self.queues[number].push_back(place);
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
        (0..SPANS).filter_map(|number| self.front(number)).min()
    }

    /// When the first operation of a queue is to be cancelled again. Passes over places that are
    /// nobody's any more.
    fn front(&mut self, number: usize) -> Option<u64> {
        loop {
            let place = self.queues[number].front()?;
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if self.operations.get(&place.token) == Some(&place.number) {
                return Some(place.again);
            }
            self.queues[number].pop_front();
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
        for number in 0..SPANS {
            while self.front(number).is_some_and(|again| again <= now) {
                let place = self.queues[number].pop_front().expect("just looked at");
                self.queue(place.token, (number + 1).min(SPANS - 1), now);
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

    /// Counts work, not time.
    #[test]
    fn many_that_end_together_take_constant_time_each() {
        const MANY: usize = 100_000;
        let mut ending = Ending::default();
        for token in 0..MANY as u64 {
            ending.cancelled(token);
        }
        let mut again = 0;
        // They complete in any order, and the carrier looks in between when the next one is due.
        for round in 0..MANY as u64 {
            if let Some(next) = ending.next().filter(|_| round % 64 == 0) {
                ending.for_each_due_at(next, |_| again += 1);
            }
            ending.forget(round * 7919 % MANY as u64);
        }
        assert_eq!(ending.next(), None);
        assert!(ending.queues.iter().all(VecDeque::is_empty), "what has ended is kept");
        assert!(again > 0 && ending.looks <= 8 * MANY, "{} places looked at", ending.looks);
    }

    #[test]
    fn a_token_that_is_used_again_is_another_operation() {
        let mut ending = Ending::default();
        ending.cancelled(1);
        ending.cancelled(2);
        ending.forget(1);
        ending.cancelled(1);
        let mut due = Vec::new();
        ending.for_each_due_at(clock::now() + FIRST, |token| due.push(token));
        assert_eq!(due, [2, 1]);
    }
}
