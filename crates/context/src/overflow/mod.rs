//! Reports of stack overflows: which fiber, how large its stack, and what to do.
//!
//! A guard turns an overflow into SIGSEGV (or SIGBUS). Without a handler the program would die with
//! no explanation. [`install`] puts a handler in front of the existing one, in most programs that
//! of the Rust standard library, which reports the overflows of threads. It looks up the faulting
//! address: for a guard of a [`stack`] it prints a line and aborts, as std does; any other fault is
//! passed on to the earlier handler as if this one did not exist. (Except for SIGBUS in a mapped
//! [`mapped_file`] that was truncated.)
//!
//! The handler cannot run on the stack that has overflowed. It needs the kernel thread's
//! alternate signal stack; std gives its threads one, and [`ensure_alternate_stack`] gives one to
//! threads that C code started.
//!
//! # What runs in the handler
//!
//! The thread was stopped anywhere, even inside malloc or with a lock held, so the handler calls
//! only what is async-signal-safe: `write`, `sigaction`, `abort`, system calls, and the lock-free
//! [`stack::find`]. It formats numbers by hand and allocates nothing. On a fiber it runs under the
//! fiber's thread pointer, which points to a complete thread-local block in which `errno` is a
//! plain variable, so this makes no difference.
//!
//! # What a guard cannot catch
//!
//! A guard catches code that touches it. Rust code always does, and so does C code compiled with
//! `-fstack-clash-protection`, as they touch every page of a large frame on the way down. Other C
//! code with a frame larger than the guard (64 KiB for the default stack size) may step over it
//! undetected. `CAREFREE_GUARD` makes guards larger; deep calls into such code belong on a large stack
//! ([`call_on_stack`](crate::coroutine::call_on_stack)), whose guard is 1 MiB.

mod alternate_stack;
mod report;

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::mapped_file;
use crate::stack;

pub use alternate_stack::{AlternateStack, ensure_alternate_stack};
pub use report::{Describer, set_describer};

/// Installs the handler that reports a stack overflow and aborts the program.
///
/// Later calls find it installed. If the program has installed handlers of its own for SIGSEGV or
/// SIGBUS before, they get all other faults; if it installs them later, they should pass faults
/// that they do not know on to the handler that they replace, as this one does.
///
/// The calling thread gets an alternate signal stack if it has none
/// ([`ensure_alternate_stack`]).
///
/// ```
/// carefree_context::overflow::install()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When there is no memory for the alternate stack.
pub fn install() -> io::Result<()> {
    // Several threads may do this at once: each finds the earlier handler, or this one. None waits for
    // another, which might not exist any more in the child of a fork.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.load(Ordering::Acquire) {
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            install_for(signal)?;
        }
        INSTALLED.store(true, Ordering::Release);
    }
    ensure_alternate_stack()
}

/// The earlier handlers of SIGSEGV and SIGBUS. Each is set before [`on_fault`] can run, and what it
/// points to is never freed.
static EARLIER: [AtomicPtr<libc::sigaction>; 2] =
    [AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut())];

fn earlier(signal: libc::c_int) -> &'static AtomicPtr<libc::sigaction> {
    &EARLIER[usize::from(signal == libc::SIGBUS)]
}

fn install_for(signal: libc::c_int) -> io::Result<()> {
    let mut found = default_action();
    // SAFETY: only writes to `found`.
    unsafe { libc::sigaction(signal, ptr::null(), &raw mut found) };
    if found.sa_sigaction == on_fault as Handler as usize {
        return Ok(());
    }
    // Stored first, so that a fault right after the second call of `sigaction` finds it.
    earlier(signal).store(Box::into_raw(Box::new(found)), Ordering::Release);
    let mut ours = default_action();
    ours.sa_sigaction = on_fault as Handler as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the structure is complete, and `on_fault` is a handler with SA_SIGINFO's arguments.
    let result = unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn default_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid value: SIG_DFL, no flags, an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type PlainHandler = unsafe extern "C" fn(libc::c_int);

/// # Safety
/// Only the kernel calls it, as a handler with SA_SIGINFO.
unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a complete siginfo_t. Positive codes are faults, which have an
    // address; other codes come from kill(2) and the like, and the address is only used after the
    // check below.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 {
        if let Some(slot) = stack::find(address).filter(|slot| slot.is_guard(address)) {
            report::print(&slot);
            // SAFETY: no preconditions; async-signal-safe.
            unsafe { libc::abort() };
        }
        if signal == libc::SIGBUS && mapped_file::give_up(address) {
            return;
        }
    }
    // SAFETY: the kernel's arguments, unchanged.
    unsafe { pass_on(signal, info, context) };
}

/// Handles a signal as if [`on_fault`] had not been installed.
///
/// # Safety
/// The arguments are those that the kernel passed to a handler with SA_SIGINFO.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let found = earlier(signal).load(Ordering::Acquire);
    // SAFETY: set before `on_fault` was installed, to a structure that is never freed or changed.
    let action = unsafe { *found };
    // SAFETY: the kernel passes a complete siginfo_t.
    let fault = unsafe { (*info).si_code } > 0;
    match action.sa_sigaction {
        libc::SIG_IGN if !fault => {}
        // The kernel does not let a program ignore a fault: it would fault for ever.
        libc::SIG_DFL | libc::SIG_IGN => {
            let default = default_action();
            // A fault happens again after this handler has returned, and then kills the program,
            // with the registers of the fault in the core dump. A signal that was sent does not
            // come again: it is raised once more, and delivered when the return unblocks it.
            // SAFETY: both calls are async-signal-safe.
            unsafe {
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                // The earlier handler runs once, now; from then on there is none. (Its box is
                // leaked: a handler must not free memory, and other threads may be reading it.)
                earlier(signal).store(default_for_good(), Ordering::Release);
            }
            let mut mask = action.sa_mask;
            // When `on_fault` returns, the kernel restores the mask from before the signal, from
            // `context`.
            // SAFETY: the masks are complete and the calls async-signal-safe. The handler takes the
            // arguments that its flags say.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, ptr::null_mut());
                if action.sa_flags & libc::SA_NODEFER != 0 {
                    libc::sigemptyset(&raw mut mask);
                    libc::sigaddset(&raw mut mask, signal);
                    libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const mask, ptr::null_mut());
                }
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: Handler = std::mem::transmute::<usize, Handler>(handler);
                    handler(signal, info, context);
                } else {
                    let handler: PlainHandler = std::mem::transmute::<usize, PlainHandler>(handler);
                    handler(signal);
                }
            }
        }
    }
}

/// A [`default_action`] in static memory.
fn default_for_good() -> *mut libc::sigaction {
    struct Shared(libc::sigaction);
    // SAFETY: never written.
    unsafe impl Sync for Shared {}
    // SAFETY: all zeros is a valid value: SIG_DFL, no flags, an empty mask.
    static DEFAULT: Shared = Shared(unsafe { std::mem::zeroed() });
    (&raw const DEFAULT.0).cast_mut()
}
