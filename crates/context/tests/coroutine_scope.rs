//! Scoped coroutines: all end with their scope, whatever happens to their handles.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use carefree_context::coroutine::{self, Coroutine, CoroutineState, Scope, Suspender};
use carefree_context::stack::{StackPool, StackSize};

use CoroutineState::{Complete, Yielded};

type Log = RefCell<Vec<&'static str>>;

/// [`coroutine::scope`], for coroutines that are suspended within no call that sets a thread-local variable.
fn scope<'env, T>(f: impl for<'h> FnOnce(&'h Scope<'env>) -> T) -> T {
    // SAFETY: no test here has such a call: one lends a variable by `LocalKey::with`, which sets none.
    unsafe { coroutine::scope(f) }
}

/// Logs when it is dropped.
struct Guard<'a>(&'a Log, &'static str);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(f))
}

#[test]
fn values_go_both_ways_and_what_lives_outside_is_borrowed() {
    let factor = 2;
    let mut seen = Vec::new();
    let result = scope(|s| {
        let mut coroutine = s.coroutine(|suspender, first: u64| {
            seen.push(first);
            let second = suspender.suspend(first * factor);
            seen.push(second);
            format!("{first} {second}")
        });
        assert!(!coroutine.is_done());
        assert_eq!(coroutine.resume(1), Yielded(2));
        assert_eq!(coroutine.resume(10), Complete("1 10".to_string()));
        assert!(coroutine.is_done());
        format!("{coroutine:?}")
    });
    assert_eq!(result, "ScopedCoroutine { is_done: true, .. }");
    assert_eq!(seen, [1, 10]);
}

#[test]
fn what_is_left_is_ended_the_latest_first() {
    let log = Log::default();
    scope(|s| {
        for name in ["first", "second", "third", "fourth"] {
            let log = &log;
            let mut coroutine = s.coroutine(move |suspender: &Suspender<(), ()>, ()| {
                let _guard = Guard(log, name);
                suspender.suspend(());
            });
            coroutine.resume(());
            match name {
                // Dropping the handle ends this one before the scope does.
                "second" => drop(coroutine),
                "third" => assert_eq!(coroutine.resume(()), Complete(())),
                _ => forget(coroutine),
            }
        }
        // This one never ran.
        let never = Guard(&log, "never ran");
        forget(s.coroutine(move |_: &Suspender<(), ()>, ()| drop(never)));
        log.borrow_mut().push("end");
    });
    assert_eq!(log.take(), ["second", "third", "end", "never ran", "fourth", "first"]);
}

#[test]
fn stacks_of_forgotten_ones_come_back() {
    // A size that no other test uses.
    let size = StackSize::new(3 << 20).unwrap();
    let in_use = |stack: &Cell<usize>| stack.get() != 0;
    let address = Cell::new(0);
    scope(|s| {
        let body = |suspender: &Suspender<(), ()>, ()| {
            let local = 0_u8;
            address.set((&raw const local).addr());
            suspender.suspend(());
        };
        let mut coroutine = s.coroutine_with_stack_size(size, body).unwrap();
        coroutine.resume(());
        forget(coroutine);
    });
    assert!(in_use(&address));
    let stack = StackPool::global().acquire(size).unwrap();
    assert!((stack.base().addr()..stack.top().addr()).contains(&address.get()));
}

/// The program that would be unsound if owned coroutines were safe: data that a coroutine lends to
/// a scoped thread outlives the thread's use of it.
#[test]
fn a_thread_that_was_lent_a_thread_local_is_waited_for() {
    static ALIVE: AtomicBool = AtomicBool::new(false);
    static READS: AtomicUsize = AtomicUsize::new(0);

    struct Local;
    impl Local {
        fn read(&self) {
            assert!(ALIVE.load(Ordering::SeqCst), "read after its end");
            READS.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Drop for Local {
        fn drop(&mut self) {
            ALIVE.store(false, Ordering::SeqCst);
        }
    }
    thread_local!(static LOCAL: Local = {
        ALIVE.store(true, Ordering::SeqCst);
        Local
    });
    /// Tells the thread to end when the coroutine is unwound.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    let stopped = AtomicBool::new(false);
    std::thread::scope(|outer| {
        let thread = outer.spawn(|| {
            scope(|s| {
                let mut coroutine = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
                    LOCAL.with(|local| {
                        std::thread::scope(|threads| {
                            threads.spawn(|| {
                                while !stopped.load(Ordering::SeqCst) {
                                    local.read();
                                }
                            });
                            let _stop = Stop(&stopped);
                            while READS.load(Ordering::SeqCst) == 0 {
                                std::thread::yield_now();
                            }
                            suspender.suspend(());
                        });
                    });
                });
                coroutine.resume(());
                forget(coroutine);
            });
            assert!(stopped.load(Ordering::SeqCst), "the coroutine was not unwound");
        });
        // A scope waits for a thread's function only, a join for its thread-local variables too.
        thread.join().unwrap();
    });
    assert!(!ALIVE.load(Ordering::SeqCst));
}

