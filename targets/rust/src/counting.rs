//! The system's allocator, which counts while it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

pub struct CountingAllocator;

static COUNTING: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicU64 = AtomicU64::new(0);
static OBJECTS: AtomicU64 = AtomicU64::new(0);

/// Bytes and objects that all threads allocate while `run` runs, freed or not. An object that
/// grows stays one.
pub fn count<T>(run: impl FnOnce() -> T) -> (T, u64, u64) {
    COUNTING.store(true, Relaxed);
    let value = run();
    COUNTING.store(false, Relaxed);
    (value, BYTES.load(Relaxed), OBJECTS.load(Relaxed))
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
