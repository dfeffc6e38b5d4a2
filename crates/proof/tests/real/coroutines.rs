//! Coroutines of another crate (corosensei), within fibers: they are suspended without a word to
//! Carefree.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// A thread ends with one suspended within a time limit, which ends only when the thread's own bookkeeping is another
/// thread's: that one's limit must stay in force.
#[test]
fn a_limit_within_one_that_outlives_its_thread_erases_no_other() {
    thread_local!(static KEPT: RefCell<Option<Coroutine<(), (), ()>>> = const { RefCell::new(None) });
    struct AtItsEnd(Sender<()>, Receiver<()>);
    impl Drop for AtItsEnd {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }
    let ((begin, begun), (within, is_within)) = (channel(), channel());
    let first = std::thread::spawn(move || {
        // Before this thread has anything of Carefree's, so that it ends later.
        KEPT.set(None);
        let mut coroutine = Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
            let _ = carefree::timeout(Duration::from_secs(3600), || {
                let _at_its_end = AtItsEnd(begin, is_within);
                yielder.suspend(());
            });
        });
        coroutine.resume(());
        KEPT.set(Some(coroutine));
    });
    let second = std::thread::spawn(move || {
        begun.recv().unwrap();
        carefree::timeout(Duration::from_millis(100), || {
            within.send(()).unwrap();
            // The other coroutine's limit ends meanwhile.
            std::thread::sleep(Duration::from_millis(20));
            carefree::sleep(Duration::from_secs(3600));
        })
    });
    first.join().unwrap();
    assert_eq!(second.join().unwrap(), Err(carefree::TimedOut));
}
