//! The control block: the state that a coroutine and its resumer share.
//!
//! It lies near the top of the coroutine's own stack, with the closure below it:
//!
//! ```text
//! +------------------+ <- top of the stack
//! |  colour          |  up to 2 KiB, see `colour`
//! +------------------+
//! |  Control         |
//! +------------------+
//! |  the closure     |  until the first resume moves it out
//! +------------------+
//! |  frames          |
//! ~                  ~
//! ```
//!
//! At any time a coroutine is one of
//!
//! * *suspended*: its one handle (a `Coroutine`) points to the control block, and `pair.own` holds the
//!   coroutine. The owner of the handle may enter it or take it down.
//! * *running*, or waiting for a coroutine that it resumed itself: its resumer waits in
//!   [`enter`](super::switch::enter), with the handle mutably borrowed, and `pair.resumer` holds the
//!   resumer. Only the coroutine itself accesses the block.
//! * *complete*: its handle is null, and the stack is given back.
//!
//! So every field has one owner at a time, and each switch passes the ownership on.

use std::mem::{ManuallyDrop, align_of, offset_of, size_of};

use super::links::Links;
use crate::arch::Pair;
use crate::sanitizer::{Mark, MarkRef};
use crate::stack::Stack;

/// See the module. The two contexts fill a cache line; the rest is rarely needed.
#[repr(C)]
pub(super) struct Control {
    /// The coroutine when it is suspended, its resumer when it is running.
    pub(super) pair: Pair,
    /// Whether the closure was moved out.
    pub(super) started: bool,
    /// The sanitizer's state of the coroutine, and of its resumer.
    pub(super) mark: Mark,
    pub(super) resumer_mark: MarkRef,
    /// Whether the coroutine is being taken down and must only unwind.
    pub(super) unwinding: bool,
    /// Whether the resumer was panicking when it resumed the coroutine, which has not been suspended
    /// since.
    pub(super) resumer_panics: bool,
    /// [`dispose`](super::dispose::dispose) for this coroutine's types.
    pub(super) dispose: unsafe fn(*mut Control),
    /// The coroutine's node in the list of its scope, if it has one.
    pub(super) links: Links,
    /// The stack that all this lies on.
    pub(super) stack: ManuallyDrop<Stack>,
}

// The contexts, and all else in one more cache line. (A sanitizer's marks take more.)
#[cfg(not(any(carefree_asan, carefree_tsan)))]
const _: () = assert!(size_of::<Control>() == 128);

impl Control {
    /// The control block that has these links.
    pub(super) fn of_links(links: *const Links) -> *mut Control {
        links.wrapping_byte_sub(offset_of!(Control, links)).cast::<Control>().cast_mut()
    }

    /// The block's place on a stack, whose other bytes above it stay unused.
    pub(super) fn place(stack: &Stack) -> *mut Control {
        stack
            .top()
            .wrapping_sub(colour(stack) + size_of::<Control>())
            .map_addr(|address| address & !63)
            .cast::<Control>()
    }

    /// Bytes of a stack that the block and a closure of type `F` take at most.
    pub(super) fn room<F>(stack: &Stack) -> usize {
        // Both are placed below an address that is aligned first.
        colour(stack) + size_of::<Control>() + size_of::<F>() + align_of::<F>()
    }

    /// The closure's place: right below the control block.
    pub(super) fn closure<F>(control: *mut Control) -> *mut F {
        control
            .cast::<u8>()
            .wrapping_sub(size_of::<F>())
            .map_addr(|address| address & !(align_of::<F>() - 1))
            .cast()
    }

    /// Gives the stack back, and with it the control block.
    ///
    /// # Safety
    ///
    /// The coroutine is complete, or never started and its closure dropped; nothing uses the block
    /// afterwards.
    pub(super) unsafe fn release(control: *mut Control) {
        // SAFETY: the block is alive until the stack goes back, in the last line. Coroutines leave
        // their scope's list here and nowhere else, so neighbours in it are alive too. The mark was
        // made with the block. The stack's handle is moved out of the stack before it is dropped.
        let stack = unsafe {
            (*control).links.remove();
            (*control).mark.forget();
            (&raw const (*control).stack).cast::<Stack>().read()
        };
        drop(stack);
    }
}

/// The distance of a control block from the top of its stack: cache colouring.
///
/// Stacks start at multiples of their size. If control blocks and first frames all had the same
/// distance from there, those of a thousand coroutines would compete for the same few sets of the
/// processor's caches while the other sets stay empty. Different colours for neighbours made rounds
/// of a hundred or a thousand coroutines faster by a fifth and more. (Fibers, whose switch touches
/// more memory, gained nothing: see the runtime's `furnish.rs`.) Colours take at most half of the
/// first page, so the frames of a small coroutine still fit on that page.
fn colour(stack: &Stack) -> usize {
    stack.top().addr() / stack.size().bytes() % COLOURS * align_of::<Control>()
}

/// See [`colour`].
const COLOURS: usize = 32;
