//! A line of operations that wait for the same event.

use std::collections::VecDeque;

/// Operations by place and token, in the order of their places.
///
/// A cancelled operation leaves a vacant place. Closing the gap would move all operations on one
/// side of it: a hundred thousand that are cancelled together, in any order, would be moved
/// billions of times. Vacant places are skipped at the front, and removed when they are more than
/// half of the line. The caller tells which places are vacant (`stands`).
#[derive(Debug, Default)]
pub(super) struct Line {
    members: VecDeque<(u64, u64)>,
    /// The number of vacant places.
    gone: usize,
}

impl Line {
    /// Adds the operation `token` at the end.
    pub(super) fn join(&mut self, place: u64, token: u64) {
        self.members.push_back((place, token));
    }

    /// Whether there is no operation in the line.
    pub(super) fn is_empty(&self) -> bool {
        self.members.len() == self.gone
    }

    /// All places, also vacant ones.
    pub(super) fn places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.members.iter().copied()
    }

    /// Notes that an operation has left, for which `stands` already returns false.
    pub(super) fn left(&mut self, stands: impl Fn(u64, u64) -> bool) {
        self.gone += 1;
        if 2 * self.gone > self.members.len() {
            self.retain(stands);
        }
    }

    /// The first operation.
    pub(super) fn front(&mut self, stands: impl Fn(u64, u64) -> bool) -> Option<u64> {
        while let Some(&(place, token)) = self.members.front() {
            if stands(place, token) {
                return Some(token);
            }
            self.members.pop_front();
            self.gone -= 1;
        }
        None
    }

    /// Removes the [first](Self::front) operation, which is done.
    pub(super) fn served(&mut self) {
        self.members.pop_front();
    }

    /// Keeps the operations for which `stays` returns true, which it must not for vacant places.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(u64, u64) -> bool) {
        self.members.retain(|&(place, token)| stays(place, token));
        self.gone = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn remaining_operations_are_served_in_order() {
        let mut line = Line::default();
        for place in 0..10 {
            line.join(place, 100 + place);
        }
        let here = RefCell::new((0..10).map(|place| place % 3 != 0).collect::<Vec<_>>());
        let stands = |place: u64, _: u64| here.borrow()[place as usize];
        for _ in 0..4 {
            line.left(stands);
        }
        let mut served = Vec::new();
        while let Some(token) = line.front(stands) {
            here.borrow_mut()[token as usize - 100] = false;
            line.served();
            served.push(token - 100);
        }
        assert_eq!(served, [1, 2, 4, 5, 7, 8]);
        assert!(line.is_empty());
    }

    /// Counts work, not time.
    #[test]
    fn many_that_leave_in_any_order_take_constant_time_each() {
        const MANY: usize = 100_000;
        let mut line = Line::default();
        let here = RefCell::new(vec![true; MANY]);
        let looks = Cell::new(0);
        let stands = |place: u64, _: u64| {
            looks.set(looks.get() + 1);
            here.borrow()[place as usize]
        };
        for place in 0..MANY as u64 {
            line.join(place, place);
        }
        for round in 0..MANY {
            here.borrow_mut()[round * 7919 % MANY] = false;
            line.left(stands);
        }
        assert!(line.is_empty() && line.members.is_empty());
        assert!(looks.get() <= 4 * MANY, "{} places looked at", looks.get());
    }
}
