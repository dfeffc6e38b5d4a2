//! Alternate stacks for handlers (`sigaltstack`).
//!
//! A thread's is remembered and told, and not the kernel's: the carrier would have it in force for other
//! threads, and still when the thread has ended and its memory serves another purpose. libc's own handler for
//! `setuid` and its kin is called on an alternate stack.

use std::ffi::c_int;

use carefree_ground::kernel;
use libc::stack_t;

use crate::thread::record::{self, Alternate, NO_STACK, set_errno};

/// What the kernel has for the calling kernel thread.
pub(super) fn kernels() -> stack_t {
    let mut stack = NO_STACK;
    let arguments = [0, (&raw mut stack) as usize, 0, 0, 0, 0];
    // SAFETY: room for the answer.
    let _ = unsafe { kernel::call(libc::SYS_sigaltstack, arguments) };
    stack
}

/// Has the kernel forget the calling kernel thread's.
pub(super) fn take_kernels() {
    let none = NO_STACK;
    let arguments = [(&raw const none) as usize, 0, 0, 0, 0, 0];
    // SAFETY: a description of no stack.
    let _ = unsafe { kernel::call(libc::SYS_sigaltstack, arguments) };
}

/// Whether the kernel would take it: an `errno` if not.
fn check(stack: &stack_t) -> Result<stack_t, c_int> {
    const SS_AUTODISARM: c_int = 1 << 31;
    match stack.ss_flags & !SS_AUTODISARM {
        libc::SS_DISABLE => Ok(NO_STACK),
        0 | libc::SS_ONSTACK if stack.ss_size < libc::MINSIGSTKSZ => Err(libc::ENOMEM),
        0 | libc::SS_ONSTACK => Ok(stack_t { ss_flags: stack.ss_flags & SS_AUTODISARM, ..*stack }),
        _ => Err(libc::EINVAL),
    }
}

stand_in! {
    /// `sigaltstack(2)`.
    fn sigaltstack(new: *const stack_t, old: *mut stack_t) -> c_int {
        let Some((_, record)) = record::current() else {
            // SAFETY: the caller's arguments.
            return unsafe { next(new, old) };
        };
        // SAFETY: the caller's argument, null or a description.
        let wanted = match unsafe { new.as_ref() }.map(check).transpose() {
            Ok(wanted) => wanted,
            Err(errno) => {
                set_errno(errno);
                return -1;
            }
        };
        let Alternate(before) = *record.alternate.lock();
        if let Some(wanted) = wanted {
            *record.alternate.lock() = Alternate(wanted);
        }
        if !old.is_null() {
            // SAFETY: the caller's argument, room for a description.
            unsafe { old.write(before) };
        }
        0
    }
}
