//! Rust's thread_locals, errno, and the identity that std reports.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::{Slot, bodies, kernel_thread, on_fiber, run_all, run_on, yield_now};

#[test]
fn a_thread_local_starts_anew_and_is_destroyed_with_each_fiber() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static DESTROYED: AtomicUsize = AtomicUsize::new(0);
    struct Object(String);
    impl Drop for Object {
        fn drop(&mut self) {
            assert_eq!(self.0, "made, changed");
            DESTROYED.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static OBJECT: RefCell<Object> = {
            MADE.fetch_add(1, Ordering::Relaxed);
            RefCell::new(Object("made".into()))
        };
        static NUMBER: Cell<u64> = const { Cell::new(0x1234_5678_9abc_def0) };
    }
    let mut slot = Slot::new();
    for round in 1..=5 {
        slot = run_on(slot, || {
            assert_eq!(NUMBER.replace(1), 0x1234_5678_9abc_def0);
            OBJECT.with_borrow_mut(|object| object.0 += ", changed");
            yield_now();
            assert_eq!(NUMBER.get(), 1);
            OBJECT.with_borrow(|object| assert_eq!(object.0, "made, changed"));
        });
        assert_eq!(MADE.load(Ordering::Relaxed), round);
        assert_eq!(DESTROYED.load(Ordering::Relaxed), round);
    }
    assert_eq!(NUMBER.get(), 0x1234_5678_9abc_def0);
}

#[test]
fn errno_is_the_fibers_own_and_starts_as_0() {
    fn errno() -> &'static mut i32 {
        // SAFETY: the caller's own errno, which lives as long as the caller.
        unsafe { &mut *libc::__errno_location() }
    }
    let slot = Slot::new();
    *errno() = 77;
    let slot = run_on(slot, || {
        assert_eq!(*errno(), 0);
        // SAFETY: fails: there is no such descriptor.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
        let before: *mut i32 = errno();
        yield_now();
        assert_eq!(*errno(), libc::EBADF);
        assert_eq!(errno() as *mut i32, before);
    });
    assert_eq!(*errno(), 77);
    run_on(slot, || assert_eq!(*errno(), 0));
}

#[test]
fn std_distinguishes_fibers_on_all_threads() {
    let ids = Arc::new(Mutex::new(HashSet::new()));
    ids.lock().unwrap().insert(std::thread::current().id());
    // As many blocks as fibers, so that all of them are alive together.
    run_all(
        3,
        100,
        bodies(100, |_| {
            let ids = ids.clone();
            move || {
                let me = std::thread::current().id();
                assert!(ids.lock().unwrap().insert(me), "two have the same id");
                for _ in 0..50 {
                    let carrier = kernel_thread();
                    yield_now();
                    assert_ne!(kernel_thread(), carrier);
                    assert_eq!(std::thread::current().id(), me);
                }
            }
        }),
    );
    assert_eq!(ids.lock().unwrap().len(), 101);
}

#[test]
fn a_destructor_may_use_and_make_other_thread_locals() {
    static LOG: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    struct First;
    struct Second;
    impl Drop for First {
        fn drop(&mut self) {
            // Not used before: made while destructors run.
            SECOND.with(|_| LOG.lock().unwrap().push("first"));
        }
    }
    impl Drop for Second {
        fn drop(&mut self) {
            LOG.lock().unwrap().push("second");
        }
    }
    thread_local! {
        static FIRST: First = const { First };
        static SECOND: Second = const { Second };
    }
    let mut slot = Slot::new();
    for round in 1..=3 {
        slot = run_on(slot, || FIRST.with(|_| ()));
        assert_eq!(*LOG.lock().unwrap(), ["first", "second"].repeat(round));
    }
}

#[test]
fn a_panic_unwinds_on_a_fiber_and_is_not_seen_by_the_next() {
    let mut slot = Slot::new();
    for _ in 0..3 {
        slot = run_on(slot, || {
            assert!(!std::thread::panicking());
            let result = std::panic::catch_unwind(|| {
                yield_now();
                std::panic::resume_unwind(Box::new(5_u32));
            });
            assert_eq!(*result.unwrap_err().downcast::<u32>().unwrap(), 5);
            assert!(!std::thread::panicking());
        });
    }
}

#[test]
fn a_backtrace_shows_the_fiber_and_ends() {
    #[inline(never)]
    fn a_function_to_be_found() -> String {
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        std::hint::black_box(trace)
    }
    on_fiber(|| {
        let trace = a_function_to_be_found();
        assert!(trace.contains("a_function_to_be_found"), "{trace}");
        assert!(trace.contains("entry"), "{trace}");
        // It shows no frame of the carrier's.
        assert!(!trace.contains("__rust_begin_short_backtrace"), "{trace}");
    });
}
