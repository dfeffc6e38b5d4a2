//! The `feed` workload: people who each need a number of bites, all fed at the same time.
//!
//! Each person has a unit, which gives bite after bite until the person is satisfied. It is done in
//! several ways ([`How`]), each with a yield after every bite and without. The published experiment
//! compared threads that never yielded with fibers that always did; here both do the same.

mod meal;
pub(crate) mod own;
mod person;
mod processes;
mod rust;

use crate::answer::Failure;
use crate::unit::Unit;

pub use meal::How;
pub(crate) use meal::{Fed, Meal};

/// Feeds all people by the program's own units.
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
    fn every_unit_feeds_all_people_in_every_way() {
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
        // The last fiber has no other to yield to, and the first ones may have none for some bites
        // until the others have started.
        assert!((300..=450).contains(&by(Unit::Fiber)), "{}", by(Unit::Fiber));
    }
}
