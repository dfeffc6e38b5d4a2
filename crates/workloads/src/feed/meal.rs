//! A meal: how many people eat how much, and how their units are spread.

use crate::answer::Round;
use crate::named;

named! {
    /// How the units are spread.
    pub enum How as "way" {
        /// One unit a person: the kernel's threads on all cores; fibers, tasks and the like all on
        /// one thread, as in the published experiment.
        Units = "units",
        /// Fibers over a few threads.
        Hybrid = "hybrid",
        /// A few processes, each with fibers on one thread.
        Processes = "processes",
    }
}

/// One round of feeding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meal {
    /// People to feed.
    pub(crate) people: u64,
    /// Bites that each person needs.
    pub(crate) nutrients: u64,
    /// Whether a unit yields after every bite.
    pub(crate) yields: bool,
    pub(crate) how: How,
    /// Threads or processes to spread the units over.
    pub(crate) workers: u64,
}

impl Meal {
    /// Switches the units are asked to make.
    pub(crate) fn switches_asked(&self) -> u64 {
        if self.yields { self.people * self.nutrients } else { 0 }
    }

    /// What all people together eat: three nutrients a bite.
    #[cfg(test)]
    pub(super) fn eaten(&self) -> u64 {
        3 * self.people * self.nutrients
    }

    /// The workers' shares of the people, as even as possible.
    pub(super) fn shares(&self) -> Vec<Meal> {
        let workers = self.workers.clamp(1, self.people.max(1));
        let share = |at| self.people / workers + u64::from(at < self.people % workers);
        (0..workers).map(|at| Meal { people: share(at), ..*self }).collect()
    }
}

/// The result of a meal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fed {
    /// From the creation of the first unit until the last person is satisfied.
    pub(crate) times: Round,
    /// Switches that happened.
    pub(crate) switches_made: u64,
    /// What all people have eaten, added up after the round.
    pub(crate) eaten: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_dealt_out_evenly_and_none_is_lost() {
        let meal = |people, workers| Meal {
            people,
            nutrients: 1,
            yields: false,
            how: How::Processes,
            workers,
        };
        let dealt = |people, workers| {
            meal(people, workers).shares().iter().map(|share| share.people).collect::<Vec<_>>()
        };
        assert_eq!(dealt(7, 3), [3, 2, 2]);
        assert_eq!(dealt(2, 5), [1, 1]);
        assert_eq!(dealt(4, 0), [4]);
    }
}
