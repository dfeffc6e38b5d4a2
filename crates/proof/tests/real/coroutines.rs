//! Coroutines of another crate (corosensei), within fibers: they are suspended without a word to
//! Carefree.

use std::time::{Duration, Instant};

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::kit::{many, on_a_fiber};

#[test]
fn they_wait_and_move_with_their_fibers() {
    on_a_fiber(|| {
        carefree::scope(|s| {
            for number in 0..many(50) as u32 {
                s.spawn(move || {
                    let mut adding = Coroutine::new(|yielder: &Yielder<u32, u32>, mut value| {
                        for _ in 0..5 {
                            std::thread::sleep(Duration::from_millis(1));
                            value = yielder.suspend(value + 1);
                        }
                        value
                    });
                    let mut value = number;
                    while let CoroutineResult::Yield(next) = adding.resume(value) {
                        value = next;
                        carefree::yield_now();
                    }
                    assert_eq!(value, number + 5);
                });
            }
        });
    });
}

/// Suspended within a time limit, and ended within one that its resumer has begun since. If the list of
/// limits kept either of the two, the waits that follow would read a frame that is gone.
#[test]
fn time_limits_across_them_end_in_any_order() {
    on_a_fiber(|| {
        for resumed in [true, false] {
            let mut within = Coroutine::new(|yielder: &Yielder<(), ()>, ()| {
                let _ = carefree::timeout(Duration::from_secs(600), || yielder.suspend(()));
            });
            within.resume(());
            let ended = carefree::timeout(Duration::from_secs(600), move || {
                if resumed {
                    within.resume(());
                }
                drop(within);
            });
            assert!(ended.is_ok());
            let begun = Instant::now();
            for _ in 0..10 {
                carefree::sleep(Duration::from_millis(1));
                assert!(carefree::check().is_ok());
            }
            assert!(begun.elapsed() >= Duration::from_millis(10));
        }
    });
}