#[test]
fn a_panic_of_the_closure_ends_them_too() {
    let log = Log::default();
    let payload = quietly(|| {
        scope(|s| {
            let mut coroutine = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
                let _guard = Guard(&log, "unwound");
                suspender.suspend(());
            });
            coroutine.resume(());
            forget(coroutine);
            resume_unwind(Box::new("the closure's"));
        })
    })
    .unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"the closure's"));
    assert_eq!(log.take(), ["unwound"]);
    assert!(!std::thread::panicking());
}

#[test]
fn a_panic_of_one_does_not_keep_the_others() {
    let log = Log::default();
    let payload = quietly(|| {
        scope(|s| {
            for name in ["first", "second", "third"] {
                let log = &log;
                let mut coroutine = s.coroutine(move |suspender: &Suspender<(), ()>, ()| {
                    let _guard = Guard(log, name);
                    if quietly(|| suspender.suspend(())).is_err() && name != "first" {
                        resume_unwind(Box::new(name));
                    }
                });
                coroutine.resume(());
                forget(coroutine);
            }
        })
    })
    .unwrap_err();
    // The first panic wins: they end the latest first.
    assert_eq!(payload.downcast_ref(), Some(&"third"));
    assert_eq!(log.take(), ["third", "second", "first"]);
    assert!(!std::thread::panicking());
}

#[test]
fn one_that_swallows_its_unwinding_is_entered_until_it_returns() {
    let times = Cell::new(0);
    scope(|s| {
        let mut coroutine = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
            for _ in 0..5 {
                assert!(quietly(|| suspender.suspend(())).is_err());
                times.set(times.get() + 1);
            }
        });
        coroutine.resume(());
        forget(coroutine);
    });
    assert_eq!(times.get(), 5);
}

#[test]
fn a_scope_inside_a_forgotten_coroutine_ends_with_it() {
    let log = Log::default();
    scope(|s| {
        let mut outer = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
            let _outer = Guard(&log, "outer");
            scope(|s| {
                let mut inner = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
                    let _inner = Guard(&log, "inner");
                    suspender.suspend(());
                });
                inner.resume(());
                forget(inner);
                suspender.suspend(());
            });
            unreachable!("it is not resumed");
        });
        outer.resume(());
        forget(outer);
        log.borrow_mut().push("end");
    });
    assert_eq!(log.take(), ["end", "inner", "outer"]);
}

/// A coroutine of an inner scope suspends the outer one, in the middle of itself.
#[test]
fn an_outer_coroutine_is_suspended_from_within_an_inner_one() {
    let log = Log::default();
    let numbers = |left_after: usize| {
        scope(|s| {
            s.coroutine(|outer: &Suspender<(), u32>, ()| {
                let _outer = Guard(&log, "outer");
                scope(|s| {
                    let inner = s.coroutine(|inner: &Suspender<(), u32>, ()| {
                        let _inner = Guard(&log, "inner");
                        outer.suspend(1);
                        inner.suspend(2);
                        outer.suspend(3);
                    });
                    for number in inner {
                        outer.suspend(number * 10);
                    }
                });
                outer.suspend(4);
            })
            .take(left_after)
            .collect::<Vec<_>>()
        })
    };
    assert_eq!(numbers(9), [1, 20, 3, 4]);
    assert_eq!(log.take(), ["inner", "outer"]);
    // Dropped in the middle of the inner one, beside it, and after it.
    for left_after in 1..=4 {
        assert_eq!(numbers(left_after), [1, 20, 3, 4][..left_after]);
        assert_eq!(log.take(), ["inner", "outer"], "after {left_after}");
    }
    assert!(!std::thread::panicking());
}

