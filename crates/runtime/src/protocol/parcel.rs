//! What one thread asks another for: a letter with room for the answer.
//!
//! The asking thread [awaits](Parcel::expect) it and leaves the parcel in the other's letter box (see
//! `bias`); the answering thread [fills](Parcel::fill) it; the asking thread [opens](Parcel::open) it.
//!
//! # Proof
//! The places belong to the answering thread from the moment it takes the letter out until it stores
//! the count, with release; from the load of that count, with acquire, they are the asking thread's
//! again. The asking thread touches them only after [`is_filled`](Parcel::is_filled) has said so, or
//! after it has taken the letter back, in which case no other thread has seen it.

use std::mem::MaybeUninit;

use crate::protocol::sync::{AtomicU32, Ordering, UnsafeCell};

/// Things that one parcel has room for.
#[cfg(not(loom))]
pub(crate) const ROOM: usize = 128;
#[cfg(loom)]
pub(crate) const ROOM: usize = 2;

/// It was not answered yet.
const EXPECTED: u32 = u32::MAX;

/// What comes of asking.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    /// The first of what was inside.
    Thing(T),
    /// There is none to be had, or another thread is asking.
    Nothing,
    /// The other thread has not answered, though it has some.
    Unanswered,
}

/// See the module. Never at an odd address, which means something else to a letter box.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Parcel<T> {
    /// How many things are inside, or [`EXPECTED`].
    count: AtomicU32,
    places: UnsafeCell<[MaybeUninit<T>; ROOM]>,
}

// SAFETY: by the proof above one thread at a time has the places.
unsafe impl<T: Send> Sync for Parcel<T> {}

impl<T: Copy> Parcel<T> {
    pub(crate) fn new() -> Self {
        Parcel {
            count: AtomicU32::new(0),
            places: UnsafeCell::new([const { MaybeUninit::uninit() }; ROOM]),
        }
    }

    /// The caller is about to leave it in a letter box.
    pub(crate) fn expect(&self) {
        // Published by the letter box.
        self.count.store(EXPECTED, Ordering::Relaxed);
    }

    /// Answers with up to [`ROOM`] things, or with none.
    ///
    /// # Safety
    /// The caller took it out of its letter box, and answers once.
    pub(crate) unsafe fn fill(&self, things: impl Iterator<Item = T>) {
        let mut count = 0;
        self.places.with_mut(|places| {
            // SAFETY: the places are the answering thread's.
            let places = unsafe { &mut *places };
            for (place, thing) in places.iter_mut().zip(things) {
                place.write(thing);
                count += 1;
            }
        });
        self.count.store(count, Ordering::Release);
    }

    /// Whether it was answered.
    pub(crate) fn is_filled(&self) -> bool {
        self.count.load(Ordering::Acquire) != EXPECTED
    }

    /// Hands over what is inside, the first thing first.
    ///
    /// # Safety
    /// The caller asked, the parcel [is filled](Self::is_filled), and this is called once for that.
    pub(crate) unsafe fn open(&self, mut to: impl FnMut(T)) {
        let count = self.count.load(Ordering::Relaxed) as usize;
        self.places.with(|places| {
            // SAFETY: the places are the asking thread's again, and so many were written.
            let places = unsafe { &(&(*places))[..count] };
            for place in places {
                // SAFETY: the answering thread has written the first `count` places.
                to(unsafe { place.assume_init() });
            }
        });
    }
}
