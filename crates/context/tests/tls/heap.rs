//! malloc on fibers that move.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Fiber, Slot, bodies, isolated, layout, run_all, run_on, yield_now};

#[test]
fn hundreds_of_moving_fibers_allocate_and_free() {
    for threads in [1, 2, 3] {
        // More fibers than blocks, so that blocks are reused.
        run_all(threads, 200, bodies(400, |seed| move || churn(seed as u64 + 1)));
    }
}

/// Of a size that nothing else here asks for.
const UNUSUAL: usize = 999;

/// Frees a block on the calling thread or fiber; returns its address.
fn free_one() -> usize {
    // SAFETY: a plain allocation, freed once.
    unsafe {
        let address = std::hint::black_box(libc::malloc(UNUSUAL));
        libc::free(address);
        address as usize
    }
}

/// What one fiber frees is what the next one gets, and the thread that runs both: from the cache of that
/// thread.
#[test]
fn fibers_use_the_malloc_of_the_thread_that_runs_them() {
    let is_static = cfg!(target_feature = "crt-static");
    if is_static || std::env::var_os("CAREFREE_MALLOC").is_some() {
        return assert!(!layout().lends_malloc());
    }
    if cfg!(any(carefree_asan, carefree_tsan)) {
        return println!("skipped: malloc is the sanitizer's");
    }
    assert!(layout().lends_malloc(), "not recognised in this version of libc");
    let found = Arc::new(AtomicUsize::new(0));
    let fiber = || {
        let found = found.clone();
        Fiber::new(Slot::new(), move || {
            found.store(free_one(), Ordering::Relaxed);
            yield_now();
            found.store(free_one(), Ordering::Relaxed);
        })
    };
    let (mut first, mut second) = (fiber(), fiber());
    let here = free_one();
    for fiber in [&mut first, &mut second] {
        fiber.enter();
        assert_eq!(found.load(Ordering::Relaxed), here);
    }
    // On another thread it uses that one's, and what was freed here stays.
    std::thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            let there = free_one();
            first.enter();
            assert_eq!(found.load(Ordering::Relaxed), there);
            there
        });
        assert_ne!(elsewhere.join().unwrap(), here);
    });
    assert_eq!(free_one(), here);
    second.enter();
    assert_eq!(found.load(Ordering::Relaxed), here);
}

/// Fibers of threads that use malloc's first arena, which counts its users, are refused memory: malloc has each
/// leave for another arena, and ends the process if more leave one than have come.
#[test]
fn fibers_that_are_refused_memory_leave_no_arena_twice() {
    isolated("heap::fibers_that_are_refused_memory_leave_no_arena_twice", &[], || {
        // No more arenas than there are: threads use them by turns.
        // SAFETY: sets a parameter.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        for _ in 0..4 {
            let slots: Vec<_> = (0..8).map(|_| Slot::new()).collect();
            let thread = std::thread::spawn(|| {
                for slot in slots {
                    drop(run_on(slot, || {
                        const TOO_MUCH: usize = isize::MAX as usize / 2;
                        // SAFETY: nothing is done with it.
                        let refused = unsafe { std::hint::black_box(libc::malloc(TOO_MUCH)) };
                        assert!(refused.is_null());
                    }));
                }
            });
            thread.join().unwrap();
        }
    });
}

/// Allocates, grows and frees, moving in between, and checks that nothing else wrote there.
fn churn(seed: u64) {
    let mut state = seed;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut kept: Vec<(*mut u8, usize)> = Vec::new();
    let check = |(address, size): (*mut u8, usize)| {
        // SAFETY: allocated below, with this many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(address, size) };
        assert!(bytes.iter().all(|byte| *byte == size as u8));
    };
    for step in 0..200 {
        let size = 1 + random(if step % 20 == 0 { 100_000 } else { 1_500 }) as usize;
        match random(4) {
            0 | 1 => {
                // SAFETY: plain allocation, filled to its size.
                unsafe {
                    let address = libc::malloc(size).cast::<u8>();
                    assert!(!address.is_null());
                    address.write_bytes(size as u8, size);
                    kept.push((address, size));
                }
            }
            2 if !kept.is_empty() => {
                let (address, old) = kept.swap_remove(random(kept.len() as u64) as usize);
                check((address, old));
                // SAFETY: allocated above, not freed yet.
                unsafe {
                    let address = libc::realloc(address.cast(), size).cast::<u8>();
                    assert!(!address.is_null());
                    address.write_bytes(size as u8, size);
                    kept.push((address, size));
                }
            }
            _ => {
                if let Some(block) = kept.pop() {
                    check(block);
                    // SAFETY: allocated above, not freed yet.
                    unsafe { libc::free(block.0.cast()) };
                }
            }
        }
        if step % 3 == 0 {
            yield_now();
        }
    }
    for block in kept {
        check(block);
        // SAFETY: allocated above, not freed yet.
        unsafe { libc::free(block.0.cast()) };
    }
}
