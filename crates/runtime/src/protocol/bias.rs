//! A lock biased to one owner, which takes and leaves it by two plain stores and a load; and a letter
//! box, into which the owner looks by that same load.
//!
//! Each carrier owns its run queue and uses it at every switch; other carriers (*thieves*) come only to
//! steal. So the owner should not pay for a locked instruction, which costs a third of a switch without
//! thread-local storage (`cargo run --release -p carefree-context --example switch_costs`). This is
//! Dekker's mutual exclusion: each side says that it comes, then looks for the other. The fence between
//! a side's store and its load is cheap for the owner and dear for thieves ([`light`], [`heavy`]).
//!
//! The heavy half interrupts every processor that runs the process, so a thief [asks](Bias::ask)
//! first: it leaves the address of a letter, which the owner takes out when it enters next, and
//! answers. Only where the owner does not come is the lock [taken](Bias::steal) from it.
//!
//! # Proof
//!
//! Owner: `owner = true; light; if !thief {critical}; owner = false (release)`. (`enter`, `leave`)
//! Thief: `thief: false → true (acquire); heavy; if !owner (acquire) {critical}; thief = false
//! (release)`.
//!
//! `thief` stands for `other == thief()`. That the same word also holds letters changes nothing: a thief
//! sets it only where it is `free()`.
//!
//! *Exclusion.* Suppose that owner and thief are both in their critical sections. The owner has read
//! `thief == false` after its fence, and the thief `owner == false` after its own. A light and a heavy
//! fence order as two `SeqCst` fences do, so one of the two must have seen the other's `true`, or a later
//! value. The value was `false`, so it was a later one, which the other has stored when it left: their
//! sections do not overlap. An owner that finds a letter is inside as well: a thief that finds the word
//! free after the letter was taken out comes later than the owner's fence, and sees `owner == true`
//! after its own.
//!
//! *Order.* A side that enters after the other has left has read, with acquire, the `false` that the
//! other stored with release, so it sees all of the other's writes. Thieves exclude each other by the
//! compare-and-swap on `other`.
//!
//! *Letters.* A letter is taken out once: by the owner or by the thread that left it, each by a
//! compare-and-swap from its address. The owner sees what that thread wrote before
//! [`ask`](Bias::ask), which releases.
//!
//! *Progress.* The owner steps back (`owner = false`) while it waits, so the two never wait for
//! each other. A thief gives up after some tries; the owner waits for as long as a thief takes to
//! move half a queue.

use std::ptr::{self, NonNull};

use crate::protocol::sync::{
    AtomicBool, AtomicPtr, Ordering, const_fn, give_way, heavy, light, pause,
};

/// The lock, with letters of type `L`.
#[derive(Debug)]
pub(crate) struct Bias<L = ()> {
    owner: AtomicBool,
    /// [`free`], [`thief`], or a letter.
    other: AtomicPtr<L>,
}

/// How often a thief looks whether the owner has left, whose sections take a few nanoseconds.
#[cfg(not(loom))]
const PATIENCE: u32 = 64;
#[cfg(loom)]
const PATIENCE: u32 = 1;

/// No thief is inside, and no letter lies there.
const fn free<L>() -> *mut L {
    ptr::null_mut()
}

/// A thief is inside, or about to look whether it may be. (No letter has this address.)
const fn thief<L>() -> *mut L {
    ptr::without_provenance_mut(1)
}

