//! What the kernel keeps for each thread, and cannot keep for a fiber: its rights, sandboxes, folder, namespaces.
//!
//! A server of files lowers the rights of one thread by `setfsuid`, or by a system call's number in place of libc's
//! function, which changes all threads. Here the carrier would have other rights, and with it whatever runs there; and
//! the thread would have its old ones on another carrier. So such a call fails, and a line says what to do. A sandbox
//! that all threads are to have at once (`TSYNC`) is all carriers', and can be had. That a thread gets no new rights
//! (`PR_SET_NO_NEW_PRIVS`) is remembered, for what it starts.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_ground::kernel;
use carefree_ground::text::Text;
use carefree_runtime::hosted;

use crate::signal;
use crate::thread::record::{self, set_errno};

// Calls that are refused in two places: their names lie in one, by which `tell` knows them.
static CAPSET: &str = "capset";
static SETNS: &str = "setns";
static UNSHARE: &str = "unshare";

/// Says that such a call was refused: once for each call.
fn tell(call: &'static str) {
    /// Where the names lie that were told. There are more places than names.
    static TOLD: [AtomicPtr<u8>; 32] = [const { AtomicPtr::new(ptr::null_mut()) }; 32];
    let name = call.as_ptr().cast_mut();
    let told = TOLD.iter().find_map(|told| {
        let before =
            told.compare_exchange(ptr::null_mut(), name, Ordering::Relaxed, Ordering::Relaxed);
        match before {
            Ok(_) => Some(false),
            Err(before) => (before == name).then_some(true),
        }
    });
    if told == Some(false) {
        Text::print_line(format_args!(
            "carefree: {call} for one thread alone is refused, because that is a fiber: to leave such threads threads, use \
             --threads-for; to run the program on threads, set CAREFREE_RUN=off"
        ));
    }
}

/// Refuses a call: -1 with `EPERM`.
fn refuse(call: &'static str) -> c_int {
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
        libc::SYS_capset => CAPSET,
        libc::SYS_setns => SETNS,
        libc::SYS_unshare if arguments[0] != 0 => UNSHARE,
        libc::SYS_seccomp if is_filter_of_one(arguments) => "seccomp",
        libc::SYS_landlock_restrict_self if arguments[1] & ALL_THREADS == 0 => {
            "landlock_restrict_self"
        }
        libc::SYS_seccomp if is_filter_of_all(arguments) => {
            return is_refused().then(|| restrict_all(number, arguments));
        }
        libc::SYS_landlock_restrict_self => {
            return is_refused().then(|| restrict_all(number, arguments));
        }
        libc::SYS_prctl => match no_new_rights(arguments) {
            Some(told) => return is_refused().then(told),
            None => of_prctl(arguments)?,
        },
        libc::SYS_pkey_alloc => return is_refused().then(have_no_key),
        // These tell of no failure, but of what was before.
        libc::SYS_setfsuid | libc::SYS_setfsgid => {
            return is_refused().then(|| keep(number, arguments[0]));
        }
        _ => return None,
    };
    is_refused().then(|| refuse(call))
}

/// `LANDLOCK_RESTRICT_SELF_TSYNC`, which older kernels refuse.
const ALL_THREADS: usize = 8;

/// Whether a call of `seccomp` sandboxes the calling thread alone. (Without a filter it only asks whether there are any,
/// and fails by `EFAULT`.)
fn is_filter_of_one([mode, flags, filter, ..]: [usize; 6]) -> bool {
    match mode as c_uint {
        libc::SECCOMP_SET_MODE_STRICT => true,
        libc::SECCOMP_SET_MODE_FILTER => {
            flags as c_ulong & libc::SECCOMP_FILTER_FLAG_TSYNC == 0 && filter != 0
        }
        _ => false,
    }
}

