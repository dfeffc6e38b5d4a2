//! Symmetric transfer: which coroutine runs, which handle belongs to which, which value goes where.

mod owned;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use carefree_context::coroutine::{Coroutine, CoroutineState, SymmetricSuspender};
use owned::{owned, symmetric};

use CoroutineState::{Complete, Yielded};

type Log = Rc<RefCell<Vec<String>>>;

struct Guard(Log, &'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.borrow_mut().push(format!("drop {}", self.1));
    }
}

/// A number that two coroutines pass to each other, with the handle of the sender.
struct Ball {
    number: u64,
    from: Option<Player>,
}

type Player = Coroutine<Ball, u64, u64>;

impl Ball {
    fn new(number: u64, from: Option<Player>) -> Ball {
        Ball { number, from }
    }
}

/// Strikes until the number reaches `limit`, then yields it.
fn player(limit: u64) -> Player {
    symmetric(move |me, mut ball: Ball| {
        loop {
            let number = ball.number + 1;
            ball = match ball.from.take() {
                Some(other) if number < limit => {
                    me.transfer(other, move |me| Ball::new(number, Some(me)))
                }
                Some(other) => {
                    let mut next = me.suspend(number);
                    next.from = Some(other);
                    next
                }
                None => return number,
            };
        }
    })
}

#[test]
fn two_pass_control_to_and_fro() {
    let mut game = player(100);
    let first = Ball::new(0, Some(player(100)));
    assert!(matches!(game.resume(first), Yielded(100)));
    // The handle is that of the player that yielded, which continues with the same partner.
    for start in [0, 10, 50] {
        assert!(matches!(game.resume(Ball::new(start, None)), Yielded(100)));
    }
}

#[test]
fn no_stack_grows() {
    const STROKES: u64 = 1_000_000;
    let mut game = player(STROKES);
    assert!(matches!(game.resume(Ball::new(0, Some(player(STROKES)))), Yielded(STROKES)));
}

#[test]
fn the_target_takes_the_place_at_the_resumer() {
    let log = Log::default();
    let target_log = log.clone();
    let target = owned::<&str, String, &str>(move |suspender, first| {
        target_log.borrow_mut().push(format!("target got {first}"));
        let second = suspender.suspend(format!("yield for {first}"));
        target_log.borrow_mut().push(format!("target got {second}"));
        "target's return"
    });
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let source_log = log.clone();
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<&str, String, &str>, first| {
        source_log.borrow_mut().push(format!("source got {first}"));
        let later = suspender.transfer(target, move |me| {
            *keep.borrow_mut() = Some(me);
            "the transfer"
        });
        source_log.borrow_mut().push(format!("source got {later}"));
        "source's return"
    });
    assert_eq!(handle.resume("one"), Yielded("yield for the transfer".to_string()));
    assert!(!handle.is_done());
    assert_eq!(handle.resume("two"), Complete("target's return"));
    assert!(handle.is_done(), "it is the target's handle");

    let mut source = kept.borrow_mut().take().expect("the source was kept");
    assert!(!source.is_done());
    assert_eq!(source.resume("three"), Complete("source's return"));
    assert_eq!(
        log.take(),
        ["source got one", "target got the transfer", "target got two", "source got three"]
    );
}

