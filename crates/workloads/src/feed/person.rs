//! A person who has to be fed.

use std::hint::black_box;

/// A person: how much of each nutrient is needed, and how much was eaten.
#[derive(Clone, Copy, Debug)]
pub(super) struct Person {
    need: u64,
    iron: u64,
    calcium: u64,
    fiber: u64,
}

impl Person {
    pub(super) fn new(need: u64) -> Person {
        Person { need, iron: 0, calcium: 0, fiber: 0 }
    }

    pub(super) fn is_satisfied(&self) -> bool {
        [self.iron, self.calcium, self.fiber] == [self.need; 3]
    }

    fn bite(&mut self) {
        self.iron += 1;
        self.calcium += 1;
        self.fiber += 1;
        // Without this, the compiler makes one addition of a whole meal.
        black_box(self);
    }

    /// Eats until satisfied; `pause` is called after each bite.
    pub(super) fn eat(&mut self, mut pause: impl FnMut()) {
        while !self.is_satisfied() {
            self.bite();
            pause();
        }
    }

    pub(super) fn eaten(&self) -> u64 {
        self.iron + self.calcium + self.fiber
    }
}