impl<L> Bias<L> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Bias { owner: AtomicBool::new(false), other: AtomicPtr::new(free()) }
        }
    }

    /// Enters as the owner; [`leave`](Self::leave) ends it. A letter that lies there is the caller's to
    /// answer.
    ///
    /// # Safety
    /// Only one thread at a time acts as the owner, and it is not inside already.
    #[inline(always)]
    pub(crate) unsafe fn enter(&self) -> Option<NonNull<L>> {
        self.owner.store(true, Ordering::Relaxed);
        light();
        if self.other.load(Ordering::Acquire).is_null() { None } else { self.enter_slow() }
    }

    /// Ends what [`enter`](Self::enter) began.
    ///
    /// # Safety
    /// The caller acts as the owner and is inside.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self) {
        self.owner.store(false, Ordering::Release);
    }

    #[cold]
    fn enter_slow(&self) -> Option<NonNull<L>> {
        loop {
            let other = self.other.load(Ordering::Acquire);
            if other == thief() {
                self.owner.store(false, Ordering::Release);
                while self.other.load(Ordering::Acquire) == thief() {
                    // The thief may have lost its processor inside, and needs this one to leave.
                    give_way();
                }
                self.owner.store(true, Ordering::Relaxed);
                light();
                continue;
            }
            let letter = NonNull::new(other)?;
            let taken =
                self.other.compare_exchange(other, free(), Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return Some(letter);
            }
        }
    }

    /// Leaves a letter for the owner, unless another lies there or a thief is inside.
    ///
    /// The letter must stay until the owner has answered it, or it was [taken back](Self::take_back).
    pub(crate) fn ask(&self, letter: &L) -> bool {
        let letter = ptr::from_ref(letter).cast_mut();
        let left =
            self.other.compare_exchange(free(), letter, Ordering::Release, Ordering::Relaxed);
        left.is_ok()
    }

    /// Takes a letter out again. False: the owner has it, and is answering.
    pub(crate) fn take_back(&self, letter: &L) -> bool {
        let letter = ptr::from_ref(letter).cast_mut();
        let taken =
            self.other.compare_exchange(letter, free(), Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Runs `critical` as a thief; `None` if another thief is inside, a letter lies there, or the owner
    /// stays inside for [`PATIENCE`] looks.
    pub(crate) fn steal<R>(&self, critical: impl FnOnce() -> R) -> Option<R> {
        self.other.compare_exchange(free(), thief(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        heavy();
        let mut tries = 0;
        let entered = loop {
            if !self.owner.load(Ordering::Acquire) {
                break true;
            }
            tries += 1;
            if tries == PATIENCE {
                break false;
            }
            pause();
        };
        let result = entered.then(critical);
        self.other.store(free(), Ordering::Release);
        result
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::protocol::parcel::Parcel;
    use crate::protocol::sync::UnsafeCell;
    use loom::sync::Arc;

    struct Shared {
        bias: Bias<Parcel<usize>>,
        value: UnsafeCell<usize>,
    }

    // SAFETY: loom checks the accesses to the cell.
    unsafe impl Sync for Shared {}
    // SAFETY: nothing in it belongs to one thread.
    unsafe impl Send for Shared {}

    #[test]
    fn owner_and_thieves_exclude_each_other_and_see_each_others_writes() {
        loom::model(|| {
            let shared = Arc::new(Shared { bias: Bias::new(), value: UnsafeCell::new(0) });
            // SAFETY: called inside the bias only; that this is enough is what loom checks.
            let add = |s: &Shared| s.value.with_mut(|v| unsafe { *v += 1 });
            let thief = {
                let shared = shared.clone();
                loom::thread::spawn(move || shared.bias.steal(|| add(&shared)).is_some())
            };
            for _ in 0..2 {
                // SAFETY: this thread alone is the owner.
                assert!(unsafe { shared.bias.enter() }.is_none());
                add(&shared);
                // SAFETY: entered just above.
                unsafe { shared.bias.leave() };
            }
            let stolen = thief.join().unwrap() as usize;
            // SAFETY: the thief has ended, and this thread is the owner.
            let value = shared.value.with_mut(|v| unsafe { *v });
            assert_eq!(value, 2 + stolen);
        });
    }

    /// An owner with four things; a thread that asks for some, and takes by force what it is not given.
    struct Queue {
        bias: Bias<Parcel<usize>>,
        things: UnsafeCell<Vec<usize>>,
    }

    // SAFETY (of the model): what loom is asked to check.
    unsafe impl Sync for Queue {}
    // SAFETY (of the model): its things are numbers, which any thread may own.
    unsafe impl Send for Queue {}

    impl Queue {
        /// As a carrier: answers, and takes one for itself.
        fn next(&self) -> Option<usize> {
            // SAFETY: the model's first thread alone is the owner; the letter is answered once.
            unsafe {
                let letter = self.bias.enter();
                let next = self.things.with_mut(|things| {
                    let things = &mut *things;
                    if let Some(letter) = letter {
                        let half = things.len() / 2;
                        letter.as_ref().fill(things.drain(..half));
                    }
                    things.pop()
                });
                self.bias.leave();
                next
            }
        }

        fn ask(&self, parcel: &Parcel<usize>, got: &mut Vec<usize>) {
            parcel.expect();
            if !self.bias.ask(parcel) {
                return;
            }
            if !parcel.is_filled() && self.bias.take_back(parcel) {
                // SAFETY: inside the bias.
                let forced = self.bias.steal(|| self.things.with_mut(|t| unsafe { (*t).pop() }));
                return got.extend(forced.flatten());
            }
            while !parcel.is_filled() {
                loom::thread::yield_now();
            }
            // SAFETY: asked and filled.
            unsafe { parcel.open(|thing| got.push(thing)) };
        }
    }

    #[test]
    fn each_thing_goes_to_one_side_whether_given_or_taken() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let queue =
                Arc::new(Queue { bias: Bias::new(), things: UnsafeCell::new(vec![1, 2, 3, 4]) });
            let asking = [(); 2].map(|()| {
                let queue = queue.clone();
                loom::thread::spawn(move || {
                    let (parcel, mut got) = (Parcel::new(), Vec::new());
                    queue.ask(&parcel, &mut got);
                    got
                })
            });
            let mut all: Vec<_> = (0..2).filter_map(|_| queue.next()).collect();
            for thread in asking {
                all.extend(thread.join().unwrap());
            }
            while let Some(thing) = queue.next() {
                all.push(thing);
            }
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4]);
        });
    }
}
