//! The dynamic loader's lock: `dlclose`, `__cxa_thread_atexit_impl`; and `dlopen`, in `dlopen.rs`.
//!
//! libc holds a lock while it loads and unloads libraries, while their constructors and destructors
//! run, too. It is a recursive mutex, and libc takes a fiber for a thread: a fiber that waits in a
//! constructor parks as anywhere, and owns the lock meanwhile. But another fiber that takes it within
//! libc blocks its carrier, which may be the one that the owner waits for. Not only by loading a
//! library: libc takes the lock as well when a thread first has a thread-local variable with a
//! destructor, as fibers have that print or receive from a channel.
//!
//! So a fiber that is about to take it waits here first, parked, until the lock can be taken. Where that
//! is possible, it keeps the lock until libc's function, which takes it once more, is done. Not so for
//! `dlopen`, which tells its caller by the return address: the lock is given back right before. If
//! a fiber on another carrier is faster, and then waits in a constructor, this carrier waits as well.
//!
//! `dlsym` is left alone: it takes the lock too, for moments, and tells its caller the same way. Asked for while
//! another fiber waits in a constructor, it blocks the carrier until that one is done.
//!
//! # Which mutex it is
//!
//! It lies in the loader's own memory, and no symbol tells where. But its owner is known while a library
//! begins: it is the caller. So it is looked for then, as the one mutex there that is recursive and owned
//! by the caller; what that looks like is seen in a mutex of our own. Before the first library has
//! begun, no fiber waits in a constructor.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_context::loader;
use carefree_runtime::Reason;
use carefree_runtime::clock::NEVER;

use crate::locks::mutex::{pthread_mutex_lock, pthread_mutex_unlock};
use crate::locks::object::{Unseen, Wait};

/// The mutex, once it is known.
static LOCK: AtomicPtr<libc::pthread_mutex_t> = AtomicPtr::new(ptr::null_mut());

/// Words of a mutex that tell its kind, its owner and that it is locked.
const WORDS: usize = 5;

/// Finds out which mutex it is. The caller holds it once, because a library begins.
pub(crate) fn learn() {
    if !LOCK.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Some(ours) = held_by_caller() else { return };
    // Not while it tells of the objects: it holds another lock meanwhile.
    let mut found = None;
    for address in data().step_by(8) {
        // SAFETY: the loader's data, which is there as long as the process; others may write to it
        // meanwhile.
        let words = unsafe { (address as *const [u32; WORDS]).read_volatile() };
        // The first tells as well whether others wait; the second is how often it is held.
        if words[1] >= 1 && [words[0].min(1), 1, words[2], words[3], words[4]] == ours {
            if found.is_some() {
                return;
            }
            found = Some(address);
        }
    }
    if let Some(address) = found {
        LOCK.store(address as *mut _, Ordering::Release);
    }
}

/// Where in the loader's own data a mutex may begin.
fn data() -> Range<usize> {
    // SAFETY: asks for a number.
    let base = unsafe { libc::getauxval(libc::AT_BASE) } as usize;
    let mut data = 0..0;
    loader::any_object(|info| {
        if info.dlpi_phdr.is_null() || base == 0 || info.dlpi_addr as usize != base {
            return false;
        }
        // SAFETY: as the loader describes it.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let is_data =
            |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W != 0;
        if let Some(header) = headers.iter().rfind(is_data) {
            let start = base + header.p_vaddr as usize;
            let end = start + header.p_memsz as usize - size_of::<libc::pthread_mutex_t>();
            data = start.next_multiple_of(8)..end + 1;
        }
        true
    });
    data
}

/// What a recursive mutex looks like that the caller holds once.
fn held_by_caller() -> Option<[u32; WORDS]> {
    // SAFETY: attributes and a mutex that are made before they are used and not moved meanwhile; the
    // words of a mutex that its owner holds do not change.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_mutexattr_t>();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_settype(&raw mut attributes, libc::PTHREAD_MUTEX_RECURSIVE);
        let mutex = UnsafeCell::new(std::mem::zeroed::<libc::pthread_mutex_t>());
        libc::pthread_mutex_init(mutex.get(), &raw const attributes);
        let locked = pthread_mutex_lock::original(mutex.get()) == 0;
        let words = mutex.get().cast::<[u32; WORDS]>().read_volatile();
        if locked {
            pthread_mutex_unlock::original(mutex.get());
        }
        libc::pthread_mutex_destroy(mutex.get());
        libc::pthread_mutexattr_destroy(&raw mut attributes);
        (locked && words[..2] == [1, 1] && words[2] != 0).then_some(words)
    }
}

/// Takes the lock if it is known, the fiber being parked until it can be taken.
fn take() -> Option<Taken> {
    let lock = LOCK.load(Ordering::Acquire);
    if lock.is_null() {
        return None;
    }
    let wait = Wait {
        key: lock as usize,
        tag: 0,
        reason: Reason::Mutex,
        deadline: NEVER,
        // By libc, at the end of what it holds it for.
        unseen: Unseen::Always,
    };
    // SAFETY: a mutex of libc's that stays where it is.
    wait.until(|| (unsafe { libc::pthread_mutex_trylock(lock) } == 0).then_some(Taken(lock)))
}

/// Waits, parked, until the lock can be taken.
#[cfg_attr(carefree_sanitized, expect(dead_code, reason = "`dlopen` is the sanitizer's"))]
pub(crate) fn await_turn() {
    drop(take());
}

/// That the caller holds the lock.
struct Taken(*mut libc::pthread_mutex_t);

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the caller has taken it.
        unsafe { pthread_mutex_unlock::original(self.0) };
    }
}

interpose! {
    /// Has a destructor of a thread-local variable called when the thread ends. `std` calls it, and
    /// C++'s run-time library.
    fn __cxa_thread_atexit_impl(
        destructor: *mut c_void,
        object: *mut c_void,
        library: *mut c_void,
    ) -> c_int {
        let _taken = take();
        // SAFETY: the caller's promise.
        unsafe { original(destructor, object, library) }
    }
}

interpose! {
    /// `dlclose(3)`.
    fn dlclose(library: *mut c_void) -> c_int {
        let _taken = take();
        // SAFETY: the caller's promise.
        unsafe { original(library) }
    }
}
