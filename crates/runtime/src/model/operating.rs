//! Models of operations in flight.

use loom::thread;

use super::{World, as_fiber, bounded};
use crate::carrier::carrier::{self, Carrier};
use crate::carrier::clock::NEVER;
use crate::protocol::reason::Reason;
use crate::wait::cancel::{Interrupted, cancel};
use crate::wait::operation::{Ended, Wait, perform, perform_any};
use carefree_reactor::Op;

/// What is waited for; the model's reactor does not look at it.
const READ: Op = Op::Poll { fd: 0, events: 0 };

const FOR_EVER: Wait<'static> = Wait::until_done(Reason::Other);
/// Ends some time or other.
const TIMED: Wait<'static> = Wait { deadline: 1, ..FOR_EVER };

/// Reads one byte.
fn read(how: &Wait<'_>) -> Ended {
    // SAFETY: it points to nothing.
    unsafe { perform(&READ, how) }
}

/// How the wait for an operation is cut short.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    No,
    ByDeadline,
    ByCancel,
}

/// A fiber reads, and if it was cut short and may, reads again; a byte comes some time. `moves`: it
/// goes on at another carrier when it has waited.
fn a_byte_is_read_or_left(cut: Cut, moves: bool) {
    let world = World::default();
    let me = world.fiber();
    let first = carrier::of(me);
    if moves {
        first.moves_to(world.carrier());
    }
    let serving = thread::spawn(move || first.serve());
    let fiber = as_fiber(me, move || match cut {
        Cut::ByDeadline => read(&TIMED),
        _ => read(&FOR_EVER),
    });
    let cutting = (cut != Cut::No).then(|| {
        thread::spawn(move || match cut {
            Cut::ByCancel => cancel(me),
            _ => first.fire(),
        })
    });
    first.arrive();
    let ended = fiber.join().unwrap();
    if let Some(cutting) = cutting {
        cutting.join().unwrap();
    }
    first.end();
    serving.join().unwrap();
    let read = match ended {
        Ended::Done(1) => 1,
        Ended::Late if cut == Cut::ByDeadline => 0,
        Ended::Interrupted(Interrupted::Cancelled) if cut == Cut::ByCancel => 0,
        other => panic!("{other:?}"),
    };
    assert_eq!(first.times_read(), read, "what the fiber says, and what was taken: {ended:?}");
}

#[test]
fn a_completion_ends_the_wait() {
    bounded(3, || a_byte_is_read_or_left(Cut::No, false));
}

#[test]
fn the_completion_decides_beside_a_deadline() {
    bounded(2, || a_byte_is_read_or_left(Cut::ByDeadline, false));
}

#[test]
fn the_completion_decides_beside_a_cancellation() {
    bounded(2, || a_byte_is_read_or_left(Cut::ByCancel, false));
}

/// The fiber asks the first carrier to cancel by an errand.
#[test]
fn the_completion_decides_when_the_fiber_has_moved() {
    bounded(2, || a_byte_is_read_or_left(Cut::ByDeadline, true));
}

/// Under the same token, as a rule: nothing of the first one's reaches it.
#[test]
fn the_next_operation_is_another_one() {
    bounded(2, || {
        let world = World::default();
        let me = world.fiber();
        let first = carrier::of(me);
        let second = world.carrier();
        first.moves_to(second);
        second.moves_to(first);
        let serving = thread::spawn(move || first.serve());
        let fiber = as_fiber(me, move || {
            let early = read(&TIMED);
            // Back to the first one, where it would be cancelled.
            carrier::assign(me, first);
            assert_eq!(read(&FOR_EVER), Ended::Done(1), "after {early:?}");
            early
        });
        first.fire();
        first.arrive();
        first.arrive();
        let early = fiber.join().unwrap();
        first.end();
        serving.join().unwrap();
        assert!(matches!(early, Ended::Done(1) | Ended::Late), "{early:?}");
        assert_eq!(first.times_read(), 1 + u32::from(early != Ended::Late));
    });
}

