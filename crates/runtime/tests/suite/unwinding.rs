//! Panics on fibers.

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use carefree_runtime::{park_timeout, run, scope, sleep, spawn, yield_now};

use crate::common::{in_a_process, is_child, own_tls, panic_on_purpose, text, until};

/// Lets other fibers run when it is dropped.
struct Lets;

impl Drop for Lets {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        for _ in 0..3 {
            yield_now();
            sleep(Duration::from_micros(100));
            park_timeout(Duration::from_micros(100));
        }
        assert!(std::thread::panicking());
    }
}

#[test]
fn a_fiber_that_waits_while_it_panics_disturbs_no_other() {
    let handles: Vec<_> = (0..40)
        .map(|n| {
            spawn(move || {
                for _ in 0..5 {
                    assert!(!std::thread::panicking());
                    let caught = catch_unwind(|| {
                        let _lets = (n % 2 == 0).then(|| Lets);
                        panic_on_purpose();
                    });
                    assert!(caught.is_err());
                    assert!(!std::thread::panicking());
                    yield_now();
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn captures_are_dropped_by_a_panic_and_may_panic_themselves() {
    struct Bad(Arc<AtomicUsize>);
    impl Drop for Bad {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            if !std::thread::panicking() {
                panic_on_purpose();
            }
        }
    }
    let count = Arc::new(AtomicUsize::new(0));
    let (one, other) = (Bad(count.clone()), Bad(count.clone()));
    assert!(spawn(move || drop(one)).join().is_err());
    let panicking = spawn(move || {
        let _other = &other;
        panic_on_purpose();
    });
    assert!(panicking.join().is_err());
    assert_eq!(count.load(Ordering::Relaxed), 2);
}

#[test]
fn run_passes_a_panic_on() {
    let caught = catch_unwind(|| run(|| panic_on_purpose()));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    // From a fiber as well, which goes on.
    let caught = run(|| catch_unwind(|| run(|| panic_on_purpose())).is_err());
    assert!(caught);
}

#[test]
fn a_borrowed_value_survives_run() {
    let mut list = vec![1];
    let caught = catch_unwind(AssertUnwindSafe(|| {
        run(|| {
            list.push(2);
            yield_now();
            panic_on_purpose();
        })
    }));
    assert!(caught.is_err());
    assert_eq!(list, [1, 2]);
}

#[test]
fn a_detached_value_whose_destructor_panics_ends_the_process() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic_on_purpose();
        }
    }
    if is_child() {
        let gate = Arc::new(AtomicBool::new(false));
        let theirs = gate.clone();
        drop(spawn(move || {
            until("the handle is gone", || theirs.load(Ordering::Acquire));
            Bad
        }));
        gate.store(true, Ordering::Release);
        std::thread::sleep(Duration::from_secs(30));
        return;
    }
    let name = "unwinding::a_detached_value_whose_destructor_panics_ends_the_process";
    let output = in_a_process(name, &[]);
    assert_eq!(output.status.signal(), Some(6), "{}", text(&output));
    assert!(
        text(&output).contains("a fiber's result panicked when it was dropped"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_scoped_value_whose_destructor_panics_ends_the_process_with_its_handle() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic_on_purpose();
        }
    }
    if is_child() {
        let dropped = catch_unwind(|| {
            scope(|s| {
                let handle = s.spawn(|| Bad);
                until("the fiber has ended", || handle.is_finished());
                drop(handle);
            });
        });
        println!("went on: {}", dropped.is_err());
        return;
    }
    let name = "unwinding::a_scoped_value_whose_destructor_panics_ends_the_process_with_its_handle";
    let output = in_a_process(name, &[]);
    assert_eq!(output.status.signal(), Some(6), "{}", text(&output));
    assert!(
        text(&output).contains("a fiber's result panicked when it was dropped"),
        "{}",
        text(&output)
    );
}

#[test]
fn destructors_of_thread_locals_may_wait_and_spawn() {
    struct Busy(Arc<AtomicUsize>);
    impl Drop for Busy {
        fn drop(&mut self) {
            sleep(Duration::from_micros(200));
            yield_now();
            let count = self.0.clone();
            spawn(move || count.fetch_add(1, Ordering::Relaxed)).join().unwrap();
        }
    }
    thread_local! {
        static BUSY: std::cell::RefCell<Option<Busy>> = const { std::cell::RefCell::new(None) };
    }
    if !own_tls() {
        return;
    }
    let count = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..50)
        .map(|_| {
            let count = count.clone();
            spawn(move || BUSY.set(Some(Busy(count))))
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 50);
}

#[test]
fn a_handle_can_go_while_the_fiber_ends_its_thread_locals() {
    /// Sets a flag when it is dropped, and waits for another one.
    struct Last(Arc<[AtomicBool; 2]>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0[0].store(true, Ordering::Release);
            until("the handle is gone", || self.0[1].load(Ordering::Acquire));
        }
    }
    struct Value(Arc<AtomicUsize>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) };
    }
    if !own_tls() {
        return;
    }
    let (flags, dropped) = (Arc::<[AtomicBool; 2]>::default(), Arc::new(AtomicUsize::new(0)));
    let (last, value) = (Last(flags.clone()), Value(dropped.clone()));
    let handle = spawn(move || {
        LAST.set(Some(last));
        value
    });
    until("the fiber ends its thread-locals", || flags[0].load(Ordering::Acquire));
    // By now its value is stored, but the fiber has not finished.
    assert!(!handle.is_finished());
    drop(handle);
    flags[1].store(true, Ordering::Release);
    until("the value is dropped", || dropped.load(Ordering::Relaxed) == 1);
}
