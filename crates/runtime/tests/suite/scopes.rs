//! Scopes: fibers that borrow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carefree_runtime::{Builder, check, park, run, scope, sleep, spawn, yield_now};

use crate::common::{FOREVER, panic_on_purpose, quiet};

/// On a plain thread, and on a fiber.
fn on_both(test: fn()) {
    test();
    run(test);
}

#[test]
fn children_borrow() {
    on_both(|| {
        let mut numbers = vec![1, 2, 3];
        let mut sum = 0;
        let text = scope(|s| {
            s.spawn(|| {
                yield_now();
                numbers.push(4);
            });
            s.spawn(|| sum += 5);
            let named = Builder::new().name("named".into());
            let handle = named.spawn_scoped(s, || String::from("value")).unwrap();
            assert_eq!(handle.thread().name(), Some("named"));
            handle.join().unwrap()
        });
        assert_eq!((numbers.len(), sum, text.as_str()), (4, 5, "value"));
    });
}

#[test]
fn all_have_ended_when_it_returns() {
    on_both(|| {
        let ended = AtomicUsize::new(0);
        scope(|s| {
            for n in 0..50 {
                let ended = &ended;
                let handle = s.spawn(move || {
                    sleep(Duration::from_micros(n * 10));
                    ended.fetch_add(1, Ordering::Relaxed);
                });
                if n % 2 == 0 {
                    std::mem::forget(handle);
                }
            }
        });
        assert_eq!(ended.load(Ordering::Relaxed), 50);
    });
}

#[test]
fn children_have_children() {
    on_both(|| {
        let count = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..5 {
                s.spawn(|| {
                    yield_now();
                    for _ in 0..5 {
                        s.spawn(|| {
                            yield_now();
                            count.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 25);
    });
}

/// A value that borrows, and looks at what it borrows when it is dropped.
struct Looks<'a>(&'a AtomicBool, &'a AtomicUsize);

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        assert!(self.0.load(Ordering::Relaxed), "what was borrowed is gone");
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn values_that_borrow_are_dropped_in_time() {
    on_both(|| {
        let looked = AtomicUsize::new(0);
        for n in 0..60 {
            let alive = AtomicBool::new(true);
            scope(|s| {
                let handle = s.spawn(|| {
                    (0..n % 3).for_each(|_| yield_now());
                    Looks(&alive, &looked)
                });
                match n % 4 {
                    0 => drop(handle),
                    1 => drop(handle.join().unwrap()),
                    // Dropped by a sibling.
                    2 => drop(s.spawn(move || drop(handle))),
                    _ => {
                        while !handle.is_finished() {
                            yield_now();
                        }
                    }
                }
            });
            alive.store(false, Ordering::Relaxed);
        }
        assert_eq!(looked.load(Ordering::Relaxed), 60);
    });
}

#[test]
fn panics_reach_the_parent_unless_it_was_told() {
    on_both(|| {
        quiet();
        let caught = catch_unwind(|| {
            scope(|s| {
                s.spawn(|| panic_on_purpose());
            })
        });
        let payload = caught.unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "a scoped thread panicked");

        let told = scope(|s| s.spawn(|| panic_on_purpose()).join().unwrap_err());
        assert_eq!(*told.downcast::<&str>().unwrap(), "on purpose");
    });
}

#[test]
fn a_panic_of_the_parent_waits_for_the_children() {
    on_both(|| {
        let ended = AtomicBool::new(false);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| {
                    sleep(Duration::from_millis(3));
                    ended.store(true, Ordering::Relaxed);
                });
                panic_on_purpose();
            })
        }));
        assert!(ended.load(Ordering::Relaxed));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    });
}

#[test]
fn one_failure_cancels_the_rest() {
    on_both(|| {
        quiet();
        let cancelled = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.cancel_on_failure();
                for _ in 0..4 {
                    s.spawn(|| {
                        sleep(FOREVER);
                        cancelled.fetch_add(check().is_err().into(), Ordering::Relaxed);
                    });
                }
                s.spawn(|| {
                    yield_now();
                    panic_on_purpose();
                });
                // Fibers that are spawned later are cancelled too.
                sleep(Duration::from_millis(1));
                s.spawn(|| {
                    sleep(FOREVER);
                    cancelled.fetch_add(check().is_err().into(), Ordering::Relaxed);
                });
            });
        }));
        assert!(caught.is_err());
        assert_eq!(cancelled.load(Ordering::Relaxed), 5);
        // Only a scope that asks for it cancels the others.
        let others = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| panic_on_purpose());
                s.spawn(|| {
                    sleep(Duration::from_millis(2));
                    others.fetch_add(check().is_ok().into(), Ordering::Relaxed);
                });
            });
        }));
        assert!(caught.is_err());
        assert_eq!(others.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_scope_can_be_cancelled() {
    on_both(|| {
        scope(|s| {
            let first = s.spawn(|| sleep(FOREVER));
            s.spawn(park);
            s.cancel();
            s.spawn(|| sleep(FOREVER));
            first.join().unwrap();
        });
        // One fiber alone.
        scope(|s| {
            let handle = s.spawn(|| {
                sleep(FOREVER);
                check()
            });
            handle.cancel();
            assert!(handle.join().unwrap().is_err());
        });
    });
}

#[test]
fn at_most_so_many_run_at_once() {
    on_both(|| {
        let (running, most, all) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        scope(|s| {
            s.limit(3);
            for n in 0..60 {
                let (running, most, all) = (&running, &most, &all);
                s.spawn(move || {
                    let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                    most.fetch_max(now, Ordering::Relaxed);
                    // The first ones are there together, however long a carrier waits for a processor.
                    while most.load(Ordering::Relaxed) < 3 {
                        yield_now();
                    }
                    sleep(Duration::from_micros(n % 7 * 30));
                    all.fetch_add(1, Ordering::Relaxed);
                    running.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        assert_eq!((most.load(Ordering::Relaxed), all.load(Ordering::Relaxed)), (3, 60));
    });
}

#[test]
fn a_cancelled_parent_that_waits_for_a_place_is_not_stuck() {
    let handle = spawn(|| {
        scope(|s| {
            s.limit(1);
            for _ in 0..3 {
                s.spawn(|| sleep(FOREVER));
            }
        });
    });
    std::thread::sleep(Duration::from_millis(2));
    handle.cancel();
    handle.join().unwrap();
}

#[test]
fn a_limit_is_set_once_and_first() {
    quiet();
    let wrong: [fn(); 3] = [
        || scope(|s| s.limit(0)),
        || {
            scope(|s| {
                s.limit(1);
                s.limit(1);
            })
        },
        || {
            scope(|s| {
                s.cancel_on_failure();
                s.spawn(|| sleep(FOREVER));
                s.limit(1);
            })
        },
    ];
    for wrong in wrong {
        assert!(catch_unwind(wrong).is_err());
    }
}
