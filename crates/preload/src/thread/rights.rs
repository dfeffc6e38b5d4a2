//! What the kernel keeps for each thread, and cannot keep for a fiber: its rights, folder, namespaces.
//!
//! A server of files lowers the rights of one thread by `setfsuid`, or by a system call's number in place of libc's
//! function, which changes all threads. Here the carrier would have other rights, and with it whatever runs there; and
//! the thread would have its old ones on another carrier. So such a call fails, and a line says what to do.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::kernel;
use carefree_ground::text::Text;

use crate::signal;
use crate::thread::record::{self, set_errno};

/// Says once that such a call was refused.
fn tell(call: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        Text::print_line(format_args!(
            "carefree: {call} for one thread alone is refused, because that is a fiber: to leave such threads threads, use \
             --threads-for; to run the program on threads, set CAREFREE_RUN=off"
        ));
    }
}

/// Refuses a call: -1 with `EPERM`.
fn refuse(call: &str) -> c_int {
    tell(call);
    set_errno(libc::EPERM);
    -1
}

/// Whether the caller is a hosted thread. (A child of `vfork` looks like one, but is a process, and may.)
fn is_hosted() -> bool {
    record::current().is_some() && !signal::is_child()
}

/// A system call by its number, of those that are refused.
pub(super) fn by_number(number: c_long, arguments: [usize; 6]) -> Option<c_int> {
    let is_refused = || !signal::is_child();
    let call = match number {
        libc::SYS_setuid => "setuid",
        libc::SYS_setgid => "setgid",
        libc::SYS_setreuid => "setreuid",
        libc::SYS_setregid => "setregid",
        libc::SYS_setresuid => "setresuid",
        libc::SYS_setresgid => "setresgid",
        libc::SYS_setgroups => "setgroups",
        libc::SYS_capset => "capset",
        libc::SYS_setns => "setns",
        libc::SYS_unshare if arguments[0] != 0 => "unshare",
        // These tell of no failure, but of what was before.
        libc::SYS_setfsuid | libc::SYS_setfsgid => {
            return is_refused().then(|| keep(number, arguments[0]));
        }
        _ => return None,
    };
    is_refused().then(|| refuse(call))
}

/// `setfsuid` and `setfsgid` of a hosted thread: what it has is told, and stays.
fn keep(number: c_long, wanted: usize) -> c_int {
    const NONE: usize = u32::MAX as usize;
    // SAFETY: changes nothing: there is no such user or group.
    let has = unsafe { kernel::call(number, [NONE, 0, 0, 0, 0, 0]) }.unwrap_or(0);
    if wanted as u32 != has as u32 && wanted as u32 != u32::MAX {
        tell(if number == libc::SYS_setfsuid { "setfsuid" } else { "setfsgid" });
    }
    has as c_int
}

stand_in! {
    /// `setfsuid(2)`.
    fn setfsuid(user: libc::uid_t) -> c_int {
        // SAFETY: the caller's argument.
        if is_hosted() { keep(libc::SYS_setfsuid, user as usize) } else { unsafe { next(user) } }
    }

    /// `setfsgid(2)`.
    fn setfsgid(group: libc::gid_t) -> c_int {
        // SAFETY: the caller's argument.
        if is_hosted() { keep(libc::SYS_setfsgid, group as usize) } else { unsafe { next(group) } }
    }

    /// `unshare(2)`.
    fn unshare(flags: c_int) -> c_int {
        // SAFETY: the caller's argument.
        if is_hosted() && flags != 0 { refuse("unshare") } else { unsafe { next(flags) } }
    }

    /// `setns(2)`.
    fn setns(file: c_int, kind: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        if is_hosted() { refuse("setns") } else { unsafe { next(file, kind) } }
    }

    /// `capset(2)`.
    fn capset(header: *mut c_void, sets: *const c_void) -> c_int {
        // SAFETY: the caller's arguments.
        if is_hosted() { refuse("capset") } else { unsafe { next(header, sets) } }
    }
}