#[test]
fn a_ring_takes_turns_through_a_shared_queue() {
    type Member = Coroutine<(), u32, ()>;
    let queue: Rc<RefCell<VecDeque<Member>>> = Rc::default();
    let log: Rc<RefCell<Vec<(u32, u32)>>> = Rc::default();
    for name in 1..=4_u32 {
        let (queue_inside, log) = (queue.clone(), log.clone());
        let member = symmetric(move |suspender: &SymmetricSuspender<(), u32, ()>, ()| {
            for round in 0..3 {
                log.borrow_mut().push((round, name));
                let next = queue_inside.borrow_mut().pop_front();
                if let Some(next) = next {
                    let queue = queue_inside.clone();
                    suspender.transfer(next, move |me| queue.borrow_mut().push_back(me));
                }
            }
            suspender.suspend(name);
        });
        queue.borrow_mut().push_back(member);
    }
    let mut done = Vec::new();
    loop {
        let Some(mut member) = queue.borrow_mut().pop_front() else { break };
        while let Yielded(name) = member.resume(()) {
            done.push(name);
        }
        assert!(member.is_done());
    }
    assert_eq!(done, [1, 2, 3, 4]);
    let mut expected = Vec::new();
    for round in 0..3 {
        expected.extend((1..=4).map(|name| (round, name)));
    }
    assert_eq!(*log.borrow(), expected);
}

#[test]
fn what_hand_over_does_not_keep_is_unwound() {
    let log = Log::default();
    let (inside, outside) = (log.clone(), log.clone());
    let target = owned::<u32, u32, ()>(|suspender, first| {
        suspender.suspend(first);
    });
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<u32, u32, ()>, _| {
        let _guard = Guard(inside.clone(), "source's local");
        suspender.transfer(target, move |me| {
            outside.borrow_mut().push("in hand_over".to_string());
            drop(me);
            outside.borrow_mut().push("dropped".to_string());
            5
        });
        unreachable!("it was dropped");
    });
    assert_eq!(handle.resume(0), Yielded(5));
    assert_eq!(log.take(), ["in hand_over", "drop source's local", "dropped"]);
    assert_eq!(handle.resume(0), Complete(()));
}

#[test]
fn hand_over_may_resume_the_sender_at_once() {
    let target = owned::<u32, u32, u32>(|suspender, first| suspender.suspend(first));
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<u32, u32, u32>, _| {
        // Runs nested in the target, which is receiving its input.
        let nested = suspender.transfer(target, |mut me| match me.resume(7) {
            Complete(value) => value,
            Yielded(_) => unreachable!(),
        });
        nested * 6
    });
    assert_eq!(handle.resume(0), Yielded(42));
    assert_eq!(handle.resume(1), Complete(1));
}

#[test]
fn a_panic_in_hand_over_is_the_targets() {
    let log = Log::default();
    let (source_log, target_log) = (log.clone(), log.clone());
    let mut target = owned::<(), (), ()>(move |suspender, ()| {
        let caught = catch_unwind(AssertUnwindSafe(|| suspender.suspend(()))).unwrap_err();
        target_log.borrow_mut().push(format!("target caught {}", caught.is::<&str>()));
        suspender.suspend(());
    });
    assert_eq!(target.resume(()), Yielded(()));
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<(), (), ()>, ()| {
        let _guard = Guard(source_log, "source's local");
        suspender.transfer(target, |_me| resume_unwind(Box::new("no")));
    });
    assert_eq!(handle.resume(()), Yielded(()));
    assert_eq!(log.take(), ["drop source's local", "target caught true"]);

    // The same with a target that has not started: it ends by the panic.
    let never_runs = owned::<(), (), ()>(|_, ()| unreachable!("it has no input"));
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<(), (), ()>, ()| {
        suspender.transfer(never_runs, |_me| resume_unwind(Box::new("no")));
    });
    let payload = catch_unwind(AssertUnwindSafe(|| handle.resume(()))).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"no"));
    assert!(handle.is_done());
}

#[test]
fn a_targets_panic_reaches_the_resumer() {
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let target = owned::<(), (), u8>(|_, ()| resume_unwind(Box::new("target")));
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<(), (), u8>, ()| {
        suspender.transfer(target, move |me| *keep.borrow_mut() = Some(me));
        9
    });
    let payload = catch_unwind(AssertUnwindSafe(|| handle.resume(()))).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"target"));
    assert!(handle.is_done());
    let mut source = kept.borrow_mut().take().unwrap();
    assert_eq!(source.resume(()), Complete(9));
}

