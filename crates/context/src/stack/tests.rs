//! What a pool guarantees, in both guard modes and under injected failures.

use super::sys::inject::{Call, failing};
use super::*;
use std::collections::HashSet;

const SIZE: StackSize = StackSize::DEFAULT;
const MODES: [GuardMode; 2] = [GuardMode::Madvise, GuardMode::Mprotect];

fn pool(guards: GuardMode, idle_bytes: usize) -> StackPool {
    StackPool::with_options(PoolOptions { guards: Some(guards), idle_bytes: Some(idle_bytes) })
}

/// Writes a word just below the top of a stack, and as far down as it goes.
fn touch(stack: &Stack, value: usize) {
    // SAFETY: both words are in the usable part of a stack that is on no pool's list.
    unsafe {
        stack.top().cast::<usize>().sub(1).write_volatile(value);
        stack.limit().cast::<usize>().write_volatile(value);
    }
}

fn words(stack: &Stack) -> [usize; 2] {
    // SAFETY: both words are in the usable part of a stack that is on no pool's list.
    unsafe {
        [
            stack.top().cast::<usize>().sub(1).read_volatile(),
            stack.limit().cast::<usize>().read_volatile(),
        ]
    }
}

/// Whether an address can be read. The kernel reads it, so that this cannot fault.
fn readable(address: *const u8) -> bool {
    let mut pipe = [0; 2];
    // SAFETY: the kernel reads the address, and returns EFAULT if it cannot.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let written = libc::write(pipe[1], address.cast(), 1);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        written == 1
    }
}

fn assert_guarded(stack: &Stack) {
    for offset in [0, stack.guard() - 1] {
        assert!(!readable(stack.base().wrapping_add(offset)), "no guard at {offset} of {stack:?}");
    }
    assert!(readable(stack.limit()) && readable(stack.top().wrapping_sub(1)));
}

fn assert_adds_up(pool: &StackPool, in_use: usize) {
    let stats = pool.stats();
    assert_eq!(stats.in_use, in_use, "{stats:?}");
    assert!(
        stats.in_use + stats.idle_touched + stats.idle_ready + stats.given_back <= stats.slots,
        "{stats:?}"
    );
}

#[test]
fn stacks_are_distinct_aligned_writable_and_guarded() {
    for mode in MODES {
        let pool = pool(mode, 1 << 20);
        for size in [StackSize::MIN, SIZE, StackSize::new(8 << 20).unwrap()] {
            let stacks: Vec<Stack> = (0..200).map(|_| pool.acquire(size).unwrap()).collect();
            let mut bases = HashSet::new();
            for stack in &stacks {
                assert!(bases.insert(stack.base()), "handed out twice");
                // Larger ones begin in the middle of a page table's span.
                let (begin, span) = match size.bytes() > 2 << 20 {
                    true => (1 << 20, 2 << 20),
                    false => (0, sys::page_size()),
                };
                assert_eq!(stack.base() as usize % span, begin);
                assert_eq!(stack.top() as usize - stack.base() as usize, size.bytes());
                assert!(stack.is_fresh());
                assert_eq!(words(stack), [0, 0]);
                assert_guarded(stack);
                touch(stack, stack.base() as usize);
            }
            for stack in &stacks {
                assert_eq!(words(stack), [stack.base() as usize; 2]);
            }
        }
    }
}

#[test]
fn large_stacks() {
    for mode in MODES {
        for bytes in [1 << 29, 16 << 30, 1 << 40] {
            let stack = pool(mode, 1 << 20).acquire(StackSize::new(bytes).unwrap()).unwrap();
            assert!(stack.size().usable() >= bytes);
            // In the middle of a page table's span.
            assert_eq!(stack.base() as usize % (2 << 20), 1 << 20);
            assert_guarded(&stack);
            touch(&stack, 7);
            assert_eq!(words(&stack), [7, 7]);
            assert_eq!(find(stack.limit() as usize), Some(stack.info()));
        }
    }
}

