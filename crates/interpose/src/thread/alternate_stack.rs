//! Alternate stacks for handlers of signals (`sigaltstack`): a fiber has one of its own.
//!
//! It is remembered, but not given to the kernel, which has one for each kernel thread: the carrier would have it
//! in force for other fibers, and still when the fiber has ended and freed its memory, as libraries do in the
//! destructor of a thread-local variable. Handlers that ask for an alternate stack are called on the carrier's,
//! which has a guard and room for what programs do in handlers (`carefree_context::overflow`). A fiber that has
//! set none is told of that one, so a library that looks for one of some size finds it.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;

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

thread_local! {
    /// What the fiber has set; zeros if it has set none, for which a new fiber's memory need not be written to.
    static OWN: Cell<stack_t> =
        const { Cell::new(stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 }) };
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
    let own = OWN.get();
    let mut before = if own.ss_flags == 0 && own.ss_size == 0 { carriers } else { own };
    before.ss_flags |= within;
    if !new.is_null() {
        let new = new.read()?;
        if within != 0 {
            return Err(libc::EPERM);
        }
        OWN.set(check(&new)?);
    }
    if !old.is_null() {
        old.write(before)?;
    }
    Ok(0)
}
