//! An allocator with a cache for each thread: mimalloc, below a small one written here. Each fiber
//! must have a cache of its own on any carrier, and its cache must be freed when it ends.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use carefree::{Runtime, offload, scope, sleep, spawn, yield_now};
use mimalloc::MiMalloc;

/// Caches blocks of one size for each thread, as allocators do.
struct Caching;

const BLOCK: Layout = match Layout::from_size_align(64, 16) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};
/// Blocks a cache holds.
const ROOM: usize = 32;
/// A block of a cached size.
type Numbers = Box<[u64; 6]>;

/// The second word of a free block.
const FREE: usize = 0x6672_6565;

/// Free blocks, linked through their first words.
struct Cache {
    first: Cell<*mut [usize; 2]>,
    count: Cell<usize>,
}

thread_local! {
    static CACHE: Cache = const { Cache { first: Cell::new(ptr::null_mut()), count: Cell::new(0) } };
}

/// The number of blocks in caches.
static CACHED: AtomicUsize = AtomicUsize::new(0);
/// The number of blocks that fibers allocated after their caches were destroyed.
static LATE: AtomicUsize = AtomicUsize::new(0);

impl Cache {
    fn take(&self) -> Option<*mut u8> {
        let block = self.first.get();
        // SAFETY: a block in this thread's list, so it is free.
        let [next, state] = unsafe { block.as_mut()? };
        assert_eq!(*state, FREE, "a block was given out twice");
        *state = 0;
        self.first.set(*next as *mut [usize; 2]);
        self.count.set(self.count.get() - 1);
        CACHED.fetch_sub(1, Relaxed);
        Some(block.cast())
    }

    fn put(&self, block: *mut u8) -> bool {
        if self.count.get() == ROOM {
            return false;
        }
        let block = block.cast::<[usize; 2]>();
        // SAFETY: its owner has freed the block.
        unsafe { block.write([self.first.get() as usize, FREE]) };
        self.first.set(block);
        self.count.set(self.count.get() + 1);
        CACHED.fetch_add(1, Relaxed);
        true
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        while let Some(block) = self.take() {
            // SAFETY: mimalloc has allocated it with this layout.
            unsafe { MiMalloc.dealloc(block, BLOCK) };
        }
    }
}

fn is_cached(layout: Layout) -> bool {
    (33..=BLOCK.size()).contains(&layout.size()) && layout.align() <= BLOCK.align()
}

// SAFETY: blocks come from mimalloc, and each is in one cache or has one owner.
unsafe impl GlobalAlloc for Caching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_cached(layout) {
            // SAFETY: the same contract as this function's.
            return unsafe { MiMalloc.alloc(layout) };
        }
        let cached = CACHE.try_with(Cache::take).unwrap_or_else(|_| {
            // (Threads that end, such as the pool's, may allocate then.)
            if IS_FIBER.get() {
                LATE.fetch_add(1, Relaxed);
            }
            None
        });
        // SAFETY: `BLOCK` is at least as large and as aligned as `layout`.
        cached.unwrap_or_else(|| unsafe { MiMalloc.alloc(BLOCK) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `alloc` has allocated the block from mimalloc, with `BLOCK` if its layout is cached.
        unsafe {
            if !is_cached(layout) {
                MiMalloc.dealloc(block, layout);
            } else if !CACHE.try_with(|cache| cache.put(block)).unwrap_or(false) {
                MiMalloc.dealloc(block, BLOCK);
            }
        }
    }
}

#[global_allocator]
static ALLOCATOR: Caching = Caching;

thread_local! {
    /// Whether this is a fiber of the tests. Has no destructor, so it can be read to the end.
    static IS_FIBER: Cell<bool> = const { Cell::new(false) };
    /// Has a destructor that frees, and that is registered before or after the cache's.
    static KEPT: RefCell<Vec<Numbers>> = const { RefCell::new(Vec::new()) };
}

/// Allocates, waits in ways that move a fiber to another carrier, and frees. Some of the memory is
/// freed by the joining fiber, some when the thread-local variables are destroyed.
fn lives(number: u64) -> Vec<Numbers> {
    IS_FIBER.set(true);
    let mut own = Vec::new();
    for turn in 0..4 {
        own.push(Box::new([number + turn; 6]));
        KEPT.with_borrow_mut(|kept| kept.push(Box::new([number; 6])));
        drop(black_box(vec![0u8; (number * 37 + turn * 1001) as usize % 5000]));
        match (number + turn) % 64 {
            0 => offload(|| drop(black_box(Box::new([number; 6])))),
            n if n % 8 == 1 => sleep(Duration::from_micros(n)),
            _ => yield_now(),
        }
        assert!(own.iter().zip(0..).all(|(values, turn)| **values == [number + turn; 6]));
    }
    own
}

/// Fibers pass allocations to another fiber, which frees them.
fn pass_on() {
    let (send, receive) = mpsc::channel::<Numbers>();
    scope(|scope| {
        for number in 0..32 {
            let send = send.clone();
            scope.spawn(move || (0..100).for_each(|_| send.send(Box::new([number; 6])).unwrap()));
        }
        drop(send);
        for values in receive {
            assert!(values.iter().all(|value| *value == values[0]));
        }
    });
}

/// The process's resident memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn ten_thousand_fibers_with_caches_of_their_own() {
    let runtime = Runtime::builder().carriers(4).build().unwrap();
    let late = LATE.load(Relaxed);
    let mut sizes = Vec::new();
    for count in [10_000, 4000, 4000] {
        runtime.run(|| {
            let fibers: Vec<_> = (0..count).map(|number| spawn(move || lives(number))).collect();
            for (number, fiber) in fibers.into_iter().enumerate() {
                assert_eq!(*fiber.join().unwrap()[0], [number as u64; 6]);
            }
            pass_on();
        });
        sizes.push(resident() >> 20);
    }
    assert_eq!(
        LATE.load(Relaxed) - late,
        0,
        "allocations of fibers after the end of their variables"
    );
    drop(runtime);
    // The caches of threads that still exist.
    let cached = CACHED.load(Relaxed);
    assert!(cached <= 32 * ROOM, "{cached} blocks are in the caches of fibers that have ended");
    // The last round includes what those before it have leaked. How many fibers are alive at once
    // varies, but a leaked heap would take some hundred KiB for each of thousands.
    let before = sizes[0].max(sizes[1]);
    assert!(sizes[2] <= before + 128, "memory in MiB after each round: {sizes:?}");
}