#[test]
fn a_completed_target_is_refused() {
    let mut handle = symmetric(|suspender: &SymmetricSuspender<(), (), ()>, ()| {
        let mut done = owned::<(), (), ()>(|_, ()| ());
        done.resume(());
        suspender.transfer(done, |_me| unreachable!("it is refused first"));
    });
    let payload = catch_unwind(AssertUnwindSafe(|| handle.resume(()))).unwrap_err();
    assert_eq!(
        payload.downcast_ref::<&str>(),
        Some(&"a coroutine transferred to one that had completed: ask is_done() first")
    );
}

#[test]
fn dropping_the_handle_unwinds_the_chain() {
    let log = Log::default();
    // Each owns the coroutine that transferred to it.
    fn link(log: Log, name: &'static str, next: Option<Player>) -> Player {
        symmetric(move |me, ball: Ball| {
            let _guard = Guard(log, name);
            let _owned = ball.from;
            match next {
                Some(next) => drop(me.transfer(next, |me| Ball::new(0, Some(me)))),
                None => drop(me.suspend(1)),
            }
            unreachable!("the chain is dropped");
        })
    }
    let last = link(log.clone(), "last", None);
    let middle = link(log.clone(), "middle", Some(last));
    let mut handle = link(log.clone(), "first", Some(middle));
    assert!(matches!(handle.resume(Ball::new(0, None)), Yielded(1)));
    assert!(log.borrow().is_empty());
    drop(handle);
    // The handle is the last one's. `_owned` is dropped before `_guard`, being declared later.
    assert_eq!(log.take(), ["drop first", "drop middle", "drop last"]);
}

#[test]
fn one_that_is_being_dropped_cannot_transfer() {
    let log = Log::default();
    let inside = log.clone();
    let target_guard = Guard(log.clone(), "target's closure");
    let mut handle = symmetric(move |suspender: &SymmetricSuspender<(), (), ()>, ()| {
        let target = owned::<(), (), ()>(move |_, ()| drop(target_guard));
        let caught = catch_unwind(AssertUnwindSafe(|| suspender.suspend(())));
        inside.borrow_mut().push(format!("caught {}", caught.is_err()));
        suspender.transfer(target, |_me| unreachable!("it is being dropped"));
        unreachable!("it is being dropped");
    });
    handle.resume(());
    drop(handle);
    assert_eq!(log.take(), ["caught true", "drop target's closure"]);
}

#[test]
fn a_transfer_inside_a_nested_resume_stays_inside() {
    let outer_target = Rc::new(RefCell::new(None));
    let keep = outer_target.clone();
    let mut outer = owned::<(), u32, u32>(move |suspender, ()| {
        let target = owned::<(), u32, u32>(|suspender, ()| {
            suspender.suspend(10);
            20
        });
        let mut inner = symmetric(move |suspender: &SymmetricSuspender<(), u32, u32>, ()| {
            suspender.transfer(target, move |me| *keep.borrow_mut() = Some(me));
            30
        });
        let Yielded(value) = inner.resume(()) else { unreachable!() };
        suspender.suspend(value + 1);
        let Complete(value) = inner.resume(()) else { unreachable!() };
        value + 1
    });
    assert_eq!(outer.resume(()), Yielded(11));
    assert_eq!(outer.resume(()), Complete(21));
    let mut inner = outer_target.borrow_mut().take().unwrap();
    assert_eq!(inner.resume(()), Complete(30));
}

#[test]
fn a_panicking_resumer_may_use_transfers() {
    struct Finally<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Finally<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let mut scores = Vec::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _finally = Finally(|| {
            let mut game = player(10);
            if let Yielded(score) = game.resume(Ball::new(0, Some(player(10)))) {
                scores.push(score);
            }
        });
        resume_unwind(Box::new(()));
    }));
    assert!(result.is_err());
    assert!(!std::thread::panicking());
    assert_eq!(scores, [10]);
}