#[test]
fn the_latest_comes_back_first_and_is_not_fresh() {
    for mode in MODES {
        let pool = pool(mode, 1 << 30);
        let stacks: Vec<Stack> = (0..5).map(|_| pool.acquire(SIZE).unwrap()).collect();
        let bases: Vec<_> = stacks.iter().map(Stack::base).collect();
        stacks.into_iter().for_each(drop);
        let again: Vec<Stack> = (0..5).map(|_| pool.acquire(SIZE).unwrap()).collect();
        assert!(again.iter().map(Stack::base).eq(bases.iter().rev().copied()));
        assert!(again.iter().all(|stack| !stack.is_fresh()));
        assert_adds_up(&pool, 5);
    }
}

#[test]
fn many_at_once() {
    for mode in MODES {
        let pool = pool(mode, 1 << 30);
        let mut stacks = Vec::new();
        pool.acquire_many(SIZE, 1000, &mut stacks).unwrap();
        pool.acquire_many(StackSize::MIN, 100, &mut stacks).unwrap();
        pool.acquire_many(SIZE, 0, &mut stacks).unwrap();
        assert_eq!(stacks.len(), 1100);
        assert_eq!(stacks.iter().map(Stack::base).collect::<HashSet<_>>().len(), 1100);
        assert_adds_up(&pool, 1100);
        pool.release_many(&mut stacks);
        assert!(stacks.is_empty());
        assert_adds_up(&pool, 0);
        assert_eq!(pool.stats().idle_touched, 1100);
    }
}

#[test]
fn one_stack_prepares_no_other_and_demand_is_not_outrun() {
    let pool = pool(GuardMode::Madvise, 1 << 30);
    let mut stacks = vec![pool.acquire(SIZE).unwrap()];
    assert_eq!(pool.stats().idle_ready, 0);
    assert_eq!(pool.stats().reserved_bytes, spacing::Spacing::of(SIZE).bytes(7));
    for n in 2..500 {
        stacks.push(pool.acquire(SIZE).unwrap());
        assert!(pool.stats().idle_ready <= n.min(64), "{n} in use, {:?}", pool.stats());
    }
}

#[test]
fn a_million_stacks_need_few_mappings() {
    // How slabs grow depends on what is reserved only, so their number can be found without stacks.
    let size = SIZE;
    let (mut reserved, mut slabs) = (0, Vec::new());
    while reserved < 1_000_000 * size.bytes() {
        let slab = slab::Slab::reserve(size, reserved).unwrap();
        reserved += slab.bytes();
        slabs.push(slab);
    }
    assert!(slabs.len() < 300, "{} mappings", slabs.len());
    assert!(reserved < 1_000_000 * size.bytes() + (2 << 30));
}

#[test]
fn trimming_gives_memory_back_and_keeps_guards() {
    for mode in MODES {
        let pool = pool(mode, 1 << 30);
        let mut stacks = Vec::new();
        pool.acquire_many(SIZE, 300, &mut stacks).unwrap();
        stacks.iter().for_each(|stack| touch(stack, 7));
        let kept = stacks.pop().unwrap();
        pool.release_many(&mut stacks);
        pool.trim();
        let stats = pool.stats();
        assert_eq!((stats.idle_touched, stats.idle_ready, stats.in_use), (0, 0, 1));
        assert!(stats.given_back >= 299);
        assert_eq!(words(&kept), [7, 7], "a stack in use lost its contents");
        pool.acquire_many(SIZE, 299, &mut stacks).unwrap();
        for stack in &stacks {
            assert!(stack.is_fresh());
            assert_eq!(words(stack), [0, 0]);
            assert_guarded(stack);
        }
    }
}

#[test]
fn discarded_stacks_hold_no_memory() {
    for mode in MODES {
        let (pool, other) = (pool(mode, 1 << 30), pool(mode, 1 << 30));
        let mut stacks = Vec::new();
        pool.acquire_many(SIZE, 300, &mut stacks).unwrap();
        other.acquire_many(SIZE, 5, &mut stacks).unwrap();
        stacks.iter().for_each(|stack| touch(stack, 7));
        assert!(stacks[0].resident() >= sys::page_size());
        pool.discard_many(&mut stacks);
        assert!(stacks.is_empty());
        let stats = [pool.stats(), other.stats()];
        assert_eq!(stats.map(|stats| (stats.in_use, stats.idle_touched)), [(0, 0); 2]);
        assert!(stats[0].given_back >= 300 && stats[1].given_back >= 5);
        pool.acquire_many(SIZE, 300, &mut stacks).unwrap();
        for stack in &stacks {
            assert_eq!(words(stack), [0, 0]);
            assert_guarded(stack);
        }
    }
}

