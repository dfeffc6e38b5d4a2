//! The `feed` workload: people who each need so many bites, fed all at the same time.
//!
//! One person has one unit, which gives bite after bite until the person is satisfied. Done four
//! ways ([`How`]), and each with a yield at every bite and without one. The experiment this comes
//! from compared threads that never yielded with fibers that always did; here both do the same.

pub(crate) mod own;
mod person;
mod processes;
mod rust;
pub(crate) mod sweep;

use crate::named::named;
use crate::sample::{Failure, Round};
use crate::unit::Unit;

pub use sweep::Sweep;

named! {
    /// Over what the units are spread.
    pub enum How as "way" {
        /// A unit each and nothing else: the kernel's threads on all cores; fibers, tasks and the
        /// like all on one thread, as the experiment had them.
        Units = "units",
        /// Fibers over a few threads.
        Hybrid = "hybrid",
        /// A few processes, each with fibers on one thread.
        Processes = "processes",
    }
}

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meal {
    /// How many have to be fed.
    pub(crate) people: u64,
    /// Bites each of them needs.
    pub(crate) nutrients: u64,
    /// Whether a unit gives way at every bite.
    pub(crate) yields: bool,
    pub(crate) how: How,
    /// Threads or processes to spread over, where there are any.
    pub(crate) workers: u64,
}

impl Meal {
    /// Switches the units are asked to make.
    pub(crate) fn switches_asked(&self) -> u64 {
        if self.yields { self.people * self.nutrients } else { 0 }
    }

    /// What everybody has eaten when all are satisfied: with each bite some of three nutrients.
    #[cfg(test)]
    fn eaten(&self) -> u64 {
        3 * self.people * self.nutrients
    }

    /// The people are dealt out to the workers as evenly as can be.
    fn shares(&self) -> Vec<Meal> {
        let workers = self.workers.clamp(1, self.people.max(1));
        let share = |at| self.people / workers + u64::from(at < self.people % workers);
        (0..workers).map(|at| Meal { people: share(at), ..*self }).collect()
    }
}

/// What came of a meal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fed {
    /// From the first unit's creation until the last person was satisfied.
    pub(crate) times: Round,
    /// Switches that happened.
    pub(crate) switches_made: u64,
    /// What people have eaten, added up over all of them afterwards.
    pub(crate) eaten: u64,
}

/// Feeds everybody by the program's own units.
pub(crate) fn serve(unit: Unit, meal: &Meal) -> Result<Fed, Failure> {
    match meal.how {
        How::Processes => processes::serve(unit, meal),
        How::Units | How::Hybrid => rust::serve(unit, meal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::alone;

    #[test]
    fn everybody_is_fed_whoever_does_it() {
        let _alone = alone();
        for unit in Unit::ALL {
            for how in [How::Units, How::Hybrid] {
                for yields in [false, true] {
                    let meal = Meal { people: 7, nutrients: 30, yields, how, workers: 2 };
                    let fed = serve(unit, &meal).expect("a meal for seven");
                    assert_eq!(fed.eaten, meal.eaten(), "{unit} {how} {yields}");
                    assert!(fed.times.run_ns > 0);
                    assert!(fed.switches_made <= meal.switches_asked(), "{unit} {how} {yields}");
                }
            }
        }
    }

    #[test]
    fn those_on_one_thread_prove_their_switches() {
        let _alone = alone();
        let meal = Meal { people: 9, nutrients: 50, yields: true, how: How::Units, workers: 1 };
        let by = |unit| serve(unit, &meal).expect("a meal for nine").switches_made;
        // A coroutine's every yield goes to its resumer.
        assert_eq!(by(Unit::Coroutine), 450);
        // The last fiber at the table has nobody to give way to, and so it may be for some bites
        // while the others are not there yet.
        assert!((300..=450).contains(&by(Unit::Fiber)), "{}", by(Unit::Fiber));
    }

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
