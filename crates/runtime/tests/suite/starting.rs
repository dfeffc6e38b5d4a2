//! In a crowd, fibers start when they have their turn, and take a stack then.

use std::collections::HashSet;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use carefree_context::stack::{GuardMode, guards};
use carefree_runtime::{Builder, JoinHandle, Runtime, park, run, spawn, yield_now};

use crate::common::{
    in_a_process, in_forced_mode, is_child, limit_address_space, own_tls, panic_on_purpose, text,
    within_reason,
};

fn on_one_carrier<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    within_reason(move || runtime.run(f))
}

/// Has so many fibers wait for their turn on the caller's carrier that the next to be spawned waits for its stack.
fn crowd() {
    (0..100).for_each(|_| drop(spawn(|| ())));
}

/// The page of the caller's stack that it is on.
fn page() -> usize {
    let here = 0u8;
    (&raw const here as usize) >> 12
}

/// Of a crowd in which each yields a few times, few have started and not ended.
#[test]
fn a_crowd_that_ends_soon_takes_few_stacks() {
    // (Where guards are mappings, each has its stack at once.)
    if !own_tls() || guards().mode != GuardMode::Madvise {
        return;
    }
    let pages = on_one_carrier(|| {
        let pages = Arc::new(Mutex::new(HashSet::new()));
        let all: Vec<_> = (0..5_000)
            .map(|_| {
                let pages = pages.clone();
                spawn(move || {
                    pages.lock().unwrap().insert(page());
                    yield_now();
                    yield_now();
                })
            })
            .collect();
        all.into_iter().for_each(|fiber| fiber.join().unwrap());
        pages.lock().unwrap().len()
    });
    // Others of this test's process are no part of the runtime, but take stacks from the same pool.
    assert!((2..500).contains(&pages), "{pages} stacks");
}