#[test]
fn an_inner_scopes_coroutine_may_use_an_outer_ones_handle() {
    scope(|s| {
        let mut numbers = s.coroutine(|suspender: &Suspender<(), u32>, ()| {
            for number in 0.. {
                suspender.suspend(number);
            }
        });
        assert_eq!(numbers.next(), Some(0));
        scope(|s| {
            let mut twice = s.coroutine(|suspender: &Suspender<(), u32>, ()| {
                for number in &mut numbers {
                    suspender.suspend(number * 2);
                }
            });
            assert_eq!(twice.next(), Some(2));
            assert_eq!(twice.next(), Some(4));
            forget(twice);
        });
        assert_eq!(numbers.next(), Some(3));
    });
}

#[test]
fn many_in_every_order() {
    let ended = Cell::new(0);
    struct Count<'a>(&'a Cell<usize>);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    scope(|s| {
        let mut kept = Vec::new();
        for n in 0..3000_usize {
            let ended = &ended;
            let mut coroutine = s.coroutine(move |suspender: &Suspender<(), usize>, ()| {
                let _count = Count(ended);
                suspender.suspend(n);
            });
            assert_eq!(coroutine.next(), Some(n));
            match n % 4 {
                0 => forget(coroutine),
                1 => drop(coroutine),
                _ => kept.push(coroutine),
            }
            if n % 7 == 0 && kept.len() > 2 {
                let at = n * 31 % kept.len();
                assert_eq!(kept.swap_remove(at).next(), None);
            }
        }
    });
    assert_eq!(ended.get(), 3000);
}

/// An owned coroutine may be resumed from scoped ones, and hold scopes.
#[test]
fn owned_ones_and_scopes_mix() {
    let shared = Rc::new(Cell::new(0));
    let theirs = shared.clone();
    let body = move |suspender: &Suspender<(), u32>, ()| {
        scope(|s| {
            let inner = s.coroutine(|suspender: &Suspender<(), u32>, ()| {
                suspender.suspend(theirs.get());
                suspender.suspend(theirs.get() * 2);
            });
            for number in inner {
                suspender.suspend(number);
            }
        });
    };
    // SAFETY: it borrows no thread-local variables, and sets none.
    let mut owned = unsafe { Coroutine::new(body) };
    shared.set(3);
    let mut all = Vec::new();
    scope(|s| {
        let outer = s.coroutine(|suspender: &Suspender<(), u32>, ()| {
            for number in &mut owned {
                suspender.suspend(number);
            }
        });
        all.extend(outer);
    });
    assert_eq!(all, [3, 6]);
}

/// Panics when it is dropped.
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        resume_unwind(Box::new("the value's destructor"));
    }
}

#[test]
fn a_value_that_panics_when_it_is_dropped_keeps_none_from_ending() {
    let log = Log::default();
    let panic = quietly(|| {
        scope(|s| {
            let mut first = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
                let _guard = Guard(&log, "the first ends");
                suspender.suspend(());
            });
            first.resume(());
            forget(first);
            let mut last = s.coroutine(|suspender: &Suspender<(), ()>, ()| {
                if quietly(|| suspender.suspend(())).is_err() {
                    resume_unwind(Box::new("the last one's end"));
                }
            });
            last.resume(());
            forget(last);
            Loud
        })
    })
    .err();
    let panic = panic.expect("one of the two panics continues");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the last one's end"));
    assert_eq!(*log.borrow(), ["the first ends"]);
}

#[test]
fn what_panics_when_it_is_dropped_may_be_yielded_by_one_that_is_ended() {
    let log = Log::default();
    scope(|s| {
        let mut coroutine = s.coroutine(|suspender: &Suspender<(), Option<Loud>>, ()| {
            let _guard = Guard(&log, "ends");
            assert!(quietly(|| suspender.suspend(None)).is_err());
            suspender.suspend(Some(Loud));
        });
        assert!(matches!(coroutine.resume(()), Yielded(None)));
        let panic = quietly(|| drop(coroutine)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the value's destructor"));
        assert_eq!(*log.borrow(), ["ends"], "by the drop, not by the scope");
    });
}
