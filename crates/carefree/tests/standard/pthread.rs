//! `std::os::unix::thread::JoinHandleExt` of a fiber.

use std::os::unix::thread::JoinHandleExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use carefree::{Builder, JoinHandle, run, spawn, yield_now};

use crate::own;

fn itself() -> u64 {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() }
}

fn waits_for_unpark() -> JoinHandle<u64> {
    spawn(|| {
        carefree::park();
        itself()
    })
}

fn join(thread: u64) -> i32 {
    let mut result = std::ptr::dangling_mut();
    // SAFETY: given up for this by a handle.
    let failed = unsafe { libc::pthread_join(thread, &raw mut result) };
    assert_eq!(result, null_mut());
    failed
}

#[test]
fn it_is_what_the_fiber_finds() {
    if !own() {
        return;
    }
    let fiber = waits_for_unpark();
    let thread = fiber.as_pthread_t();
    assert_ne!(thread, itself());
    assert_eq!(thread, fiber.as_pthread_t());
    fiber.thread().unpark();
    assert_eq!(fiber.join().unwrap(), thread);
}

#[test]
fn it_is_no_others_while_its_handle_is_there() {
    if !own() {
        return;
    }
    run(|| {
        let fiber = waits_for_unpark();
        let thread = fiber.as_pthread_t();
        fiber.thread().unpark();
        while !fiber.is_finished() {
            yield_now();
        }
        // Those that come after would get the stack that was last in use.
        for _ in 0..1000 {
            assert_ne!(spawn(itself).join().unwrap(), thread);
        }
        // SAFETY: its handle is there; a signal of 0 is none.
        assert_ne!(unsafe { libc::pthread_kill(thread, 0) }, 0);
        assert_eq!(fiber.as_pthread_t(), thread);
        fiber.join().unwrap();
        // Memory is given back: more of them than there is room for at once.
        for _ in 0..20_000 {
            let fiber = spawn(|| ());
            fiber.as_pthread_t();
            fiber.join().unwrap();
        }
    });
}

#[test]
fn it_can_be_joined_and_detached_by_it() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counts;
    impl Drop for Counts {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }
    let work = || {
        let before = DROPPED.load(Ordering::SeqCst);
        let fiber = spawn(|| {
            carefree::sleep(std::time::Duration::from_millis(5));
            Counts
        });
        assert_eq!(join(fiber.into_pthread_t()), 0);
        assert_eq!(
            DROPPED.load(Ordering::SeqCst),
            before + 1,
            "its value is dropped, and joined for"
        );
        // One that has ended.
        let fiber = spawn(|| Counts);
        while !fiber.is_finished() {
            yield_now();
        }
        assert_eq!(join(fiber.into_pthread_t()), 0);
        assert_eq!(DROPPED.load(Ordering::SeqCst), before + 2);
        let detached = Builder::new().name("detached".into()).spawn(|| Counts).unwrap();
        // SAFETY: given up by a handle.
        assert_eq!(unsafe { libc::pthread_detach(detached.into_pthread_t()) }, 0);
        while DROPPED.load(Ordering::SeqCst) < before + 3 {
            yield_now();
        }
    };
    work();
    run(work);
}