#[test]
fn page_tables_of_discarded_stacks_are_given_back() {
    const STACKS: usize = 10_000;
    for size in [SIZE, StackSize::new(8 << 20).unwrap()] {
        let pool = pool(GuardMode::Madvise, 1 << 20);
        let mut stacks = Vec::new();
        for round in 0..2 {
            let [kept, idle] = [(); 2].map(|()| pool.acquire(size).unwrap());
            while stacks.len() < STACKS {
                pool.acquire_many(size, STACKS - stacks.len(), &mut stacks).unwrap();
            }
            let all = pool.stats();
            // One that stays in use keeps its slab, and so do those that idle with their memory. (These are of small slabs.)
            touch(&kept, 7);
            drop(idle);
            pool.discard_many(&mut stacks);
            let rest = pool.stats();
            assert!(rest.reserved_bytes < all.reserved_bytes / 2, "{round}: {all:?} {rest:?}");
            assert_eq!((rest.in_use, rest.idle_touched), (1, 1));
            assert!(rest.given_back < STACKS / 4, "{rest:?}");
            assert_eq!(words(&kept), [7, 7]);
            drop(kept);
        }
    }
}

#[test]
fn idle_memory_stays_at_the_watermark() {
    for mode in MODES {
        let page = sys::page_size();
        // Room for a hundred stacks of one touched page each.
        let pool = pool(mode, 100 * page);
        let mut stacks = Vec::new();
        pool.acquire_many(SIZE, 1000, &mut stacks).unwrap();
        // SAFETY: the word below the top is the stack's.
        stacks.iter().for_each(|stack| unsafe { stack.top().cast::<usize>().sub(1).write(7) });
        stacks.into_iter().for_each(drop);
        let stats = pool.stats();
        assert!((100..=125).contains(&stats.idle_touched), "{stats:?}");
        assert_eq!(stats.given_back, 1000 - stats.idle_touched);
    }
}

#[test]
fn deeply_used_stacks_count_by_the_memory_they_hold() {
    let page = sys::page_size();
    let pool = pool(GuardMode::Madvise, 1000 * page);
    let mut stacks = Vec::new();
    pool.acquire_many(SIZE, 600, &mut stacks).unwrap();
    for stack in &stacks {
        for offset in (page..=10 * page).step_by(page) {
            // SAFETY: within the top ten pages of the stack.
            unsafe { stack.top().wrapping_sub(offset).write(7) };
        }
    }
    stacks.into_iter().for_each(drop);
    let idle = pool.stats().idle_touched;
    assert!((100..=125).contains(&idle), "{idle} idle stacks of ten pages");
}

#[test]
fn find_knows_the_slot_of_every_address() {
    let pool = pool(GuardMode::Madvise, 1 << 20);
    let stack = pool.acquire(SIZE).unwrap();
    let info = stack.info();
    assert_eq!((info.top - info.base, info.size, info.guard), (256 << 10, 256 << 10, 64 << 10));
    for address in [info.base, info.base + 12345, info.top - 1] {
        assert_eq!(find(address), Some(info));
    }
    assert_ne!(find(info.top), Some(info));
    assert_ne!(find(info.base - 1), Some(info));
    drop(pool);
    assert_eq!(find(info.base), Some(info), "a stack outlives its pool");
    touch(&stack, 1);
}

