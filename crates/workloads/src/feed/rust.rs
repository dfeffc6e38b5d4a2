//! Feeding by coroutines, carefree's fibers and `std::thread`, in this process.

use std::thread;
use std::time::Instant;

use carefree::{CoroutineScope, CoroutineState, Runtime, StackSize, Suspender, coroutine_scope};

use super::meal::{Fed, How, Meal};
use super::person::Person;
use crate::answer::{Failure, Round};
use crate::sys::{self, UsageWho};
use crate::unit::threads::{Fibers, Kernel, Threads};
use crate::unit::{Unit, fiber, ns};

pub(super) fn serve(unit: Unit, meal: &Meal) -> Result<Fed, Failure> {
    match unit {
        Unit::Coroutine => timed(|| by_coroutines(meal)),
        Unit::Thread => {
            let before = sys::usage(UsageWho::RUSAGE_SELF);
            let fed = timed(|| by::<Kernel>(meal))?;
            let used = sys::usage(UsageWho::RUSAGE_SELF) - before;
            let made = (used.voluntary + used.involuntary).min(meal.switches_asked());
            Ok(Fed { switches_made: made, ..fed })
        }
        Unit::Fiber => {
            let carriers = if meal.how == How::Hybrid { meal.workers.max(1) } else { 1 };
            // Before the clock, as the other runtimes start theirs with the process.
            let runtime = Runtime::builder()
                .carriers(usize::try_from(carriers).unwrap_or(usize::MAX))
                .build()
                .map_err(|error| Failure::new(format!("carriers could not be started: {error}")))?;
            runtime.run(|| {
                let before = carefree::metrics();
                let fed = timed(|| by::<Fibers>(meal))?;
                let made = fiber::proven(before, carefree::metrics(), 0);
                let made = made.min(meal.switches_asked());
                Ok(Fed { switches_made: made, ..fed })
            })
        }
    }
}

/// The switches, where the units count them themselves, and the people after the meal.
type Done = (u64, Vec<Person>);

fn timed(feed: impl FnOnce() -> Result<Done, Failure>) -> Result<Fed, Failure> {
    let start = Instant::now();
    let (switches_made, people) = feed()?;
    let times = Round { create_ns: 0, run_ns: ns(start.elapsed()) };
    if !people.iter().all(Person::is_satisfied) {
        return Err(Failure::new("some people were not fed"));
    }
    let eaten = people.iter().map(Person::eaten).sum();
    Ok(Fed { times, switches_made, eaten })
}

fn by<U: Threads>(meal: &Meal) -> Result<Done, Failure> {
    let Meal { people, nutrients, yields, .. } = *meal;
    Ok((0, U::crowd(people, move || fed(nutrients, yields, U::yield_now))?))
}

fn fed(nutrients: u64, yields: bool, pause: fn()) -> Person {
    let mut person = Person::new(nutrients);
    if yields {
        person.eat(pause);
    } else {
        person.eat(|| ());
    }
    person
}

/// Over threads, each thread resumes a share of its own: a coroutine stays on the thread that first
/// resumed it.
fn by_coroutines(meal: &Meal) -> Result<Done, Failure> {
    if meal.how == How::Units {
        return resumed(meal);
    }
    let mut all = (0, Vec::with_capacity(capacity(meal)));
    let done = thread::scope(|scope| {
        let spawn = |share| scope.spawn(move || resumed(&share));
        let threads: Vec<_> = meal.shares().into_iter().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for share in done {
        let (switches, people) = share.map_err(|_| Failure::new("a thread panicked"))??;
        all.0 += switches;
        all.1.extend(people);
    }
    Ok(all)
}

fn resumed(meal: &Meal) -> Result<Done, Failure> {
    // SAFETY: the coroutines suspend within no call that sets a thread-local variable.
    unsafe { coroutine_scope(|scope| resumed_in(scope, meal)) }
}

fn resumed_in(scope: &CoroutineScope<'_>, meal: &Meal) -> Result<Done, Failure> {
    let Meal { nutrients, yields, .. } = *meal;
    let mut hungry = Vec::with_capacity(capacity(meal));
    for reached in 0..meal.people {
        let coroutine = scope.coroutine_with_stack_size(
            StackSize::DEFAULT,
            move |suspender: &Suspender<(), ()>, ()| {
                let mut person = Person::new(nutrients);
                if yields {
                    person.eat(|| suspender.suspend(()));
                } else {
                    person.eat(|| ());
                }
                person
            },
        );
        hungry.push(coroutine.map_err(|error| {
            Failure::new(format!(
                "coroutine {} of {} could not be made: {error}",
                reached + 1,
                meal.people
            ))
        })?);
    }
    let mut switches = 0;
    let mut people = Vec::with_capacity(capacity(meal));
    while !hungry.is_empty() {
        hungry.retain_mut(|coroutine| match coroutine.resume(()) {
            CoroutineState::Yielded(()) => {
                switches += 1;
                true
            }
            CoroutineState::Complete(person) => {
                people.push(person);
                false
            }
        });
    }
    Ok((switches, people))
}

fn capacity(meal: &Meal) -> usize {
    usize::try_from(meal.people).unwrap_or(0)
}
