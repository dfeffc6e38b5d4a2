//! Keys of `pthread_key_create`.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::pthread_key_t;

use crate::harness::{Slot, bodies, run_all, run_on, yield_now};

/// The number of keys is limited; one test at a time takes many of them.
static MANY: Mutex<()> = Mutex::new(());

fn create(destructor: unsafe extern "C" fn(*mut c_void)) -> pthread_key_t {
    let mut key = 0;
    // SAFETY: a valid destructor.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(destructor)) }, 0);
    key
}

fn delete(key: pthread_key_t) {
    // SAFETY: a live key.
    assert_eq!(unsafe { libc::pthread_key_delete(key) }, 0);
}

fn set(key: pthread_key_t, value: usize) {
    // SAFETY: the value is a number in disguise.
    assert_eq!(unsafe { libc::pthread_setspecific(key, ptr::without_provenance(value)) }, 0);
}

fn get(key: pthread_key_t) -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_getspecific(key) as usize }
}

#[test]
fn each_fiber_has_values_of_its_own_and_destructors_get_them() {
    static SUM: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn destroy(value: *mut c_void) {
        SUM.fetch_add(value as usize, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    let _many = MANY.lock().unwrap();
    // The first 32 lie in the control block, later ones in blocks that libc allocates.
    let keys: Vec<_> = (0..100).map(|_| create(destroy)).collect();
    assert!(keys.iter().any(|key| *key >= 64));
    run_all(
        3,
        20,
        bodies(60, |fiber| {
            let keys = keys.clone();
            move || {
                assert!(keys.iter().all(|key| get(*key) == 0), "a former fiber's value");
                for (index, key) in keys.iter().enumerate() {
                    set(*key, 1000 * fiber + index + 1);
                }
                yield_now();
                for (index, key) in keys.iter().enumerate() {
                    assert_eq!(get(*key), 1000 * fiber + index + 1);
                }
            }
        }),
    );
    assert_eq!(CALLS.load(Ordering::Relaxed), 60 * 100);
    let expected: usize = (0..60).flat_map(|f| (0..100).map(move |i| 1000 * f + i + 1)).sum();
    assert_eq!(SUM.load(Ordering::Relaxed), expected);
    keys.into_iter().for_each(delete);
}

#[test]
fn a_value_set_by_destructors_is_destroyed_four_times_and_then_dropped() {
    static KEY: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn again(value: *mut c_void) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        set(KEY.load(Ordering::Relaxed) as pthread_key_t, value as usize);
    }
    let key = create(again);
    KEY.store(key as usize, Ordering::Relaxed);
    let mut slot = Slot::new();
    for round in 1..=3 {
        slot = run_on(slot, move || {
            assert_eq!(get(key), 0);
            set(key, 5);
        });
        assert_eq!(CALLS.load(Ordering::Relaxed), 4 * round);
    }
    // A thread does it just so.
    CALLS.store(0, Ordering::Relaxed);
    std::thread::spawn(move || set(key, 5)).join().unwrap();
    assert_eq!(CALLS.load(Ordering::Relaxed), 4);
    delete(key);
}

#[test]
fn a_key_deleted_before_the_end_is_not_destroyed() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn destroy(_: *mut c_void) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
    unsafe extern "C" fn other(value: *mut c_void) {
        panic!("the new key's destructor got the old key's value {value:?}");
    }
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    for ask in [false, true] {
        let key = create(destroy);
        let slot = run_on(Slot::new(), move || {
            set(key, 5);
            delete(key);
            // It gets the same number, as a rule, and has no value yet.
            let next = create(other);
            if ask {
                assert_eq!(get(next), 0);
            }
            yield_now();
            NEXT.store(next as usize, Ordering::Relaxed);
        });
        run_on(slot, || ());
        assert_eq!(CALLS.load(Ordering::Relaxed), 0);
        delete(NEXT.load(Ordering::Relaxed) as pthread_key_t);
    }
}

#[test]
fn a_destructor_may_be_the_first_to_use_a_thread_local() {
    static KEY: AtomicUsize = AtomicUsize::new(0);
    static LOCALS: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn forget(_: *mut c_void) {}
    unsafe extern "C" fn register(value: *mut c_void) {
        unsafe extern "C" fn count(_: *mut u8) {
            LOCALS.fetch_add(1, Ordering::Relaxed);
        }
        unsafe extern "C" {
            fn __cxa_thread_atexit_impl(
                destructor: unsafe extern "C" fn(*mut u8),
                object: *mut u8,
                library: *const u8,
            ) -> i32;
            static __dso_handle: u8;
        }
        // What a C++ or Rust thread_local does when it is first used.
        // SAFETY: a function that ignores its argument, of this very program.
        unsafe { __cxa_thread_atexit_impl(count, value.cast(), &raw const __dso_handle) };
    }
    let (key, other) = (create(register), create(forget));
    KEY.store(key as usize, Ordering::Relaxed);
    let slot = run_on(Slot::new(), move || set(key, 5));
    // A thread would leave it behind; the next fiber must not find it.
    assert_eq!(LOCALS.load(Ordering::Relaxed), 1);
    run_on(slot, move || set(other, 5));
    assert_eq!(LOCALS.load(Ordering::Relaxed), 1);
    delete(key);
    delete(other);
}
