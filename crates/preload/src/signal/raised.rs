//! Signals that a call raises in the thread that makes it: `SIGPIPE` and `SIGXFSZ`; and those that a terminal sends to
//! the process for a call: `SIGTTIN` and `SIGTTOU`.
//!
//! The kernel sends them to the carrier, and libc makes such calls itself, for its streams. So carriers do not block
//! them, and a function of ours is in the kernel's table in place of the program's handler or the default action. It
//! looks whether the call that was interrupted has failed so, and notes the signal for the thread that made it, which
//! handles it as any other: at the end of its call, or when the dispatcher interrupts it. What else comes, be it sent
//! to the process or raised by a call that another thread makes for a fiber, goes to the dispatcher.
//! All that terminals send does so: carriers only let it through because calls fail in another way where it is
//! blocked.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;

use libc::{off64_t, siginfo_t, ucontext_t};

use crate::signal::set::{RAISED, TERMINAL, act_by_default, action, bit, is_masked_as_ours};
use crate::signal::{beside, carrier, deliver, fault, post};
use crate::thread::record;

/// Has the default action of these done by ours.
pub(super) fn prepare() {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        let found = action(signal);
        if found.sa_sigaction != libc::SIG_IGN {
            // SAFETY: what the program has set, which is kept now.
            unsafe { libc::sigaction(signal, &raw const found, std::ptr::null_mut()) };
        }
    }
}

/// Has handlers that are set from now on called by ours.
pub(crate) fn stand_in_for_handlers() {
    fault::prepare(on_raised as *const () as usize);
}

/// What the call has returned that the signal has interrupted, if it was one.
fn result(context: &ucontext_t) -> i64 {
    #[cfg(target_arch = "x86_64")]
    let result = context.uc_mcontext.gregs[libc::REG_RAX as usize];
    #[cfg(target_arch = "aarch64")]
    let result = context.uc_mcontext.regs[0] as i64;
    result
}

/// Ends a read of no bytes with `EINTR`, where the kernel would begin it again because of the flags of the program's
/// action. This library asks by such a read whether a terminal may be read, and has to look at what has come.
fn end_read_of_nothing(context: &mut ucontext_t) {
    const READ: u64 = libc::SYS_read as u64;
    const EINTR: i64 = -(libc::EINTR as i64);
    let registers = &mut context.uc_mcontext;
    // The kernel has put back what the call began with, and it lies at the call's instruction.
    #[cfg(target_arch = "x86_64")]
    {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let of = |register: c_int| registers.gregs[register as usize] as u64;
        let begins = (of(libc::REG_RAX), of(libc::REG_RSI), of(libc::REG_RDX)) == (READ, 0, 0);
        if begins && is_at(of(libc::REG_RIP) as usize, SYSCALL) {
            registers.gregs[libc::REG_RIP as usize] += SYSCALL.len() as i64;
            registers.gregs[libc::REG_RAX as usize] = EINTR;
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        const SVC: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
        let begins = (registers.regs[8], registers.regs[1], registers.regs[2]) == (READ, 0, 0);
        if begins && is_at(registers.pc as usize, SVC) {
            registers.pc += SVC.len() as u64;
            registers.regs[0] = EINTR as u64;
        }
    }
}

/// Whether a place that was interrupted lies in this library, and this instruction there.
fn is_at<const N: usize>(place: usize, instruction: [u8; N]) -> bool {
    let is_next = |(index, byte): (usize, &u8)| {
        let next = std::ptr::with_exposed_provenance::<u8>(place).wrapping_add(index);
        // SAFETY: the first byte of what was about to run; or another, of an instruction that begins as this one does.
        unsafe { next.read() == *byte }
    };
    carrier::is_ours(place) && instruction.iter().enumerate().all(is_next)
}

/// # Safety
/// Only the kernel calls it, as a handler with SA_SIGINFO.
unsafe extern "C-unwind" fn on_raised(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(action) = fault::kept(signal) else { return };
    let context = context.cast::<ucontext_t>();
    // SAFETY: what the kernel has saved; it uses 8 bytes of a set.
    let (result, mask) =
        unsafe { (result(&*context), (&raw const (*context).uc_sigmask).cast::<u64>().read()) };
    if beside::is_one() || !post::is_open() || !is_masked_as_ours(mask) {
        if action.sa_sigaction == libc::SIG_DFL {
            return act_by_default(signal);
        }
        // SAFETY: what the kernel has passed.
        return unsafe { fault::plainly(&action, signal, info, context) };
    }
    if bit(signal) & TERMINAL != 0 {
        // SAFETY: what the kernel has passed.
        unsafe {
            end_read_of_nothing(&mut *context);
            post::hand_over(&*info);
        }
        return;
    }
    let failed = if signal == libc::SIGPIPE { libc::EPIPE } else { libc::EFBIG };
    match record::current() {
        Some((_, record)) if result == -i64::from(failed) => {
            let blocked = record.mask.load(Ordering::SeqCst) & bit(signal) != 0;
            if !blocked && action.sa_sigaction == libc::SIG_DFL {
                return act_by_default(signal);
            }
            record.pending.raise(signal);
            post::look_again();
        }
        // SAFETY: what the kernel has passed.
        _ => post::hand_over(unsafe { &*info }),
    }
}

/// Functions of libc's that never wait, and raise a signal where they fail: it is handled before they return.
macro_rules! raising {
    ($($name:ident($($argument:ident: $type:ty),*))*) => {
        stand_in! {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                fn $name($($argument: $type),*) -> c_int {
                    // SAFETY: the caller's arguments.
                    let done = unsafe { next($($argument),*) };
                    if done != 0 {
                        // SAFETY: this frame has nothing to drop.
                        unsafe { deliver::amid_call() };
                    }
                    done
                }
            )*
        }
    };
}

raising! {
    ftruncate(file: c_int, length: off64_t)
    ftruncate64(file: c_int, length: off64_t)
    truncate(path: *const c_char, length: off64_t)
    truncate64(path: *const c_char, length: off64_t)
    fallocate(file: c_int, mode: c_int, from: off64_t, length: off64_t)
    fallocate64(file: c_int, mode: c_int, from: off64_t, length: off64_t)
    posix_fallocate(file: c_int, from: off64_t, length: off64_t)
    posix_fallocate64(file: c_int, from: off64_t, length: off64_t)
}

const _: () = assert!(RAISED == bit(libc::SIGPIPE) | bit(libc::SIGXFSZ));
