//! Turns: what one fiber at a time may do with a file.
//!
//! The kernel holds a lock of the file's over a call that we make in several steps. So the fiber that makes
//! the steps has the file's turn meanwhile, and others of this process wait for it. And of those that
//! wait for the same lock on a file, one asks for it, whose turn it is (see `locks`). A file is known by its
//! inode, for it may go by several numbers.
//!
//! Whoever has a turn is in a list, by a record in its own frame: the lists have no limit and allocate
//! nothing, since the program's allocator could park a fiber that has one locked. Those that wait for the
//! turn stand in a ring with it, in the order in which they came. A turn that ends is handed to the
//! next of the ring, which takes the place in the list: each end of a turn wakes one, and no other can
//! snatch what that one was woken for.
//!
//! *No turn is missed.* It is handed over under the list's lock, and then the next is unparked, which
//! asks as the lot's `validate` whether it has the turn ([`carefree_runtime::lot`]). A waiter whose
//! wait ends otherwise leaves the ring under that lock as well: if it finds that the turn has been handed to
//! it meanwhile, it hands it on.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::kernel;
use carefree_ground::lock::Lock;
use carefree_reactor::clock::NEVER;
use carefree_runtime::wait::{self, Until};
use carefree_runtime::{Outcome, Reason, clock, lot};

use crate::parking::interruption;

/// A file, whatever its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
}

/// What is done with a file by one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// A call in several steps.
    Steps,
    /// A lock is asked for: the command, the kind, and the range with what it is relative to.
    Lock { command: c_int, kind: c_int, start: i64, length: i64, from: c_int },
}

/// A turn: one at a time may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) file: Identity,
    pub(crate) deed: Deed,
}

/// One that has a turn or waits for it; it stays where it is from when it enters until it leaves.
struct Place {
    turn: Turn,
    /// Whether it has the turn. Set under the list's lock, for good.
    has: AtomicBool,
    /// Its neighbours in the ring: the one that has the turn, and those that wait, in their order.
    next: Cell<*const Place>,
    previous: Cell<*const Place>,
    /// The next in the list, of those that have turns.
    other: Cell<*const Place>,
}

/// Some of those that have turns.
struct List(*const Place);

// SAFETY: the records in a list and its rings live while they are there, and are reached under its
// lock only.
unsafe impl Send for List {}

const LISTS: usize = 1024;
static TAKEN: [Lock<List>; LISTS] = [const { Lock::new(List(ptr::null())) }; LISTS];

