//! What a Rust program allocates, counted where it asks: in the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The system's allocator, which counts while it is told to.
///
/// It is of use only as a program's `#[global_allocator]`. While it does not count it costs one
/// look at a flag.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicU64 = AtomicU64::new(0);
static OBJECTS: AtomicU64 = AtomicU64::new(0);

/// What was allocated meanwhile, freed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Bytes asked for. Of an object that grows, what it grows by.
    pub bytes: u64,
    /// Objects: an object that grows stays one.
    pub objects: u64,
}

/// Counts what all threads allocate while `f` runs. `None` where the program's allocator is
/// another one. One count at a time: a second one would take part of the first.
pub fn count<T>(f: impl FnOnce() -> T) -> (T, Option<Allocations>) {
    BYTES.store(0, Relaxed);
    OBJECTS.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
    // Tells whether anybody counts: no program of any use allocates nothing.
    drop(std::hint::black_box(Box::new(0_u8)));
    let value = f();
    COUNTING.store(false, Relaxed);
    let (bytes, objects) = (BYTES.load(Relaxed), OBJECTS.load(Relaxed));
    let counted =
        Allocations { bytes: bytes.saturating_sub(1), objects: objects.saturating_sub(1) };
    (value, (objects > 0).then_some(counted))
}

fn note(bytes: usize, objects: u64) {
    if COUNTING.load(Relaxed) {
        BYTES.fetch_add(bytes as u64, Relaxed);
        OBJECTS.fetch_add(objects, Relaxed);
    }
}

// SAFETY: every call goes on to the system's allocator as it is, which keeps the contract; what
// stands before it touches statics alone, allocates nothing and does not unwind.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 1);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size.saturating_sub(layout.size()), 0);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(object, layout, size) }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(object, layout) }
    }
}
