//! A coroutine's limits and shields are in force while it runs, and not while it is suspended.

use std::any::Any;
use std::time::{Duration, Instant};

use carefree_context::{Coroutine, CoroutineState, Suspender, SymmetricSuspender};
use carefree_runtime::{TimedOut, check, run, shield, sleep, timeout};

use crate::common::{FOREVER, within_reason};

const SHORT: Duration = Duration::from_millis(5);

fn coroutine<R: 'static>(
    body: impl FnOnce(&Suspender<(), ()>) -> R + 'static,
) -> Coroutine<(), (), R> {
    // SAFETY: the tests run each coroutine to its end on the thread or fiber that makes it, and suspend it
    // within Carefree's own calls alone.
    unsafe { Coroutine::new(|suspender: &Suspender<(), ()>, ()| body(suspender)) }
}

/// On a fiber and on a plain thread.
fn on_both(f: fn()) {
    within_reason(move || run(f));
    within_reason(f);
}

#[test]
fn the_limit_of_a_suspended_coroutine_is_not_its_resumers() {
    on_both(|| {
        let mut limited = coroutine(|suspender| {
            timeout(SHORT, || {
                suspender.suspend(());
                let begun = Instant::now();
                sleep(FOREVER);
                begun.elapsed()
            })
        });
        assert!(matches!(limited.resume(()), CoroutineState::Yielded(())));
        let begun = Instant::now();
        sleep(4 * SHORT);
        assert!(begun.elapsed() >= 4 * SHORT, "cut short by the coroutine's limit");
        check().unwrap();
        // It is in force again within the coroutine, and nowhere else.
        assert!(matches!(limited.resume(()), CoroutineState::Complete(Err(TimedOut))));
        check().unwrap();
    });
}

#[test]
fn the_shield_of_a_suspended_coroutine_is_not_its_resumers() {
    on_both(|| {
        let mut shielded = coroutine(|suspender| {
            shield(|| {
                suspender.suspend(());
                check()
            })
        });
        let cut = timeout(SHORT, || {
            assert!(matches!(shielded.resume(()), CoroutineState::Yielded(())));
            sleep(FOREVER);
            assert!(check().is_err());
            // The shield also defers the resumer's limit.
            assert!(matches!(shielded.resume(()), CoroutineState::Complete(Ok(()))));
        });
        assert_eq!(cut, Err(TimedOut));
    });
}

#[test]
fn a_coroutine_is_within_the_limits_of_its_resumer() {
    on_both(|| {
        let mut inner = coroutine(|suspender| {
            suspender.suspend(());
            timeout(FOREVER, || {
                let begun = Instant::now();
                sleep(FOREVER);
                suspender.suspend(());
                assert!(begun.elapsed() < FOREVER);
                // Resumed by a fiber without a limit.
                let begun = Instant::now();
                sleep(2 * SHORT);
                begun.elapsed()
            })
        });
        // Suspended by a coroutine that is within a limit, and resumed by others.
        let mut outer = coroutine(move |suspender| {
            let first = timeout(FOREVER, || inner.resume(()));
            assert!(matches!(first, Ok(CoroutineState::Yielded(()))));
            suspender.suspend(());
            let second = timeout(SHORT, || {
                assert!(matches!(inner.resume(()), CoroutineState::Yielded(())));
            });
            suspender.suspend(());
            (second, inner.resume(()))
        });
        let first =
            timeout(SHORT, || assert!(matches!(outer.resume(()), CoroutineState::Yielded(()))));
        assert_eq!(first, Ok(()));
        assert!(matches!(outer.resume(()), CoroutineState::Yielded(())));
        let CoroutineState::Complete((second, third)) = outer.resume(()) else { panic!() };
        assert_eq!(second, Err(TimedOut));
        assert!(matches!(third, CoroutineState::Complete(Ok(slept)) if slept >= 2 * SHORT));
    });
}

#[test]
fn limits_stay_behind_when_a_coroutine_hands_over() {
    on_both(|| {
        type Player = Coroutine<Ball, (), bool>;
        type Way<'a> = &'a SymmetricSuspender<Ball, (), bool>;
        type Ball = Option<Box<dyn Any>>;
        let player = |ball: Ball| *ball.unwrap().downcast::<Player>().unwrap();
        let first = move |s: Way<'_>, second: Ball| {
            let cut = timeout(SHORT, || {
                s.transfer(player(second), |me| Some(Box::new(me)));
                sleep(FOREVER);
            });
            cut.is_err()
        };
        let second = move |s: Way<'_>, first: Ball| {
            let begun = Instant::now();
            sleep(3 * SHORT);
            assert!(begun.elapsed() >= 3 * SHORT, "cut short by the limit of the other");
            s.suspend(());
            let _ = timeout(FOREVER, || s.transfer(player(first), |_| None));
            unreachable!("the first coroutine ends without handing over again");
        };
        // SAFETY: they end below, before their thread or fiber does, and are suspended within Carefree's own
        // calls alone.
        let (mut playing, second): (Player, Player) =
            unsafe { (Coroutine::symmetric(first), Coroutine::symmetric(second)) };
        let whole = timeout(FOREVER, || {
            assert!(matches!(playing.resume(Some(Box::new(second))), CoroutineState::Yielded(())));
            check().unwrap();
            // The second coroutine hands over to the first, whose limit has passed meanwhile. Then it is
            // dropped.
            assert!(matches!(playing.resume(None), CoroutineState::Complete(true)));
        });
        assert_eq!(whole, Ok(()));
        check().unwrap();
    });
}
