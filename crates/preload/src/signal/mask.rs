//! The signals that a thread blocks.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_runtime::wait::without_parking;
use libc::sigset_t;

use crate::place;
use crate::signal::set::{
    UNBLOCKABLE, bit, change_kernels, give_to_thread, number, open_faults, take_pending,
};
use crate::signal::{beside, deliver, post};
use crate::thread::record::{self, Record, set_errno};

/// The mask that a thread created by the caller has.
pub(crate) fn mask() -> u64 {
    match record::current() {
        Some((_, record)) => record.mask.load(Ordering::SeqCst),
        // A thread of the kernel's.
        None => change_kernels(libc::SIG_BLOCK, None),
    }
}

/// `pthread_sigmask` of a hosted thread, with the kernel's sets; returns an `errno`, or 0.
///
/// # Safety
/// Sets, or null.
pub(crate) unsafe fn change(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    let Some((_, record)) = record::current() else { return libc::ENOSYS };
    let beside = beside::is_one();
    let before = if beside { beside::mask(record) } else { record.mask.load(Ordering::SeqCst) };
    if !set.is_null() {
        // SAFETY: as this function demands.
        let set = unsafe { set.read_unaligned() };
        let after = match how {
            libc::SIG_BLOCK => before | set,
            libc::SIG_UNBLOCK => before & !set,
            libc::SIG_SETMASK => set,
            _ => return libc::EINVAL,
        };
        if beside {
            change_kernels(libc::SIG_SETMASK, Some(after));
        } else {
            if how != libc::SIG_BLOCK {
                open_faults(set_open(how, set));
            }
            replace(record, after);
        }
    }
    if !old.is_null() {
        // SAFETY: as this function demands.
        unsafe { old.write_unaligned(before) };
    }
    0
}

/// [`change`] by its number, which answers `EFAULT` for a place that is none. Profilers and crash handlers ask so
/// whether an address can be read.
///
/// # Safety
/// As for the system call.
pub(crate) unsafe fn change_by_number(how: c_int, set: *const u64, old: *mut u64) -> c_int {
    let mut before = 0;
    let mut changed = || {
        // SAFETY: as this function demands.
        let set = (!set.is_null()).then(|| unsafe { place::read(set) }).transpose()?;
        let set = set.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: null or a set, and room for one.
        let done = unsafe { change(how, set, &raw mut before) };
        if done != 0 || old.is_null() {
            return Err(done);
        }
        // SAFETY: as this function demands.
        unsafe { place::write(old, before) }
    };
    changed().err().unwrap_or(0)
}

/// What a change opens by name: `SIG_UNBLOCK` those of its set, `SIG_SETMASK` all others.
fn set_open(how: c_int, set: u64) -> u64 {
    if how == libc::SIG_UNBLOCK { set } else { !set }
}

/// Gives the caller another mask.
pub(crate) fn replace_only(record: &Record, mask: u64) {
    let mask = mask & !UNBLOCKABLE;
    let before = record.mask.swap(mask, Ordering::SeqCst);
    post::opened(record, !mask, before & !mask);
    // See `deliver_to_any`.
    if record.pending.set() & mask & !before != 0 {
        deliver::pass_on(record, mask & !before);
    }
}

/// Gives the caller another mask, and handles what that lets through.
pub(crate) fn replace(record: &Record, mask: u64) {
    // What has come before it is blocked is handled, as if the kernel had interrupted the caller.
    if record.pending.set() & !record.mask.load(Ordering::SeqCst) != 0 {
        deliver::handle();
    }
    replace_only(record, mask);
    if record.pending.set() & !mask != 0 {
        deliver::handle();
    }
}

/// Gives the calling hosted thread another mask, and handles what that lets through.
pub(crate) fn set(mask: u64) {
    if let Some((_, record)) = record::current() {
        replace(record, mask);
    }
}

/// Puts a mask in force for the calling kernel thread, which runs no hosted threads.
pub(crate) fn set_kernels(mask: u64) {
    change_kernels(libc::SIG_SETMASK, Some(mask));
}

/// The mask of the thread that has forked.
static FORKED: AtomicU64 = AtomicU64::new(0);

/// To be called in the child of a fork while its caller is still a hosted thread, if it was one.
pub(crate) fn note_fork() {
    FORKED.store(mask(), Ordering::Relaxed);
}

/// In the child of a fork: the mask of the thread that has called it.
pub(crate) fn of_forked() -> u64 {
    FORKED.load(Ordering::Relaxed)
}

/// What a program inherits that the caller starts; `None` if that is what the kernel knows.
pub(crate) fn for_program() -> Option<u64> {
    let (_, record) = record::current()?;
    if beside::is_one() {
        return Some(beside::mask(record));
    }
    Some(record.mask.load(Ordering::SeqCst))
}