impl Identity {
    pub(crate) fn of(fd: c_int) -> Result<Identity, c_int> {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        let arguments = [fd as usize, status.as_mut_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: there is room for the answer; the layout is the kernel's own on 64-bit machines.
        unsafe { kernel::call(libc::SYS_fstat, arguments) }?;
        // SAFETY: the call has succeeded and so filled it.
        let status = unsafe { status.assume_init() };
        Ok(Identity { device: status.st_dev, inode: status.st_ino })
    }

    /// A number that two files rarely have in common.
    pub(crate) fn hash(self) -> u64 {
        (self.inode ^ self.device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Turn {
    fn list(self) -> &'static Lock<List> {
        let more = match self.deed {
            Deed::Lock { start, length, .. } => (start ^ length.rotate_left(32)) as u64,
            Deed::Steps => 0,
        };
        let hash = (self.file.hash() ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &TAKEN[(hash >> 32) as usize % LISTS]
    }
}

impl List {
    /// The one that has `turn`.
    fn holder(&self, turn: Turn) -> Option<&Place> {
        let mut next = self.0;
        // SAFETY: a record in the list lives.
        while let Some(place) = unsafe { next.as_ref() } {
            if place.turn == turn {
                return Some(place);
            }
            next = place.other.get();
        }
        None
    }

    /// Puts `new` where `place` is in the list, or nothing if it is null.
    fn replace(&mut self, place: &Place, new: *const Place) {
        let mut following = place.other.get();
        // SAFETY: a record that waits in a ring lives.
        if let Some(new) = unsafe { new.as_ref() } {
            new.other.set(following);
            following = new;
        }
        if ptr::eq(self.0, place) {
            self.0 = following;
            return;
        }
        let mut before = self.0;
        // SAFETY: a record in the list lives.
        while let Some(other) = unsafe { before.as_ref() } {
            if ptr::eq(other.other.get(), place) {
                other.other.set(following);
                return;
            }
            before = other.other.get();
        }
    }
}

impl Place {
    fn new(turn: Turn) -> Place {
        let [next, previous, other] = [const { Cell::new(ptr::null()) }; 3];
        Place { turn, has: AtomicBool::new(false), next, previous, other }
    }

    fn has(&self) -> bool {
        self.has.load(Ordering::Acquire)
    }

    /// Takes the turn, or a place at the end of the ring.
    fn enter(&self) -> Entered<'_> {
        let mut list = self.turn.list().lock();
        match list.holder(self.turn) {
            Some(holder) => {
                let last = holder.previous.get();
                self.next.set(holder);
                self.previous.set(last);
                holder.previous.set(self);
                // SAFETY: those in the ring live; the last may be the holder itself.
                unsafe { (*last).next.set(self) };
            }
            None => {
                self.next.set(self);
                self.previous.set(self);
                self.other.set(list.0);
                self.has.store(true, Ordering::Relaxed);
                list.0 = self;
            }
        }
        Entered(self)
    }

    /// Leaves the ring, and hands over the turn if it has come.
    fn leave(&self) {
        let mut list = self.turn.list().lock();
        let (next, previous) = (self.next.get(), self.previous.get());
        // SAFETY: those in the ring live.
        unsafe {
            (*previous).next.set(next);
            (*next).previous.set(previous);
        }
        if !self.has() {
            return;
        }
        if ptr::eq(next, self) {
            return list.replace(self, ptr::null());
        }
        list.replace(self, next);
        // SAFETY: as above.
        unsafe { (*next).has.store(true, Ordering::Release) };
        drop(list);
        // It may be gone by now: then another that waits by this name, which is for such waits alone, looks
        // again whether it has its turn.
        lot::unpark(Place::key(next), 1);
    }

    /// Names the wait for a turn. Not an address that anything could have, nor a name of `files`.
    fn key(place: *const Place) -> usize {
        1 << 63 | 1 << 61 | place as usize
    }
}

/// One that has entered: it leaves when this is dropped.
struct Entered<'p>(&'p Place);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// How one waits for a turn.
pub(crate) struct Patience {
    pub(crate) reason: Reason,
    pub(crate) deadline: u64,
    /// The error when it was others' turn until then.
    pub(crate) late: c_int,
    /// How often it looks, in nanoseconds, whether it can do without the turn.
    pub(crate) looks: u64,
}

/// Calls `f` when it is the caller's turn, which it is until `f` is over; or until then `look` now
/// and then, whose answer serves as well.
///
/// # Errors
/// `late` when it was others' turn until `deadline`; why the fiber was interrupted while it waited.
pub(crate) fn in_turn_unless<R>(
    turn: Turn,
    patience: &Patience,
    mut look: impl FnMut() -> Option<R>,
    f: impl FnOnce() -> R,
) -> Result<R, c_int> {
    let &Patience { reason, deadline, late, looks } = patience;
    let place = Place::new(turn);
    let _entered = place.enter();
    while !place.has() {
        let next_look = clock::now().saturating_add(looks);
        let until = Until { deadline: deadline.min(next_look), cancellable: true };
        let outcome = wait::park(Place::key(&place), || !place.has(), reason, until);
        count(outcome);
        carefree_runtime::interrupted().map_err(interruption)?;
        if outcome == Outcome::TimedOut && !place.has() {
            if deadline <= clock::now() {
                return Err(late);
            }
            if let Some(answer) = look() {
                return Ok(answer);
            }
        }
    }
    Ok(f())
}

/// Calls `f` when it is the caller's turn with the file `fd`, which it is until `f` is over.
///
/// # Errors
/// As for [`in_turn_unless`]; that there is no such file.
pub(crate) fn in_turn<R>(
    fd: c_int,
    reason: Reason,
    deadline: u64,
    late: c_int,
    f: impl FnOnce() -> R,
) -> Result<R, c_int> {
    let turn = Turn { file: Identity::of(fd)?, deed: Deed::Steps };
    in_turn_unless(turn, &Patience { reason, deadline, late, looks: NEVER }, || None, f)
}

/// Calls `f` with each turn that is had. It must not park, nor ask for turns.
pub(crate) fn for_each_had(mut f: impl FnMut(Turn)) {
    for list in &TAKEN {
        let list = list.lock();
        let mut next = list.0;
        // SAFETY: a record in the list lives.
        while let Some(place) = unsafe { next.as_ref() } {
            f(place.turn);
            next = place.other.get();
        }
    }
}

/// Counts the wakes in this crate's own tests: see `crowds`.
#[inline(always)]
pub(crate) fn count(_outcome: Outcome) {
    #[cfg(test)]
    crate::crowds::count(_outcome);
}

/// How many turns are had.
#[cfg(test)]
pub(crate) fn had() -> usize {
    let mut count = 0;
    for_each_had(|_| count += 1);
    count
}

/// How many wait for turns.
#[cfg(test)]
pub(crate) fn waiting() -> usize {
    let mut count = 0;
    for list in &TAKEN {
        let list = list.lock();
        let mut first = list.0;
        // SAFETY: the records in a list and in its rings live.
        while let Some(place) = unsafe { first.as_ref() } {
            let mut next = place.next.get();
            while !ptr::eq(next, place) {
                count += 1;
                // SAFETY: as above.
                next = unsafe { (*next).next.get() };
            }
            first = place.other.get();
        }
    }
    count
}

/// In the child of a fork nothing has a turn.
#[used]
#[unsafe(link_section = ".init_array")]
static MIND_FORKS: extern "C" fn() = {
    extern "C" fn mind_forks() {
        unsafe extern "C" fn renew() {
            // SAFETY: the child has one thread, and that one was forking.
            TAKEN.iter().for_each(|list| unsafe { list.renew(List(ptr::null())) });
        }
        // SAFETY: the handler touches nothing but the lists.
        unsafe { libc::pthread_atfork(None, None, Some(renew)) };
    }
    mind_forks
};
