//! Carefree's coroutines, which the program resumes by hand: on one core, in turns.
//!
//! A coroutine's switch is to suspend itself and to be resumed later, which is two changes of stack
//! and one switch, as in the published figures. It waits at the gate by being left alone.

use std::time::Instant;

use carefree::{CoroutineScope, CoroutineState, ScopedCoroutine, StackSize, coroutine_scope};

use super::run::{Alive, Run, ns};
use crate::answer::{Failure, Round};

pub(super) fn run(units: u64, switches: u64, all_alive: Alive<'_>) -> Result<Run, Failure> {
    // SAFETY: the coroutines suspend within no call that sets a thread-local variable.
    unsafe { coroutine_scope(|scope| turns(scope, units, switches, all_alive)) }
}

fn turns(
    scope: &CoroutineScope<'_>,
    units: u64,
    switches: u64,
    all_alive: Alive<'_>,
) -> Result<Run, Failure> {
    let mut coroutines = Vec::with_capacity(usize::try_from(units).unwrap_or(0));
    let mut switches_made = 0;

    let start = Instant::now();
    for reached in 0..units {
        let coroutine =
            scope.coroutine_with_stack_size(StackSize::DEFAULT, move |suspender, ()| {
                for _ in 0..switches {
                    suspender.suspend(());
                }
            });
        coroutines.push(coroutine.map_err(|error| {
            Failure::new(format!("coroutine {} of {units} could not be made: {error}", reached + 1))
        })?);
    }
    let mut turn = |coroutines: &mut [ScopedCoroutine<'_, (), (), ()>]| {
        for coroutine in coroutines {
            match coroutine.resume(()) {
                CoroutineState::Yielded(()) => switches_made += 1,
                CoroutineState::Complete(()) => {}
            }
        }
    };
    // Each begins, and waits for its next turn.
    turn(&mut coroutines);
    let create_ns = ns(start.elapsed());

    all_alive();

    let start = Instant::now();
    // The last turn takes each to its end.
    for _ in 0..switches {
        turn(&mut coroutines);
    }
    drop(coroutines);
    let run_ns = ns(start.elapsed());
    Ok(Run { times: Round { create_ns, run_ns }, switches_made })
}