/// Calls `f`, which starts a program, with the caller's mask in force in the kernel: the program inherits it.
///
/// Meanwhile the kernel calls handlers on the carrier. They, and `f`, make libc's own calls: one that parked might
/// go on on another carrier, whose mask the kernel would change at the handler's end in place of this one's.
pub(crate) fn for_child<T>(f: impl FnOnce() -> T) -> T {
    let Some(mask) = for_program() else { return f() };
    if let Some((_, record)) = record::current() {
        record.settings.before_program();
    }
    let call = || {
        let before = change_kernels(libc::SIG_SETMASK, Some(mask));
        let result = f();
        change_kernels(libc::SIG_SETMASK, Some(before));
        result
    };
    match record::current() {
        Some((_, record)) if !beside::is_one() => {
            without_parking(|| record.settings.with_processors(call))
        }
        // (The child of a `vfork` may not return, and what is noted of the thread is its parent's.)
        _ => call(),
    }
}

/// [`for_child`] for a program that takes the place of this one. It inherits as well what has come for the caller
/// and is blocked by it.
pub(crate) fn for_program_in_place<T>(f: impl FnOnce() -> T) -> T {
    let Some((_, record)) = record::current().filter(|_| !beside::is_one()) else {
        return for_child(f);
    };
    let mask = record.mask.load(Ordering::SeqCst);
    let (mut given, mut count) = (0, 0);
    while let Some(info) = record.pending.take(mask) {
        given |= bit(info.si_signo);
        count += 1;
        let _ = give_to_thread(number() as i32, &info);
    }
    let result = for_child(f);
    // The program was not started. (The carrier blocks them.)
    for _ in 0..count {
        if let Some(info) = take_pending(given, Some(0)) {
            record.pending.push(info, false);
        }
    }
    result
}

stand_in! {
    /// `pthread_sigmask(3)`.
    fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        if record::current().is_none() {
            // SAFETY: the caller's arguments.
            return unsafe { next(how, set, old) };
        }
        // SAFETY: the caller's arguments. The kernel uses 8 bytes of a set; libc clears the rest.
        unsafe {
            let done = change(how, set.cast(), old.cast());
            if done == 0 && !old.is_null() {
                let rest = old.cast::<u8>().add(size_of::<u64>());
                rest.write_bytes(0, size_of::<sigset_t>() - size_of::<u64>());
            }
            done
        }
    }

    /// `sigprocmask(2)`.
    fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        if record::current().is_none() {
            // SAFETY: the caller's arguments.
            return unsafe { next(how, set, old) };
        }
        // SAFETY: the caller's arguments.
        match unsafe { pthread_sigmask(how, set, old) } {
            0 => 0,
            errno => {
                set_errno(errno);
                -1
            }
        }
    }

    /// `sigpending(2)`.
    fn sigpending(set: *mut sigset_t) -> c_int {
        // The process's and the carrier's, which has none of its own.
        // SAFETY: the caller's argument.
        let asked = unsafe { next(set) };
        if let (0, Some((_, record))) = (asked, record::current()) {
            let blocked = record.mask.load(Ordering::SeqCst);
            // SAFETY: the call has written a set there.
            unsafe {
                let set = set.cast::<u64>();
                set.write_unaligned((set.read_unaligned() | record.pending.set()) & blocked);
            }
        }
        asked
    }

    /// `sigblock(3)`, which like the two below knows 32 signals.
    fn sigblock(set: c_int) -> c_int {
        match record::current() {
            Some(_) => change_first(libc::SIG_BLOCK, set),
            // SAFETY: takes any number.
            None => unsafe { next(set) },
        }
    }

    /// `sigsetmask(3)`.
    fn sigsetmask(set: c_int) -> c_int {
        match record::current() {
            Some(_) => change_first(libc::SIG_SETMASK, set),
            // SAFETY: takes any number.
            None => unsafe { next(set) },
        }
    }

    /// `siggetmask(3)`.
    fn siggetmask() -> c_int {
        match record::current() {
            Some(_) => change_first(libc::SIG_BLOCK, 0),
            // SAFETY: takes nothing.
            None => unsafe { next() },
        }
    }
}

/// Changes the mask of the calling hosted thread by one of the first 32 signals; returns those of them that it blocked.
fn change_first(how: c_int, set: c_int) -> c_int {
    let (set, mut before) = (u64::from(set as u32), 0);
    // SAFETY: sets of this function's own, which are there during the call.
    unsafe { change(how, &raw const set, &raw mut before) };
    before as c_int
}
