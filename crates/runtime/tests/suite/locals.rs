//! Fibers' thread-local storage, and their moves from carrier to carrier.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use carefree_context::tls;
use carefree_runtime::{Runtime, sleep, spawn, yield_now};

use crate::common::{LONG, in_forced_mode, own_tls};

/// The kernel's number of the carrier.
fn carrier() -> i64 {
    // SAFETY: gettid has no arguments and always succeeds.
    unsafe { libc::syscall(libc::SYS_gettid) }
}

#[test]
fn each_fiber_has_its_own_and_ends_it() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(1000) };
        static COUNTED: RefCell<Option<Counted>> = const { RefCell::new(None) };
    }
    if !own_tls() {
        return;
    }
    let ended = Arc::new(AtomicUsize::new(0));
    // The second round runs on stacks and blocks that the first has used.
    for round in 1..=2 {
        let handles: Vec<_> = (0..100)
            .map(|n| {
                let ended = ended.clone();
                spawn(move || {
                    assert_eq!(NUMBER.replace(n), 1000);
                    assert!(COUNTED.replace(Some(Counted(ended))).is_none());
                    for _ in 0..3 {
                        yield_now();
                        assert_eq!(NUMBER.get(), n);
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
        assert_eq!(ended.load(Ordering::Relaxed), round * 100);
    }
}

/// A fiber that spawns takes stacks from its carrier, a plain thread from the process's pool: both
/// must hand out blocks with initial values.
#[test]
fn the_next_fiber_on_a_stack_starts_anew_wherever_it_is_spawned() {
    struct Ends(Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(1000) };
        static ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
    }
    if !own_tls() {
        return;
    }
    let ended = Arc::new(AtomicUsize::new(0));
    let in_turn = |ended: &Arc<AtomicUsize>| {
        for n in 0..100 {
            let ended = ended.clone();
            let handle = spawn(move || {
                assert_eq!(NUMBER.replace(n), 1000);
                assert!(ENDS.replace(Some(Ends(ended))).is_none());
            });
            handle.join().unwrap();
        }
    };
    in_turn(&ended);
    carefree_runtime::run(|| in_turn(&ended));
    assert_eq!(ended.load(Ordering::Relaxed), 200);
}

#[test]
fn the_error_number_is_a_fibers_own() {
    if !own_tls() {
        return;
    }
    // SAFETY: errno is the fiber's own variable.
    let errno = || unsafe { libc::__errno_location() };
    let handles: Vec<_> = (1..20)
        .map(|n| {
            spawn(move || {
                for _ in 0..50 {
                    // SAFETY: errno is the fiber's own variable; its address is asked for anew each time.
                    unsafe { *errno() = n };
                    yield_now();
                    // SAFETY: errno is the fiber's own variable; its address is asked for anew each time.
                    assert_eq!(unsafe { *errno() }, n);
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn fibers_migrate_and_nothing_is_mixed_up() {
    thread_local! {
        static MINE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }
    let runtime = Runtime::builder().carriers(2).build().unwrap();
    let begun = Instant::now();
    let rounds = if in_forced_mode() { 100 } else { 400 };
    loop {
        let handles: Vec<_> = (0..64)
            .map(|n| {
                runtime.spawn(move || {
                    let id = std::thread::current().id();
                    let mut carriers = HashSet::from([carrier()]);
                    let mut kept = Vec::new();
                    for round in 0..rounds {
                        // Allocated on one carrier, and perhaps freed on another.
                        kept.push(vec![n; 1 + (round * 37 + n) % 500]);
                        if kept.len() > 8 {
                            let old = kept.swap_remove(round % 8);
                            assert!(old.iter().all(|value| *value == n));
                        }
                        if own_tls() {
                            MINE.with_borrow_mut(|mine| mine.push(n));
                        }
                        if round % 40 == 39 {
                            sleep(Duration::from_micros(50));
                        } else {
                            yield_now();
                        }
                        carriers.insert(carrier());
                        if own_tls() {
                            assert_eq!(std::thread::current().id(), id);
                            MINE.with_borrow(|mine| assert_eq!(mine.len(), round + 1));
                        }
                    }
                    if own_tls() {
                        MINE.with_borrow(|mine| assert!(mine.iter().all(|m| *m == n)));
                    }
                    carriers.len()
                })
            })
            .collect();
        let most = handles.into_iter().map(|handle| handle.join().unwrap()).max().unwrap();
        if !own_tls() {
            assert_eq!(most, 1, "fibers stay on their carriers in shared mode");
            return;
        }
        if most > 1 {
            return;
        }
        assert!(begun.elapsed() < LONG, "no fiber was ever on two carriers");
    }
}

/// malloc's cache for a thread is the carrier's: what one fiber frees, the next one gets, and 1,000 that each
/// allocate have no 1,000 caches. (Where malloc is not libc's, it knows fibers as threads, as it should.)
#[test]
fn fibers_allocate_from_their_carriers_cache() {
    /// Of a size that nothing else here asks for.
    const UNUSUAL: usize = 999;
    let lends = || tls::mode().layout().is_some_and(tls::Layout::lends_malloc);
    if !lends() {
        return println!("skipped: fibers have malloc's cache of their own here");
    }
    fn free_one() -> usize {
        // SAFETY: a plain allocation, freed once.
        unsafe {
            let address = std::hint::black_box(libc::malloc(UNUSUAL));
            libc::free(address);
            address as usize
        }
    }
    let runtime = Runtime::builder().carriers(1).build().unwrap();
    let addresses = runtime.run(|| {
        let fibers: Vec<_> = (0..1_000)
            .map(|_| {
                spawn(|| {
                    let before = free_one();
                    yield_now();
                    [before, free_one()]
                })
            })
            .collect();
        fibers.into_iter().flat_map(|fiber| fiber.join().unwrap()).collect::<HashSet<_>>()
    });
    // (More than one only if a busy machine has had a carrier added.)
    assert!(addresses.len() < 10, "{} caches", addresses.len());
}

/// Fibers that have allocated on one carrier free on others, and blocks are whole.
#[test]
fn memory_is_whole_wherever_it_is_freed() {
    let runtime = Runtime::builder().carriers(4).build().unwrap();
    let fibers: Vec<_> = (0..400u64)
        .map(|seed| {
            runtime.spawn(move || {
                let mut random = seed + 1;
                let mut kept: Vec<Vec<u8>> = Vec::new();
                for step in 0..300 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let size =
                        (random >> 33) as usize % if step % 50 == 0 { 200_000 } else { 1_500 };
                    match random >> 62 {
                        0 | 1 => kept.push(vec![size as u8; size]),
                        _ if kept.is_empty() => {}
                        2 => drop(kept.swap_remove(random as usize % kept.len())),
                        _ => {
                            let last = kept.last_mut().expect("it is not empty");
                            let byte = last.len() as u8;
                            assert!(last.iter().all(|found| *found == byte), "{seed}");
                            last.resize(size, size as u8);
                            last.fill(size as u8);
                        }
                    }
                    if step % 7 == 0 {
                        yield_now();
                    }
                    if step % 100 == 0 {
                        sleep(Duration::from_micros(random >> 56));
                    }
                }
                for block in kept {
                    let byte = block.len() as u8;
                    assert!(block.iter().all(|found| *found == byte), "{seed}");
                }
            })
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}
