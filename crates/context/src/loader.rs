//! What the dynamic loader tells of the libraries in the process.
//!
//! All crates of Carefree iterate over the loader's objects by [`any_object`], because of forks:
//! the loader iterates under a lock, and in the child of a `fork` that lock stays locked for ever
//! if another thread held it at that moment. (glibc reinitialises others of its locks in a child,
//! but not this one.) Carriers iterate in the child as in the parent. So a fork waits until
//! no thread iterates here: see [`fork`](crate::fork). (A program's other threads may iterate as
//! well, for backtraces of panics or exceptions of C++; a fork does not wait for those.)
//!
//! A program's own call of `dl_iterate_phdr` runs the program's function under the lock. If a fiber waits in that
//! function, a carrier that iterated would block until the fiber goes on, and the fiber may need that carrier. So
//! carriers look for changes only [where there may be some](may_have_changed).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use carefree_ground::fork_lock::ForkLock;

/// Held while a thread iterates over the objects: for microseconds, unless it waits for the loader's lock, which a thread
/// may have that waits for the program's allocator.
static ITERATING: ForkLock<()> = ForkLock::new(());

/// Calls `visit` with the loader's description of each object in the process, the program's own
/// first, until it returns true; returns whether it did.
///
/// `visit` must not call this function, load or unload a library, or panic (which would abort the
/// process). What the description points to does not change during the call of `visit`.
///
/// ```
/// let mut objects = 0;
/// carefree_context::loader::any_object(|_| {
///     objects += 1;
///     false
/// });
/// assert!(objects > 1, "the program and its libraries");
/// ```
pub fn any_object<F: FnMut(&libc::dl_phdr_info) -> bool>(mut visit: F) -> bool {
    unsafe extern "C" fn call<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description is alive during the call. The argument is the closure given
        // below, which outlives the call and is called only here.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<F>()) };
        c_int::from(visit(info))
    }
    let _iterating = ITERATING.lock();
    // SAFETY: the callback's argument is a closure of the type that it expects, which outlives the
    // call.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), (&raw mut visit).cast()) != 0 }
}

/// The program headers of an object; none if the loader does not show them.
///
/// # Safety
/// The loader has given this description, of an object that stays loaded while the result is used.
pub unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader says where the headers are, and how many, which stay as long as the object.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
}

/// For how many seconds a library may be loading once the loader was called.
const LOADING: u64 = 10;

/// When the loader was last called, in seconds; 0 if nothing says so, and `NOT_YET` before the first call.
static CALLED: AtomicU64 = AtomicU64::new(0);
const NOT_YET: u64 = u64::MAX;

/// When a carrier has last looked, in seconds.
static LOOKED: AtomicU64 = AtomicU64::new(0);

fn seconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    (time.tv_sec as u64).max(1)
}

/// Says that calls of the loader are [told](tell_call) from now on. To be called before there are fibers, which
/// know the libraries that are there then; and not where this is a part of a library behind libc, because other
/// libraries call libc's own functions there.
pub fn tell_calls() {
    CALLED.store(NOT_YET, Ordering::Relaxed);
}

/// To be called by what stands in for `dlopen` and its kin, before it calls them, and when libraries begin.
pub fn tell_call() {
    if CALLED.load(Ordering::Relaxed) != 0 {
        CALLED.store(seconds(), Ordering::Relaxed);
    }
}

/// Whether libraries may have been loaded or unloaded since the last look: no carrier has looked since the calls of the
/// loader that are told must have ended, or its calls are not [told](tell_calls).
pub fn may_have_changed() -> bool {
    match CALLED.load(Ordering::Relaxed) {
        0 => true,
        NOT_YET => false,
        called => LOOKED.load(Ordering::Relaxed) <= called + LOADING,
    }
}

/// A carrier has looked.
pub fn tell_look() {
    LOOKED.store(seconds(), Ordering::Relaxed);
}

/// Waits until no thread iterates, for a while, and blocks all from iterating until [`release`].
pub(crate) fn hold() {
    ITERATING.hold();
}

/// Undoes [`hold`].
///
/// # Safety
/// The caller called `hold`, or its parent process did before a fork.
pub(crate) unsafe fn release() {
    // SAFETY: as this function demands.
    unsafe { ITERATING.release() };
}

/// Lets threads iterate in the child of a fork, also if `hold` has not waited until none did.
///
/// # Safety
/// The caller is the only thread, and did not iterate when it forked.
pub(crate) unsafe fn renew() {
    // SAFETY: as this function demands; there is no value.
    unsafe { ITERATING.reopen() };
}
