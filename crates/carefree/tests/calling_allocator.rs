//! A program's allocator that calls Carefree, also where the runtime asks it for memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carefree::{Builder, Runtime, Semaphore};

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

thread_local! {
    /// What the allocator calls when this fiber asks for memory; not while it does so.
    static CALL: Cell<Option<fn()>> = const { Cell::new(None) };
}

struct Calling;

impl Calling {
    fn call() {
        if let Some(call) = CALL.take() {
            call();
            CALL.set(Some(call));
        }
    }
}

// SAFETY: the memory is the system allocator's.
unsafe impl GlobalAlloc for Calling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Calling::call();
        // SAFETY: `System` asks its callers for what this function asks of its own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Calling::call();
        // SAFETY: all memory that `alloc` gives out is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Calling = Calling;

/// Fibers with names, for which memory is needed, and without; of those that `call` spawns, all end.
fn with(call: fn()) {
    for carriers in [1, 2] {
        let runtime = Runtime::builder().carriers(carriers).build().unwrap();
        let sum = runtime.run(move || {
            let mut sum = 0;
            for _ in 0..10 {
                CALL.set(Some(call));
                let fibers: Vec<_> = (0..100)
                    .map(|number| {
                        let name = if number % 2 == 0 { "named" } else { "" };
                        Builder::new().name(name.into()).spawn(move || number).unwrap()
                    })
                    .collect();
                CALL.set(None);
                sum += fibers.into_iter().map(|fiber| fiber.join().unwrap()).sum::<u32>();
            }
            sum
        });
        assert_eq!(sum, 10 * (0..100).sum::<u32>());
    }
}

#[test]
fn an_allocator_may_spawn() {
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    static SPAWNED: AtomicUsize = AtomicUsize::new(0);
    with(|| {
        SPAWNED.fetch_add(1, Ordering::Relaxed);
        drop(carefree::spawn(|| ENDED.fetch_add(1, Ordering::Relaxed)));
    });
    assert!(SPAWNED.load(Ordering::Relaxed) > 1000);
    while ENDED.load(Ordering::Relaxed) < SPAWNED.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_allocator_may_yield() {
    with(carefree::yield_now);
}

#[test]
fn an_allocator_may_sleep_and_wait() {
    static FREE: Semaphore = Semaphore::new(1);
    with(|| {
        carefree::sleep(Duration::from_micros(1));
        drop(FREE.acquire());
    });
}