/// Of two operations one is done, or both; what is not is left.
fn one_of_two(moves: bool) {
    let world = World::default();
    let me = world.fiber();
    let first: &'static Carrier = carrier::of(me);
    if moves {
        first.moves_to(world.carrier());
    }
    let serving = thread::spawn(move || first.serve());
    let fiber = as_fiber(me, move || {
        let mut results = Vec::new();
        // SAFETY: they point to nothing.
        let ended = unsafe { perform_any(&[READ, READ], &FOR_EVER, &mut results) };
        (ended, results)
    });
    first.arrive();
    first.arrive();
    let (ended, results) = fiber.join().unwrap();
    first.end();
    serving.join().unwrap();
    let read = results.iter().flatten().count();
    assert_eq!(results.len(), 2);
    assert_eq!(ended, Ended::Done(read as i32));
    assert!(read >= 1);
    assert_eq!(first.times_read() as usize, read, "what the fiber says, and what was taken");
}

#[test]
fn the_others_of_several_are_left() {
    bounded(2, || one_of_two(false));
}

#[test]
fn the_others_of_several_are_left_when_the_fiber_has_moved() {
    bounded(2, || one_of_two(true));
}

/// One that waits for nothing any more leaves what it would have read.
#[test]
fn a_pointless_wait_takes_nothing() {
    use crate::protocol::sync::{AtomicBool, Ordering};
    bounded(2, || {
        let world = World::default();
        let me = world.fiber();
        let first = carrier::of(me);
        let gone = loom::sync::Arc::new(AtomicBool::new(false));
        let theirs = gone.clone();
        let serving = thread::spawn(move || first.serve());
        let fiber = as_fiber(me, move || {
            let holds = || !theirs.fetch_or(false, Ordering::AcqRel);
            read(&Wait { reason: Reason::Other, deadline: NEVER, holds: &holds, unheld: false })
        });
        let ending = thread::spawn(move || {
            gone.swap(true, Ordering::AcqRel);
            crate::carrier::wake::wake_completed(me);
        });
        first.arrive();
        let ended = fiber.join().unwrap();
        ending.join().unwrap();
        first.end();
        serving.join().unwrap();
        assert!(matches!(ended, Ended::Done(1) | Ended::Pointless), "{ended:?}");
        assert_eq!(first.times_read(), u32::from(ended != Ended::Pointless));
    });
}

/// Nothing comes but the end of what was waited for, at any time.
#[test]
fn a_wait_ends_that_becomes_pointless() {
    use crate::protocol::sync::{AtomicBool, Ordering};
    bounded(2, || {
        let world = World::default();
        let me = world.fiber();
        let first = carrier::of(me);
        let gone = loom::sync::Arc::new(AtomicBool::new(false));
        let theirs = gone.clone();
        let serving = thread::spawn(move || first.serve());
        let fiber = as_fiber(me, move || {
            let holds = || !theirs.fetch_or(false, Ordering::AcqRel);
            read(&Wait { reason: Reason::Other, deadline: NEVER, holds: &holds, unheld: false })
        });
        gone.swap(true, Ordering::AcqRel);
        crate::carrier::wake::wake_completed(me);
        assert_eq!(fiber.join().unwrap(), Ended::Pointless);
        first.end();
        serving.join().unwrap();
    });
}

/// Nothing comes but a cancellation: the operation is cancelled where it is under way.
fn nothing_is_left_under_way(moves: bool) {
    let world = World::default();
    let me = world.fiber();
    let first = carrier::of(me);
    if moves {
        first.moves_to(world.carrier());
    }
    let serving = thread::spawn(move || first.serve());
    let fiber = as_fiber(me, move || read(&FOR_EVER));
    cancel(me);
    assert_eq!(fiber.join().unwrap(), Ended::Interrupted(Interrupted::Cancelled));
    first.end();
    serving.join().unwrap();
}

#[test]
fn what_never_completes_is_cancelled() {
    bounded(2, || nothing_is_left_under_way(false));
}

#[test]
fn what_never_completes_is_cancelled_when_the_fiber_has_moved() {
    bounded(2, || nothing_is_left_under_way(true));
}
