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

unsafe extern "C" {
    fn pthread_tryjoin_np(thread: libc::pthread_t, result: *mut *mut libc::c_void) -> i32;
    fn pthread_timedjoin_np(
        thread: libc::pthread_t,
        result: *mut *mut libc::c_void,
        time: *const libc::timespec,
    ) -> i32;
    fn pthread_clockjoin_np(
        thread: libc::pthread_t,
        result: *mut *mut libc::c_void,
        clock: libc::clockid_t,
        time: *const libc::timespec,
    ) -> i32;
}

/// What the joins with a time say to something that waits for `release`, and to it when that came.
fn joins_in_time(thread: libc::pthread_t, release: impl FnOnce()) -> Vec<i32> {
    let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    let far = libc::timespec { tv_sec: 4_000_000_000, tv_nsec: 0 };
    let mut result = std::ptr::dangling_mut();
    let place = &raw mut result;
    let monotonic = libc::CLOCK_MONOTONIC;
    // SAFETY: given up for this by a handle; places, times.
    let answers = unsafe {
        let early = [
            pthread_tryjoin_np(thread, place),
            pthread_timedjoin_np(thread, place, &raw const past),
            pthread_clockjoin_np(thread, place, monotonic, &raw const past),
            pthread_clockjoin_np(thread, place, 77, &raw const past),
        ];
        release();
        let late = pthread_clockjoin_np(thread, place, monotonic, &raw const far);
        [&early[..], &[late]].concat()
    };
    assert_eq!(result, null_mut());
    answers
}

#[test]
fn it_can_be_joined_by_it_in_time() {
    use std::sync::mpsc;
    let of_a_thread = {
        let (release, released) = mpsc::channel();
        let thread = std::thread::spawn(move || released.recv().unwrap());
        joins_in_time(thread.into_pthread_t(), || release.send(()).unwrap())
    };
    let of_a_fiber = || {
        let (release, released) = mpsc::channel();
        let fiber = spawn(move || released.recv().unwrap());
        joins_in_time(fiber.into_pthread_t(), || release.send(()).unwrap())
    };
    assert_eq!(of_a_fiber(), of_a_thread, "joined by a thread");
    assert_eq!(run(of_a_fiber), of_a_thread, "by a fiber");
    assert_eq!(of_a_thread[0], libc::EBUSY);
    // One that has ended.
    let fiber = spawn(|| ());
    while !fiber.is_finished() {
        yield_now();
    }
    // SAFETY: given up by a handle.
    assert_eq!(unsafe { pthread_tryjoin_np(fiber.into_pthread_t(), null_mut()) }, 0);
}