/// Whether a call of `seccomp` sandboxes all threads.
fn is_filter_of_all([mode, flags, filter, ..]: [usize; 6]) -> bool {
    mode as c_uint == libc::SECCOMP_SET_MODE_FILTER
        && flags as c_ulong & libc::SECCOMP_FILTER_FLAG_TSYNC != 0
        && filter != 0
}

/// Sandboxes all threads. They get no new rights then, if the caller gets none: without privileges, it may sandbox
/// nothing unless it has said so.
fn restrict_all(number: c_long, arguments: [usize; 6]) -> c_int {
    let gets_none = record::current().is_some_and(|(_, record)| {
        record.settings.before_program();
        record.settings.no_new_rights.load(Ordering::Relaxed)
    });
    // SAFETY: the caller's arguments.
    match unsafe { kernel::call(number, arguments) } {
        Ok(result) => {
            if gets_none {
                let _ = hosted::find_where(|thread| {
                    record::of(thread).settings.no_new_rights.store(true, Ordering::Relaxed);
                    false
                });
            }
            result as c_int
        }
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// `PR_SET_NO_NEW_PRIVS` and `PR_GET_NO_NEW_PRIVS` of a hosted thread, which are remembered: the kernel has a use for them
/// only [when a program is started](crate::thread::settings::Settings::before_program). (What the kernel would refuse, it
/// refuses.)
fn no_new_rights([option, value, rest @ ..]: [usize; 6]) -> Option<impl Fn() -> c_int> {
    let (_, record) = record::current()?;
    let sets = match (option as c_int, value) {
        (libc::PR_SET_NO_NEW_PRIVS, 1) => true,
        (libc::PR_GET_NO_NEW_PRIVS, 0) => false,
        _ => return None,
    };
    let told = move || {
        if sets {
            record.settings.no_new_rights.store(true, Ordering::Relaxed);
            return 0;
        }
        record.settings.no_new_rights.load(Ordering::Relaxed).into()
    };
    (rest[..3] == [0; 3]).then_some(told)
}

/// A call of `prctl` that is refused, by its option.
fn of_prctl([option, kind, filter, ..]: [usize; 6]) -> Option<&'static str> {
    Some(match option as c_int {
        libc::PR_SET_SECCOMP if kind != libc::SECCOMP_MODE_FILTER as usize || filter != 0 => {
            "PR_SET_SECCOMP"
        }
        libc::PR_CAPBSET_DROP => "PR_CAPBSET_DROP",
        libc::PR_SET_KEEPCAPS => "PR_SET_KEEPCAPS",
        libc::PR_SET_SECUREBITS => "PR_SET_SECUREBITS",
        libc::PR_CAP_AMBIENT if kind != libc::PR_CAP_AMBIENT_IS_SET as usize => "PR_CAP_AMBIENT",
        _ => return None,
    })
}

/// `pkey_alloc` of a hosted thread: there are no keys left. What a thread may do by a key is in a register, which a
/// program sets by an instruction, and which is the carrier's. Programs can do without keys, for many processors have none.
fn have_no_key() -> c_int {
    set_errno(libc::ENOSPC);
    -1
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
        if is_hosted() && flags != 0 { refuse(UNSHARE) } else { unsafe { next(flags) } }
    }

    /// `setns(2)`.
    fn setns(file: c_int, kind: c_int) -> c_int {
        // SAFETY: the caller's arguments.
        if is_hosted() { refuse(SETNS) } else { unsafe { next(file, kind) } }
    }

    /// `capset(2)`.
    fn capset(header: *mut c_void, sets: *const c_void) -> c_int {
        // SAFETY: the caller's arguments.
        if is_hosted() { refuse(CAPSET) } else { unsafe { next(header, sets) } }
    }

    /// `pkey_alloc(2)`.
    fn pkey_alloc(flags: c_uint, rights: c_uint) -> c_int {
        // SAFETY: the caller's arguments.
        if is_hosted() { have_no_key() } else { unsafe { next(flags, rights) } }
    }
}
