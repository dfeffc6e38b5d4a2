//! Calls that run on other threads while the fiber parks.

use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carefree_runtime::{
    Runtime, current, offload, offload_unchecked, park, run, scope, sleep, spawn, timeout,
};

use crate::common::{in_forced_mode, panic_on_purpose, quiet, until, within_reason};

#[test]
fn the_call_runs_elsewhere_and_the_carrier_runs_others() {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    within_reason(move || {
        let other_ran = AtomicBool::new(false);
        runtime.run(|| {
            let carrier = thread_id();
            scope(|scope| {
                scope.spawn(|| other_ran.store(true, Ordering::SeqCst));
                let there = offload(|| {
                    // On the only carrier, this would spin for ever.
                    while !other_ran.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    thread_id()
                });
                assert_ne!(there, carrier);
                assert_eq!(thread_id(), carrier);
            });
        });
    });
}

/// The kernel's number of the thread that runs the caller.
fn thread_id() -> i64 {
    // SAFETY: takes nothing and touches nothing.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

#[test]
fn on_a_plain_thread_it_is_a_call() {
    let here = thread_id();
    assert_eq!(offload(thread_id), here);
}

#[test]
fn it_borrows_from_the_caller() {
    run(|| {
        let text = String::from("borrowed");
        let mut lengths = vec![0; 3];
        for (n, length) in lengths.iter_mut().enumerate() {
            offload(|| *length = text.len() + n);
        }
        assert_eq!(lengths, [8, 9, 10]);
        // It can take values and return them.
        let longer = offload(move || text + "!");
        assert_eq!(longer, "borrowed!");
    });
}

#[test]
fn thousands_from_many_fibers() {
    let (fibers, calls) = if in_forced_mode() { (200, 5) } else { (500, 20) };
    let sum = AtomicUsize::new(0);
    let threads = Mutex::new(HashSet::new());
    within_reason(move || {
        run(|| {
            scope(|scope| {
                for _ in 0..fibers {
                    scope.spawn(|| {
                        for n in 0..calls {
                            let result = offload(|| {
                                threads.lock().unwrap().insert(thread_id());
                                sum.fetch_add(1, Ordering::Relaxed);
                                n * 2
                            });
                            assert_eq!(result, n * 2);
                        }
                    });
                }
            });
        });
        assert_eq!(sum.load(Ordering::Relaxed), fibers * calls);
        assert!(threads.lock().unwrap().len() <= 512);
    });
}

#[test]
fn panics_come_back() {
    quiet();
    let payload =
        run(|| panic::catch_unwind(AssertUnwindSafe(|| offload(|| -> () { panic_on_purpose() }))))
            .unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    // The pool lives on.
    assert_eq!(run(|| offload(|| 1)), 1);
}

#[test]
fn a_call_that_sets_no_errno_leaves_it_as_it_is() {
    run(|| {
        // SAFETY: the calling fiber's own variable.
        let set = |errno| unsafe { *libc::__errno_location() = errno };
        let errno = || std::io::Error::last_os_error().raw_os_error();
        // The pool's threads have one of their own from here on.
        for _ in 0..3 {
            offload(|| set(libc::EBADF));
            set(libc::ENOENT);
            offload(|| ());
            assert_eq!(errno(), Some(libc::ENOENT));
        }
    });
}

#[test]
fn errno_comes_back() {
    run(|| {
        let refused = offload(|| {
            // SAFETY: a descriptor that cannot exist.
            unsafe { libc::close(-1) }
        });
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((refused, errno), (-1, Some(libc::EBADF)));
    });
}

#[test]
fn nothing_cuts_it_short() {
    within_reason(|| {
        let begun = AtomicBool::new(false);
        let done = AtomicBool::new(false);
        run(|| {
            scope(|scope| {
                let fiber = scope.spawn(|| {
                    let call = || {
                        offload(|| {
                            begun.store(true, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(20));
                            done.store(true, Ordering::SeqCst);
                        });
                        assert!(done.load(Ordering::SeqCst));
                    };
                    // The limit does not cut the call short, however late it ends.
                    assert_eq!(timeout(Duration::from_millis(1), call), Ok(()));
                    carefree_runtime::check().is_err()
                });
                until("it has begun", || begun.load(Ordering::SeqCst));
                fiber.cancel();
                fiber.thread().unpark();
                assert!(fiber.join().unwrap(), "the cancellation is seen afterwards");
            });
        });
    });
}

/// An unpark during the call is for the `park` after it.
#[test]
fn an_unpark_meanwhile_is_kept() {
    within_reason(|| {
        run(|| {
            let me = current();
            offload(move || me.unpark());
            park();
        });
    });
}

#[test]
fn what_is_not_send_can_be_sent_without_the_check() {
    run(|| {
        let mut word = 1;
        let pointer = &raw mut word;
        // SAFETY: the word outlives the call, and nothing else uses it meanwhile.
        let former = unsafe { offload_unchecked(|| std::ptr::replace(pointer, 2)) };
        assert_eq!((former, word), (1, 2));
    });
}

#[test]
fn large_values_come_back_whole() {
    run(|| {
        let bytes = [7u8; 4096];
        let back = offload(move || bytes);
        assert!(back.iter().all(|byte| *byte == 7));
    });
}

/// A dropped runtime waits for its fibers' calls, even if nothing else wakes it.
#[test]
fn a_runtime_that_is_dropped_waits_for_calls_under_way() {
    within_reason(|| {
        for carriers in [1, 2] {
            let done = std::sync::Arc::new(AtomicUsize::new(0));
            let runtime = Runtime::builder().carriers(carriers).build().unwrap();
            for n in 0..20u64 {
                let done = done.clone();
                drop(runtime.spawn(move || {
                    offload(|| std::thread::sleep(Duration::from_micros(100 * n)));
                    done.fetch_add(1, Ordering::SeqCst);
                }));
            }
            drop(runtime);
            assert_eq!(done.load(Ordering::SeqCst), 20);
        }
    });
}

#[test]
fn a_call_may_use_fibers() {
    within_reason(|| {
        let sum = run(|| {
            offload(|| {
                // The call runs on a plain thread, which may spawn fibers.
                let spawned = spawn(|| {
                    sleep(Duration::from_micros(100));
                    offload(|| 3)
                });
                spawned.join().unwrap() + run(|| 4)
            })
        });
        assert_eq!(sum, 7);
    });
}

/// In shared mode a fiber that unwinds must not leave its carrier.
#[test]
fn it_works_while_unwinding() {
    struct OnDrop<'a>(&'a AtomicUsize);
    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(offload(|| 5), Ordering::SeqCst);
        }
    }
    quiet();
    let value = AtomicUsize::new(0);
    run(|| {
        let _ = panic::catch_unwind(AssertUnwindSafe(|| {
            let _guard = OnDrop(&value);
            panic_on_purpose()
        }));
    });
    assert_eq!(value.load(Ordering::SeqCst), 5);
}
