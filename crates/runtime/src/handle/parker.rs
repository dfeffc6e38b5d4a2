//! Fibers that are parked by std.
//!
//! `std::thread::park` waits for a word of std's to change, which only std's `unpark` changes. So that
//! ours ends it too, a fiber that is about to wait for that word leaves std's handle to itself in its
//! header ([`about_to_park`]), where `unpark` finds it. (A plain thread does so as soon as it has a
//! header.) No unpark is lost between the two. The fiber leaves the handle, then looks whether it has
//! a token of ours; `unpark` leaves the token, then looks for a handle. Both touch the token by
//! read-modify-writes: either the fiber's comes second and finds the token, or the other's comes
//! second and finds the handle. One more wake-up than was meant may come of it, as std allows.
//!
//! The other way round there is nothing to be done: what std's `unpark` does to a fiber that
//! [`park`](crate::park)s cannot be seen, unless every park went through std's, at its price.

use std::mem;
use std::thread;

use carefree_context::tls;

use crate::fiber::current::{current_fiber, without_parking};
use crate::fiber::header::FiberRef;

/// What a thread that is parked by std waits to change.
pub const PARKED: u32 = u32::MAX;

/// To be called by a fiber that is about to wait until `word` is not [`PARKED`] any more. If it is
/// std's parker of the calling fiber: lets [`Thread::unpark`](crate::Thread::unpark) end that wait as
/// well.
///
/// Where the word lies is a guess, by what handles of std's are: the address of what they share. If it
/// is wrong, std's parks are ended by std's unparks only.
pub fn about_to_park(word: usize) -> bool {
    let Some(me) = current_fiber() else { return false };
    // Asking std for the handle counts a reference to it, which is dear for what every park does.
    match me.standard() {
        Some(handle) if belongs(word, handle) => {}
        Some(_) => return false,
        None if !note_if_parked(me, word) => return false,
        None => {}
    }
    if me.token.take() {
        if let Some(handle) = me.standard() {
            handle.unpark();
        }
    }
    true
}

/// Whether `word` lies in what the handles of a thread share.
fn belongs(word: usize, handle: &thread::Thread) -> bool {
    /// More than that takes up.
    const SHARED: usize = 64;
    const _: () = assert!(size_of::<thread::Thread>() == size_of::<usize>());
    // SAFETY: of the same size, and any value is a number.
    let shared = unsafe { mem::transmute_copy::<thread::Thread, usize>(handle) };
    word.wrapping_sub(shared) < SHARED
}

/// Asks std for the calling fiber's handle, and notes it if `word` is that handle's.
#[cold]
fn note_if_parked(me: FiberRef, word: usize) -> bool {
    struct HasHandle;
    impl Drop for HasHandle {
        fn drop(&mut self) {}
    }
    thread_local!(static HAS_HANDLE: HasHandle = const { HasHandle });

    // Gone before std's handle is: to ask for that would then be a panic.
    if tls::mode().layout().is_none() || HAS_HANDLE.try_with(|_| ()).is_err() {
        return false;
    }
    let handle = thread::current();
    let parked = belongs(word, &handle);
    if parked {
        // The fiber is about to park, and must not be parked for an allocator before.
        without_parking(|| me.note_standard(handle));
    }
    parked
}