#[test]
fn every_single_failure_is_reported_or_has_no_effect() {
    for mode in MODES {
        for call in [Call::Mmap, Call::Madvise, Call::ProcessMadvise, Call::Mprotect] {
            for errno in [libc::ENOMEM, libc::EINVAL] {
                for n in 0..10 {
                    let pool = pool(mode, 0);
                    let mut stacks = Vec::new();
                    failing(call, n, 1, errno, || {
                        for wanted in [1, 1, 30, 200] {
                            if let Err(error) = pool.acquire_many(SIZE, wanted, &mut stacks) {
                                assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
                                assert!(
                                    error
                                        .to_string()
                                        .starts_with("cannot allocate a stack of 256 KiB: "),
                                    "{error}"
                                );
                            }
                        }
                        let half = stacks.split_off(stacks.len() / 2);
                        half.into_iter().for_each(drop);
                        pool.trim();
                    });
                    stacks.iter().for_each(assert_guarded);
                    assert_adds_up(&pool, stacks.len());
                    // After the failure everything works again.
                    pool.acquire_many(SIZE, 100, &mut stacks).unwrap();
                    let bases: HashSet<_> = stacks.iter().map(Stack::base).collect();
                    assert_eq!(bases.len(), stacks.len(), "{mode} {call:?} {errno} {n}");
                    stacks.iter().rev().take(100).step_by(9).for_each(assert_guarded);
                }
            }
        }
    }
}

#[test]
fn lasting_failures_are_reported_by_name() {
    for (mode, call, errno, expected) in [
        (
            GuardMode::Madvise,
            Call::Mmap,
            libc::EPERM,
            "mmap failed: Operation not permitted (os error 1)",
        ),
        (GuardMode::Madvise, Call::Mmap, libc::EAGAIN, "(RLIMIT_MEMLOCK) is reached"),
        (GuardMode::Madvise, Call::Mmap, libc::ENOMEM, "out of memory"),
        (
            GuardMode::Mprotect,
            Call::Mprotect,
            libc::EACCES,
            "a guard by mprotect failed: Permission denied",
        ),
    ] {
        let pool = pool(mode, 0);
        let error = failing(call, 0, u32::MAX, errno, || pool.acquire(SIZE).unwrap_err());
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(pool.stats().in_use, 0);
        assert_guarded(&pool.acquire(SIZE).unwrap());
    }
}

#[test]
fn a_smaller_slab_is_taken_if_a_large_one_is_refused() {
    let pool = pool(GuardMode::Madvise, 0);
    // The first slab would hold seven stacks; two halvings leave one.
    let stack = failing(Call::Mmap, 0, 2, libc::ENOMEM, || pool.acquire(SIZE).unwrap());
    assert_guarded(&stack);
    assert_eq!(pool.stats().slots, 1);
}

#[test]
fn without_batches_single_advice_is_given() {
    let pool = pool(GuardMode::Madvise, 0);
    let mut stacks = Vec::new();
    failing(Call::ProcessMadvise, 0, u32::MAX, libc::ENOSYS, || {
        pool.acquire_many(SIZE, 200, &mut stacks).unwrap();
        stacks.iter().for_each(assert_guarded);
        stacks.iter().for_each(|stack| touch(stack, 7));
        pool.release_many(&mut stacks);
        pool.trim();
        assert_eq!(pool.stats().idle_touched, 0);
        assert!(pool.stats().given_back >= 200);
    });
    let stack = pool.acquire(SIZE).unwrap();
    assert!(stack.is_fresh());
    assert_eq!(words(&stack), [0, 0]);
}

#[test]
fn where_memory_is_locked_guards_are_made_by_mprotect_and_memory_stays() {
    let pool = pool(GuardMode::Madvise, 0);
    let mut stacks = Vec::new();
    failing(Call::ProcessMadvise, 0, u32::MAX, libc::EINVAL, || {
        // The first advice on a single range is the one against huge pages; all others fail.
        failing(Call::Madvise, 1, u32::MAX, libc::EINVAL, || {
            pool.acquire_many(SIZE, 3, &mut stacks).unwrap()
        });
    });
    assert_eq!(stacks.len(), 3);
    stacks.iter().for_each(assert_guarded);
    stacks.iter().for_each(|stack| touch(stack, 7));
    failing(Call::Madvise, 0, u32::MAX, libc::EINVAL, || {
        drop(stacks.pop());
        pool.trim();
    });
    let stats = pool.stats();
    assert_eq!(
        (stats.idle_touched, stats.given_back),
        (1, 0),
        "memory that stayed is not said to be given back"
    );
    assert!(!pool.acquire(SIZE).unwrap().is_fresh());
}

