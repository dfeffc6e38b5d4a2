//! Fields that one thread writes and others, such as the watchdog, may read at any time: as a
//! [`Cell`](std::cell::Cell), and as fast, but readers need not be ordered with the writer. They may read
//! an old value, but only one that was written.

use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Whether a header is a fiber's or a plain thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fiber = 0,
    Thread = 1,
}

/// For a pointer to a type of a module above this one.
pub(crate) enum Opaque {}

/// A pointer that other threads may read.
pub(crate) struct Pointer<T>(AtomicPtr<T>);

impl<T> Pointer<T> {
    pub(crate) const fn new(pointer: *const T) -> Self {
        Pointer(AtomicPtr::new(pointer.cast_mut()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const T {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, pointer: *const T) {
        self.0.store(pointer.cast_mut(), Ordering::Relaxed);
    }
}

/// A [`Kind`] that other threads may read.
pub(crate) struct SharedKind(AtomicU8);

impl SharedKind {
    pub(crate) const fn new(kind: Kind) -> Self {
        SharedKind(AtomicU8::new(kind as u8))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Kind {
        match self.0.load(Ordering::Relaxed) {
            0 => Kind::Fiber,
            _ => Kind::Thread,
        }
    }

    #[inline(always)]
    pub(crate) fn set(&self, kind: Kind) {
        self.0.store(kind as u8, Ordering::Relaxed);
    }
}
