//! Stacks: a cell for the memory of each, which loom watches.

use crate::protocol::sync::UnsafeCell;

#[derive(Debug)]
pub(crate) struct FiberStack {
    /// How often it was given back.
    given_back: UnsafeCell<u32>,
}

impl FiberStack {
    pub(crate) fn new() -> FiberStack {
        FiberStack { given_back: UnsafeCell::new(0) }
    }

    /// Reads the memory, as its fiber does all the time, and users of the fiber's `pthread_t`.
    pub(crate) fn touch(&self) {
        // SAFETY: loom looks whether it is.
        let given_back = self.given_back.with(|cell| unsafe { *cell });
        assert_eq!(given_back, 0, "the stack is another fiber's");
    }

    pub(crate) fn times_given_back(&self) -> u32 {
        // SAFETY: loom looks whether it is.
        self.given_back.with(|cell| unsafe { *cell })
    }
}

/// Takes a stack back; the next fiber will write to it.
pub(crate) fn put(stack: *mut FiberStack) {
    // SAFETY: the model keeps the record until its end; loom looks after the cell.
    unsafe { (*stack).given_back.with_mut(|cell| *cell += 1) };
}