#[test]
fn address_space_of_idle_stacks_is_unmapped() {
    for mode in MODES {
        let pool = pool(mode, 1 << 30);
        let large = StackSize::new(64 << 20).unwrap();
        let mut stacks = Vec::new();
        pool.acquire_many(SIZE, 1000, &mut stacks).unwrap();
        let kept = stacks.swap_remove(500);
        touch(&kept, 7);
        pool.acquire_many(large, 3, &mut stacks).unwrap();
        let bases: Vec<usize> = stacks.iter().map(|stack| stack.base() as usize).collect();
        assert_eq!(pool.shed(), 0, "nothing is idle: {:?}", pool.stats());
        pool.release_many(&mut stacks);
        let before = pool.stats().reserved_bytes;
        let shed = pool.shed();
        let after = pool.stats();
        assert_eq!(after.reserved_bytes, before - shed);
        // Only the slab of the stack in use stays, one of many.
        assert!(shed > 3 * large.bytes() && after.reserved_bytes >= 2 << 20, "{after:?}");
        assert!(after.reserved_bytes < 1000 * SIZE.bytes(), "{after:?}");
        assert_adds_up(&pool, 1);
        let mapped = bases.iter().filter(|base| find(**base).is_some()).count();
        assert!(mapped < 1000, "shed, and still found");
        // The remaining slots are each on one list, and new slots have numbers of their own.
        pool.acquire_many(SIZE, 3000, &mut stacks).unwrap();
        pool.acquire_many(large, 2, &mut stacks).unwrap();
        let distinct: HashSet<_> = stacks.iter().map(Stack::base).collect();
        assert_eq!(distinct.len(), 3002);
        assert!(!distinct.contains(&kept.base()));
        stacks.iter().step_by(7).for_each(assert_guarded);
        assert_eq!(words(&kept), [7, 7]);
        drop(kept);
        pool.release_many(&mut stacks);
        pool.shed();
        assert_eq!(pool.stats().reserved_bytes, 0);
        assert_guarded(&pool.acquire(SIZE).unwrap());
    }
}

#[test]
fn idle_stacks_are_shed_when_address_space_runs_out() {
    let pool = pool(GuardMode::Madvise, 1 << 30);
    let small = StackSize::MIN;
    drop(pool.acquire(small).unwrap());
    // A slab of seven and its halvings are refused; then there is room.
    let stack = failing(Call::Mmap, 0, 3, libc::ENOMEM, || pool.acquire(SIZE).unwrap());
    assert_guarded(&stack);
    assert_eq!(
        pool.stats().reserved_bytes,
        spacing::Spacing::of(SIZE).bytes(7),
        "the small one's slab is gone"
    );
    // Without idle stacks nothing can be shed.
    let error = failing(Call::Mmap, 0, u32::MAX, libc::ENOMEM, || pool.acquire(small));
    assert!(error.is_err());
    assert_adds_up(&pool, 1);
}

/// Two threads may reserve a slab at the same time, and both take from the first.
#[test]
fn a_slab_that_was_not_needed_is_shed() {
    let threads = std::sync::Barrier::new(3);
    for _ in 0..50 {
        let pool = pool(GuardMode::Madvise, 1 << 30);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    threads.wait();
                    drop(pool.acquire(SIZE).unwrap());
                });
            }
        });
        pool.shed();
        assert_eq!(pool.stats(), StackStats::default());
    }
}

#[test]
fn slabs_are_shed_while_stacks_are_acquired_and_released() {
    let pool = pool(GuardMode::Madvise, 1 << 30);
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let pool = &pool;
            scope.spawn(move || {
                let mut stacks = Vec::new();
                for round in 0..60 {
                    pool.acquire_many(SIZE, 1 + (round * 37 + thread * 11) % 90, &mut stacks)
                        .unwrap();
                    stacks.iter().for_each(|stack| touch(stack, thread + 1));
                    assert!(stacks.iter().all(|stack| words(stack) == [thread + 1; 2]));
                    if round % 3 == 0 {
                        stacks.clear();
                        pool.shed();
                    } else {
                        pool.release_many(&mut stacks);
                    }
                }
            });
        }
    });
    assert_adds_up(&pool, 0);
    pool.shed();
    assert_eq!(pool.stats(), StackStats::default());
}

