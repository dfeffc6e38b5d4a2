//! Terminals.
//!
//! A terminal polls writable when it has room for a part. io_uring then writes all of it in the thread that
//! submits, so the carrier would wait until the other end has read. Here the fiber waits for the terminal to
//! be writable, and writes a part.
//!
//! # Reads with a time limit, or for several bytes
//!
//! A terminal's settings can limit how long a read waits for the first byte: to `VTIME` tenths of a second if
//! `VMIN` is 0, outside of canonical mode. When the time is up the terminal is not readable, so a reactor
//! would wait on. Where it wants several bytes, or waits for some time after each of them, a thread makes the read.
//!
//! # The background
//!
//! The kernel stops a process in the background that reads from its terminal, or changes its settings, by a signal;
//! where the thread blocks that, it refuses the read and allows the change. It asks the mask of its own thread, which
//! is not the fiber's. And a read has to ask before it waits, as the kernel does: nothing wakes it in the background.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use carefree_ground::kernel;

use carefree_runtime::Reason;
use carefree_runtime::wait::without_parking;

use crate::call::host;
use crate::call::sys::{self, Number};
use crate::call::uninterrupted::{self, offload};
use crate::call::user::User;
use crate::time::duration;
use crate::wait::parking::{self, On, Parked};
use crate::wait::user_op::UserOp;

/// How the wait of a read ended.
pub(crate) enum Waited {
    /// There was none: no such limit is set.
    AsEver,
    /// The time is up.
    GivenUp,
    /// A read does not wait now.
    Over,
    /// None was made: the read waits for several bytes, in a way that the terminal alone knows.
    Several,
    Failed(c_int),
}

/// Parks a fiber that reads `length` bytes from `fd`, if that is a terminal whose reads have a time limit.
#[cold]
pub(crate) fn wait(fd: c_int, on: On, length: usize) -> Waited {
    let Some((least, tenths)) = limits(fd) else { return Waited::AsEver };
    if least > 0 {
        // It is readable when there are `VMIN` bytes, but a read wants no more than it has room for; and between two bytes
        // it waits for `VTIME`.
        let several = least > 1 && (tenths > 0 || usize::from(least) > length);
        return if several { Waited::Several } else { Waited::AsEver };
    }
    if tenths == 0 {
        return Waited::Over;
    }
    let op = UserOp::poll(fd, libc::POLLIN);
    match parking::perform_until(&op, on, duration::from_now(tenths * 100_000_000)) {
        Parked::Late => Waited::GivenUp,
        Parked::Answered(Ok(_)) | Parked::Unsupported => Waited::Over,
        Parked::Answered(Err(errno)) => Waited::Failed(errno),
    }
}

/// What stops a process in the background that reads from its terminal.
const READS: u64 = 1 << (libc::SIGTTIN - 1);
/// What stops one that changes it.
const CHANGES: u64 = 1 << (libc::SIGTTOU - 1);

/// Makes a call that may use a terminal, with the calling hosted thread's mask.
pub(crate) fn as_masked<R>(call: impl FnOnce() -> R) -> R {
    let host = host::get().filter(|_| host::is_hosted());
    match host.map_or(0, |host| (host.mask)() & (READS | CHANGES)) {
        0 => call(),
        blocked => without_parking(|| uninterrupted::blocking(blocked, call)),
    }
}

/// A hosted thread is to read from `fd`: where that is its process's terminal, and the process in the background, it is
/// stopped until that has changed.
///
/// # Errors
/// `EIO` where it is not to be stopped, and `EINTR` where a handler is called for that.
#[cold]
pub(crate) fn stop_in_background(fd: c_int) -> Result<(), c_int> {
    let Some(host) = host::get().filter(|_| host::is_hosted()) else { return Ok(()) };
    if !is_in_background(fd) {
        return Ok(());
    }
    if (host.mask)() & READS != 0 {
        return Err(libc::EIO);
    }
    // The kernel asks before it finds that there is nothing to read into.
    let nothing = || sys::call(Number::READ, [fd.into(), User::<u8>::NULL.into(), 0usize.into()]);
    // SAFETY: zeros are an action, which the call overwrites.
    let handler = unsafe {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        libc::sigaction(libc::SIGTTIN, std::ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    };
    let asked = match handler {
        libc::SIG_DFL | libc::SIG_IGN => offload(nothing),
        // (The host ends it with `EINTR` where the signal was sent.)
        _ => without_parking(nothing),
    };
    match asked {
        Err(libc::EIO) => Err(libc::EIO),
        Err(libc::EINTR) => {
            host::settle(libc::SIGTTIN);
            // The call is begun again, if handlers ask for that, until the process is in the foreground.
            host::interrupted(Reason::Read);
            carefree_runtime::yield_now();
            Err(libc::EINTR)
        }
        _ => Ok(()),
    }
}

/// Whether `fd` is the process's terminal, and another group of processes in its foreground.
fn is_in_background(fd: c_int) -> bool {
    let group = sys::ioctl_number(fd, libc::TIOCGPGRP as usize);
    // (Of the master of a pseudoterminal, which has a number, the other end's is told.)
    let is_other = |group: &c_int| {
        // SAFETY: takes a number.
        let own = unsafe { kernel::call(libc::SYS_getpgid, [0; 6]) };
        *group > 0 && own != Ok(*group as usize)
    };
    group.ok().filter(is_other).is_some() && sys::ioctl_number(fd, libc::TIOCGPTN as usize).is_err()
}

/// Whether `fd` is a terminal.
#[cold]
pub(crate) fn is_terminal(fd: c_int) -> bool {
    let mut settings = MaybeUninit::<libc::termios>::zeroed();
    let place = settings.as_mut_ptr() as usize;
    let arguments = [fd as usize, libc::TCGETS as usize, place, 0, 0, 0];
    // SAFETY: the kernel writes what libc's structure begins with.
    unsafe { kernel::call(libc::SYS_ioctl, arguments) }.is_ok()
}

/// What reads wait for: so many bytes (`VMIN`), and so many tenths of a second (`VTIME`). `None` if `fd` is no terminal, or
/// is read by lines.
fn limits(fd: c_int) -> Option<(u8, u64)> {
    let ask = |request: libc::Ioctl, answer: usize| {
        let arguments = [fd as usize, request as usize, answer, 0, 0, 0];
        // SAFETY: called with places for the answers.
        unsafe { kernel::call(libc::SYS_ioctl, arguments) }.ok()
    };
    // The kernel writes the beginning of libc's structure.
    let mut settings = MaybeUninit::<libc::termios>::zeroed();
    ask(libc::TCGETS, settings.as_mut_ptr() as usize)?;
    // SAFETY: plain numbers, all of them set.
    let settings = unsafe { settings.assume_init() };
    if settings.c_lflag & libc::ICANON != 0 {
        return None;
    }
    // The master of a pseudoterminal answers with the other end's settings. Only masters have a number.
    let mut number: c_int = 0;
    let is_master = ask(libc::TIOCGPTN, &raw mut number as usize).is_some();
    (!is_master).then(|| (settings.c_cc[libc::VMIN], settings.c_cc[libc::VTIME].into()))
}

interpose! {
    /// `tcdrain(3)`, on a thread that may block.
    safe fn tcdrain(fd: c_int) -> c_int, linked "__libc_tcdrain" {
        offload(|| original(fd))
    }
}
