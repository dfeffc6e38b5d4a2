//! Alternate stacks for handlers (`sigaltstack`).
//!
//! A thread's is remembered, and its handlers are called there; but it is not the kernel's: the carrier would
//! have it in force for other threads, and still when the thread has ended and its memory serves another purpose.
//! libc's own handler for `setuid` and its kin is called on an alternate stack.
//!
//! Whether a thread is on its alternate stack, the kernel decides by the stack pointer, and so does this: a
//! handler may be left by `siglongjmp`.

use std::ffi::c_int;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;

use carefree_ground::kernel;
use carefree_interpose::thread::alternate_stack::{NO_STACK, SS_AUTODISARM, check};
use libc::stack_t;

use crate::place;
use crate::thread::record::{self, Alternate, Record};

/// What the kernel has for the calling kernel thread.
pub(super) fn kernels() -> stack_t {
    let mut stack = NO_STACK;
    let arguments = [0, (&raw mut stack) as usize, 0, 0, 0, 0];
    // SAFETY: room for the answer.
    let _ = unsafe { kernel::call(libc::SYS_sigaltstack, arguments) };
    stack
}

/// Gives the kernel another one for the calling kernel thread.
fn give_kernels(stack: &stack_t) {
    let arguments = [std::ptr::from_ref(stack) as usize, 0, 0, 0, 0, 0];
    // SAFETY: a description of none, or of one that the program has set for the caller.
    let _ = unsafe { kernel::call(libc::SYS_sigaltstack, arguments) };
}

/// Has the kernel forget the calling kernel thread's.
pub(super) fn take_kernels() {
    give_kernels(&NO_STACK);
}

/// The process's first thread becomes a fiber: what the kernel has for it is remembered.
pub(super) fn adopt(record: &Record) {
    let stack = kernels();
    let flags = stack.ss_flags & !libc::SS_ONSTACK;
    *record.alternate.lock() = Alternate(stack_t { ss_flags: flags, ..stack });
}

/// In the child of a fork, whose caller ends to be a fiber: from now on the kernel calls its handlers.
pub(crate) fn give_back(record: &Record) {
    let Alternate(stack) = *record.alternate.lock();
    give_kernels(&stack);
}

/// Whether the caller runs on it.
#[inline(never)]
pub(super) fn is_callers(stack: &stack_t) -> bool {
    let here = 0u8;
    is_within(stack, &raw const here as usize)
}

/// Whether what has its stack pointer there runs on it.
fn is_within(stack: &stack_t, place: usize) -> bool {
    let distance = place.wrapping_sub(stack.ss_sp as usize);
    stack.ss_flags & (SS_AUTODISARM | libc::SS_DISABLE) == 0
        && (1..=stack.ss_size).contains(&distance)
}

/// A handler that asks for an alternate stack is to be called: the end of the stack, or 0 if it is the caller's.
pub(super) fn enter(record: &Record) -> usize {
    let mut alternate = record.alternate.lock();
    let stack = alternate.0;
    if stack.ss_flags & libc::SS_DISABLE != 0 || is_callers(&stack) {
        return 0;
    }
    if stack.ss_flags & SS_AUTODISARM != 0 {
        *alternate = Alternate(NO_STACK);
    }
    stack.ss_sp as usize + stack.ss_size
}

/// The stack at whose end a handler that asks for an alternate one begins, if a thread with its stack pointer at
/// `place` is interrupted; `None` if that goes on where it is.
#[cfg(target_arch = "x86_64")]
pub(super) fn range_for(record: &Record, place: usize) -> Option<Range<usize>> {
    let stack = record.alternate.lock().0;
    let is_other = stack.ss_flags & libc::SS_DISABLE == 0 && !is_within(&stack, place);
    is_other.then(|| stack.ss_sp as usize..stack.ss_sp as usize + stack.ss_size)
}

/// A handler runs on the stack, if the thread has one.
pub(super) fn disarm(record: &Record) {
    let mut alternate = record.alternate.lock();
    if alternate.0.ss_flags & SS_AUTODISARM != 0 {
        *alternate = Alternate(NO_STACK);
    }
}

/// Gives the calling hosted thread another one: an `errno` if it cannot have that now.
pub(super) fn set(record: &Record, stack: &stack_t) -> Result<(), c_int> {
    let mut alternate = record.alternate.lock();
    if is_callers(&alternate.0) {
        return Err(libc::EPERM);
    }
    *alternate = Alternate(check(stack)?);
    Ok(())
}

/// `sigaltstack` of a hosted thread: an `errno`, or 0; `None` if the caller is none.
///
/// # Safety
/// Descriptions, or null.
pub(crate) unsafe fn alternate_stack(new: *const stack_t, old: *mut stack_t) -> Option<c_int> {
    let (_, record) = record::current()?;
    let Alternate(mut before) = *record.alternate.lock();
    if is_callers(&before) {
        before.ss_flags |= libc::SS_ONSTACK;
    }
    // Read before there is a lock: a fault of that would be handled by a function that takes it.
    let exchange = || {
        if !new.is_null() {
            // SAFETY: as this function demands.
            set(record, &unsafe { place::read(new) }?)?;
        }
        if old.is_null() {
            return Ok(());
        }
        // SAFETY: as this function demands.
        unsafe { place::write(old, before) }
    };
    Some(exchange().err().unwrap_or(0))
}