/// Whether so many more stacks are promised; not where guards are mappings: on an older kernel, under emulation, or
/// since another test of this process has locked its memory.
fn promises(pool: &StackPool, count: usize) -> bool {
    match pool.promise(SIZE, count) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            eprintln!("skipped: guards are mappings here");
            false
        }
        promised => {
            promised.unwrap();
            true
        }
    }
}

/// What is promised is neither handed out to others nor shed, and is there when no address space is.
#[test]
fn promised_stacks_are_kept_for_their_holders() {
    let pool = pool(GuardMode::Madvise, 1 << 30);
    if !promises(&pool, 5) {
        return;
    }
    assert!(pool.stats().reserved_bytes > 0);
    // A slab has seven, so two are free.
    let mut others = Vec::new();
    let error = failing(Call::Mmap, 0, u32::MAX, libc::ENOMEM, || {
        assert_eq!(pool.shed(), 0);
        pool.acquire_many(SIZE, 3, &mut others).unwrap();
        pool.acquire(SIZE).unwrap_err()
    });
    assert_eq!((others.len(), error.kind()), (2, std::io::ErrorKind::OutOfMemory));
    let refused = failing(Call::Mmap, 0, u32::MAX, libc::ENOMEM, || pool.promise(SIZE, 1));
    assert!(refused.is_err());
    let mut mine = Vec::new();
    failing(Call::Mmap, 0, u32::MAX, libc::ENOMEM, || {
        pool.acquire_promised(SIZE, 3, &mut mine).unwrap();
        pool.acquire_promised(SIZE, 1, &mut mine).unwrap();
    });
    mine.iter().chain(&others).for_each(assert_guarded);
    assert_eq!((mine.len(), pool.stats().promised), (4, 1));
    // One that was released is as good as any for the last promise.
    drop(others);
    pool.release_many(&mut mine);
    assert_eq!(pool.shed(), 0, "the one slab has the promised one");
    pool.unpromise(SIZE, 1);
    assert!(pool.shed() > 0);
    assert_eq!(pool.stats(), StackStats::default());
}

#[test]
fn promises_hold_while_others_acquire() {
    let pool = pool(GuardMode::Madvise, 1 << 30);
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let pool = &pool;
            scope.spawn(move || {
                let mut stacks = Vec::new();
                for round in 0..60 {
                    let count = 1 + (round * 37 + thread * 11) % 90;
                    if !promises(pool, 2 * count) {
                        return;
                    }
                    pool.acquire_many(SIZE, count, &mut stacks).unwrap();
                    pool.acquire_promised(SIZE, count, &mut stacks).unwrap();
                    stacks.iter().for_each(|stack| touch(stack, thread + 1));
                    assert!(stacks.iter().all(|stack| words(stack) == [thread + 1; 2]));
                    // As many as there are of promises.
                    pool.unpromise(SIZE, 3 * count - stacks.len());
                    pool.release_many(&mut stacks);
                    pool.shed();
                }
            });
        }
    });
    assert_eq!(pool.stats().promised, 0);
    assert_adds_up(&pool, 0);
    pool.shed();
    assert_eq!(pool.stats(), StackStats::default());
}

/// Several threads take what was promised to them at the same time, and there is no more.
#[test]
fn stacks_on_their_way_do_not_count_against_the_promises_of_others() {
    let threads = std::sync::Barrier::new(4);
    for _ in 0..30 {
        let pool = pool(GuardMode::Madvise, 1 << 30);
        if !promises(&pool, 100) {
            return;
        }
        let each = pool.stats().slots / 4;
        if !promises(&pool, pool.stats().slots - 100) {
            return;
        }
        let take = || {
            threads.wait();
            let mut stacks = Vec::new();
            failing(Call::Mmap, 0, u32::MAX, libc::ENOMEM, || {
                for _ in 0..each {
                    pool.acquire_promised(SIZE, 1, &mut stacks).unwrap();
                }
            });
            stacks
        };
        let kept: Vec<_> = std::thread::scope(|scope| {
            let all = [(); 4].map(|()| scope.spawn(take));
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(kept.len(), 4);
        assert_eq!(pool.stats().promised, pool.stats().slots - 4 * each);
    }
}