/// More that yield than are let start beside others wait for one that has yet to start.
#[test]
fn one_starts_though_many_that_have_started_yield_for_it() {
    on_one_carrier(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let waiting: Vec<_> = (0..200)
            .map(|_| {
                let flag = flag.clone();
                spawn(move || {
                    while !flag.load(Ordering::Acquire) {
                        yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..1_000 {
            yield_now();
        }
        let theirs = flag.clone();
        // (Those that yield are a crowd.)
        spawn(move || theirs.store(true, Ordering::Release)).join().unwrap();
        waiting.into_iter().for_each(|fiber| fiber.join().unwrap());
    });
}

/// One that has started has its turns though there is no end of those that start.
#[test]
fn one_goes_on_though_others_start_all_the_time() {
    fn one_more(flag: Arc<AtomicBool>, ended: Arc<AtomicUsize>) {
        match flag.load(Ordering::Acquire) {
            true => drop(ended.fetch_add(1, Ordering::Release)),
            false => {
                crowd();
                spawn(move || one_more(flag, ended));
            }
        }
    }
    const CHAINS: usize = 10;
    on_one_carrier(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..CHAINS {
            let (flag, ended) = (flag.clone(), ended.clone());
            spawn(move || one_more(flag, ended));
        }
        for _ in 0..1_000 {
            yield_now();
        }
        flag.store(true, Ordering::Release);
        while ended.load(Ordering::Acquire) < CHAINS {
            yield_now();
        }
    });
}

/// Closures of all sizes and alignments are moved to where they run, and dropped once.
#[test]
fn each_closure_is_run_once_and_dropped_once() {
    #[repr(align(128))]
    struct Aligned(u8);
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    const EACH: usize = 50;
    let dropped = Arc::new(AtomicUsize::new(0));
    let theirs = dropped.clone();
    on_one_carrier(move || {
        for n in 0..EACH {
            // Half of them have their stacks at once.
            if n % 4 < 2 {
                crowd();
            }
            let counted = || Counted(theirs.clone());
            let (one, two, three, four) = (counted(), counted(), counted(), counted());
            let (pair, large, aligned) = ([n, !n], [n; 700], Aligned(n as u8));
            let small = spawn(move || drop(one));
            let two_words = spawn(move || pair[0] ^ pair[1]);
            let large = spawn(move || {
                drop(two);
                large.iter().sum::<usize>()
            });
            let aligned = spawn(move || {
                let _counted = three;
                let aligned = aligned;
                assert_eq!((&raw const aligned as usize) % 128, 0);
                aligned.0
            });
            let panics = spawn(move || {
                let _counted = four;
                if n % 2 == 0 {
                    panic_on_purpose()
                }
            });
            small.join().unwrap();
            assert_eq!(two_words.join().unwrap(), usize::MAX);
            assert_eq!(large.join().unwrap(), 700 * n);
            assert_eq!(usize::from(aligned.join().unwrap()), n);
            assert_eq!(panics.join().is_err(), n % 2 == 0);
        }
    });
    assert_eq!(dropped.load(Ordering::Relaxed), 4 * EACH);
}

/// The `pthread_t` of a fiber that has yet to start is the one that it will have.
#[test]
fn the_pthread_of_one_that_has_yet_to_start_is_its_own() {
    fn check() {
        let own = || {
            // (One that has ended, and was not asked before, has none any more.)
            park();
            // SAFETY: the call has no preconditions.
            unsafe { libc::pthread_self() }
        };
        crowd();
        let fibers: Vec<_> = (0..20).map(|_| spawn(own)).collect();
        for fiber in fibers {
            let pthread = fiber.as_pthread_t();
            fiber.thread().unpark();
            let own = fiber.join().unwrap();
            assert!(own == pthread || !own_tls() || in_forced_mode(), "{own:x} {pthread:x}");
        }
    }
    on_one_carrier(check);
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    // From a thread, while the fiber that has spawned it keeps the carrier for a moment.
    let (send, receive) = std::sync::mpsc::channel();
    let first = runtime.spawn(move || {
        crowd();
        // SAFETY: the call has no preconditions.
        send.send(spawn(|| unsafe { libc::pthread_self() })).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
    });
    let fiber = receive.recv().unwrap();
    let pthread = fiber.as_pthread_t();
    let own = fiber.join().unwrap();
    assert!(own == pthread || !own_tls() || in_forced_mode());
    first.join().unwrap();
}

/// A fiber for which there is no stack is refused when it is spawned: each that is not starts and ends.
#[test]
fn each_that_was_spawned_starts_though_there_is_no_memory_for_more() {
    if !is_child() {
        let name = "starting::each_that_was_spawned_starts_though_there_is_no_memory_for_more";
        for carriers in ["1", "2"] {
            let variables = [("MALLOC_ARENA_MAX", "1"), ("CAREFREE_CARRIERS", carriers)];
            let output = in_a_process(name, &variables);
            assert!(output.status.success(), "{}", text(&output));
            assert!(!text(&output).contains("cannot start yet"), "{}", text(&output));
        }
        return;
    }
    if !own_tls() {
        return;
    }
    run(|| ());
    limit_address_space(100 << 20);
    for round in 0..3 {
        let started = Arc::new(AtomicUsize::new(0));
        let theirs = started.clone();
        // None of them has started when the last is refused, but for those that another carrier has taken.
        let parked = run(move || {
            let mut parked: Vec<JoinHandle<()>> = Vec::with_capacity(1_000);
            while parked.len() < 1_000 {
                let started = theirs.clone();
                let fiber = Builder::new().spawn(move || {
                    started.fetch_add(1, Ordering::Relaxed);
                    park();
                });
                match fiber {
                    Ok(fiber) => parked.push(fiber),
                    Err(error) => {
                        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error}");
                        return parked;
                    }
                }
            }
            panic!("the limit has no effect");
        });
        assert!(parked.len() > 100, "{} in round {round}", parked.len());
        let all = parked.len();
        for fiber in parked {
            fiber.thread().unpark();
            fiber.join().unwrap();
        }
        assert_eq!(started.load(Ordering::Relaxed), all);
    }
}

/// The child of a fork has none of the parent's fibers, nor what was promised to them.
#[test]
fn those_that_have_yet_to_start_are_left_to_the_parent_by_a_fork() {
    on_one_carrier(|| {
        let all: Vec<_> = (0..1_000).map(|n| spawn(move || n)).collect();
        // SAFETY: the child only waits for a fiber of its own, and exits.
        match unsafe { libc::fork() } {
            0 => {
                let sum = (0..100).map(|n| spawn(move || n)).map(|fiber| fiber.join().unwrap());
                // The parent's never start here, so this does not wait for it.
                let theirs = all[999].as_pthread_t();
                // SAFETY: the call has no preconditions.
                let is_right =
                    sum.sum::<u32>() == 4950 && theirs != unsafe { libc::pthread_self() };
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(if is_right { 7 } else { 1 }) };
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for the child that was just made.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert_eq!(libc::WEXITSTATUS(status), 7, "{status:x}");
            }
        }
        let sum: usize = all.into_iter().map(|fiber| fiber.join().unwrap()).sum();
        assert_eq!(sum, 999 * 500);
    });
}
