//! Fibers that are parked by std.
//!
//! `std::thread::park` waits for a word of std's to change, which only std's `unpark` changes. So that
//! [`Thread::unpark`](crate::Thread::unpark) ends that wait, too, a fiber that is about to wait for the
//! word puts std's handle to itself into its header ([`about_to_park`]), where `unpark` finds it. (A plain
//! thread does so when it gets its header.)
//!
//! No unpark is lost in between. The fiber puts the handle there, then looks for a token; `unpark` sends
//! the token, then looks for a handle. Both access the token by read-modify-writes. If the fiber's comes
//! second, it finds the token; otherwise `unpark` finds the handle. From then on every `unpark` finds it:
//! its access to the token comes after the fiber's. So only the wait that puts the handle there looks for a
//! token, and later ones pay for no locked instruction. A token that is left then lets the next
//! [`park`](crate::park) return at once: the fiber may be woken once too often, which std allows.
//!
//! The reverse is not possible: std's `unpark` of a fiber that waits in [`park`](crate::park) changes only
//! std's word. `park` would have to be built on std's, and be as slow.

use std::mem;
use std::thread;

use carefree_context::tls;

use crate::fiber::current::{current_fiber, without_parking};
use crate::fiber::header::FiberRef;

/// The value of std's word while its thread is parked.
pub const PARKED: u32 = u32::MAX;

/// To be called by a fiber that is about to wait until the word at `word` is not [`PARKED`] any more. If that
/// is the word of std's for the calling fiber, [`Thread::unpark`](crate::Thread::unpark) will end the wait,
/// too. Returns whether it is.
///
/// This is a guess: the word should lie close behind the address that a handle of std's consists of. If the
/// guess is wrong, std's parks are ended by std's unparks only.
#[inline(always)]
pub fn about_to_park(word: usize) -> bool {
    let Some(me) = current_fiber() else { return false };
    // Asked of the header first, for std counts a reference to the handle, which costs too much at each park.
    match me.standard() {
        Some(handle) => belongs(word, handle),
        None => note_if_parked(me, word),
    }
}

/// Whether `word` lies in the memory that all handles of std's to this thread point to.
#[inline(always)]
fn belongs(word: usize, handle: &thread::Thread) -> bool {
    /// No less than the bytes of that memory.
    const SHARED: usize = 64;
    // Before Rust 1.87 a handle was two words.
    if size_of::<thread::Thread>() != size_of::<usize>() {
        return false;
    }
    // SAFETY: the two types have the same size, and a handle is one pointer: any bits are a number.
    let shared = unsafe { mem::transmute_copy::<thread::Thread, usize>(handle) };
    word.wrapping_sub(shared) < SHARED
}

/// Asks std for the calling fiber's handle, and notes it if `word` is that handle's. Then an unpark that has come
/// before ends the wait that is about to begin.
#[cold]
#[inline(never)]
fn note_if_parked(me: FiberRef, word: usize) -> bool {
    struct HasHandle;
    impl Drop for HasHandle {
        fn drop(&mut self) {}
    }
    thread_local!(static HAS_HANDLE: HasHandle = const { HasHandle });

    // This variable ends before std's handle does. After that, asking for the handle would panic.
    if tls::mode().layout().is_none() || HAS_HANDLE.try_with(|_| ()).is_err() {
        return false;
    }
    let handle = thread::current();
    let parked = belongs(word, &handle);
    if parked {
        // The fiber is about to park, and must not park in the allocator before.
        without_parking(|| me.note_standard(handle));
        if me.token.take() {
            if let Some(handle) = me.standard() {
                handle.unpark();
            }
        }
    }
    parked
}
