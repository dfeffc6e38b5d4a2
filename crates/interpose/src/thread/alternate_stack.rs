//! Alternate stacks for handlers of signals (`sigaltstack`): a fiber has one of its own.
//!
//! It is remembered, but not given to the kernel, which has one for each kernel thread: the carrier would have it
//! in force for other fibers, and still when the fiber has ended and freed its memory, as libraries do in the
//! destructor of a thread-local variable. Handlers that ask for an alternate stack are called on the carrier's,
//! which has a guard and room for what programs do in handlers (`carefree_context::overflow`). A fiber that has
//! set none is told of that one, so a library that looks for one of some size finds it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use carefree_ground::kernel;
use libc::stack_t;

use crate::call::answer::{Answer, answer};
use crate::call::host;
use crate::call::user::User;

/// While a handler runs on the stack, the thread has none.
pub const SS_AUTODISARM: c_int = 1 << 31;

/// What a thread has that has set none.
pub const NO_STACK: stack_t =
    stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

/// What the kernel keeps of a stack that a thread asks for.
///
/// # Errors
/// An `errno`, if it would not take it.
pub fn check(stack: &stack_t) -> Result<stack_t, c_int> {
    match stack.ss_flags & !SS_AUTODISARM {
        libc::SS_DISABLE => Ok(NO_STACK),
        0 | libc::SS_ONSTACK if stack.ss_size < libc::MINSIGSTKSZ => Err(libc::ENOMEM),
        0 | libc::SS_ONSTACK => Ok(stack_t { ss_flags: stack.ss_flags & SS_AUTODISARM, ..*stack }),
        _ => Err(libc::EINVAL),
    }
}

/// The key under which a fiber that has set one keeps it, boxed. (Not a thread-local variable: each fiber would have
/// its bytes, and few set a stack.)
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();

/// # Safety
/// A box of [`set_own`]'s, that nothing uses any more.
unsafe extern "C" fn free(own: *mut c_void) {
    // SAFETY: as this function demands.
    drop(unsafe { Box::from_raw(own.cast::<stack_t>()) });
}

/// What the fiber has set, if it has.
fn own() -> Option<stack_t> {
    let key = (*KEY.get()?)?;
    // SAFETY: null, or a box of `set_own`'s, which lives until the fiber sets another one or ends.
    unsafe { libc::pthread_getspecific(key).cast::<stack_t>().as_ref() }.copied()
}

/// # Errors
/// `ENOMEM` where there is no key left, or no memory for its value.
fn set_own(stack: stack_t) -> Result<(), c_int> {
    let make = || {
        let mut key = 0;
        // SAFETY: room for the key, and a function for its values.
        (unsafe { libc::pthread_key_create(&raw mut key, Some(free)) } == 0).then_some(key)
    };
    let key = (*KEY.get_or_init(make)).ok_or(libc::ENOMEM)?;
    // SAFETY: null, or a box that nothing else refers to while this runs: it is the calling fiber's.
    if let Some(own) = unsafe { libc::pthread_getspecific(key).cast::<stack_t>().as_mut() } {
        *own = stack;
        return Ok(());
    }
    let own = Box::into_raw(Box::new(stack));
    // SAFETY: a key, with the value that its destructor takes.
    if unsafe { libc::pthread_setspecific(key, own.cast()) } != 0 {
        // SAFETY: boxed above, and the key did not take it, so this is the one owner.
        unsafe { free(own.cast()) };
        return Err(libc::ENOMEM);
    }
    Ok(())
}

fn kernels(new: User<stack_t>, old: User<stack_t>) -> Answer {
    let arguments = [new.address(), old.address(), 0, 0, 0, 0];
    // SAFETY: what the program has given, or room of ours for the answer; the kernel checks both.
    unsafe { kernel::call(libc::SYS_sigaltstack, arguments) }
}

extern "C-unwind" fn raw_sigaltstack(new: User<stack_t>, old: User<stack_t>) -> c_int {
    answer(kernels(new, old)) as c_int
}

interpose! { lean
    /// `sigaltstack(2)`.
    safe fn sigaltstack(new: User<stack_t>, old: User<stack_t>) -> c_int, else raw_sigaltstack {
        // SAFETY: what the program has given: descriptions, or null.
        let hosted = host::get()
            .and_then(|host| unsafe { (host.alternate_stack)(new.pointer(), old.pointer()) });
        match hosted {
            Some(errno) => answer(if errno == 0 { Ok(0) } else { Err(errno) }) as c_int,
            None => answer(change(new, old)) as c_int,
        }
    }
}

/// Sets the calling fiber's, unless `new` is null, and tells what it was, unless `old` is.
fn change(new: User<stack_t>, old: User<stack_t>) -> Answer {
    let mut carriers = NO_STACK;
    kernels(User::NULL, User::lend(&mut carriers))?;
    // The caller may be a handler, which the kernel has called on the carrier's.
    let within = carriers.ss_flags & libc::SS_ONSTACK;
    let mut before = own().unwrap_or(carriers);
    before.ss_flags |= within;
    if !new.is_null() {
        let new = new.read()?;
        if within != 0 {
            return Err(libc::EPERM);
        }
        set_own(check(&new)?)?;
    }
    if !old.is_null() {
        old.write(before)?;
    }
    Ok(0)
}
