//! The dynamic loader's lock: `dlclose`, `__cxa_thread_atexit_impl`; and `dlopen`, in `dlopen.rs`.
//!
//! libc holds a lock while it loads and unloads libraries, including while their constructors and destructors
//! run. It is a recursive mutex, and a fiber owns it like a thread: a fiber that waits in a constructor parks,
//! and keeps the lock. Another fiber that takes the lock within libc then blocks its carrier, and the owner may
//! be waiting for that carrier. This happens not only when a library is loaded: libc takes the lock also when a
//! thread first registers a thread-local variable with a destructor, and fibers do when they print or receive
//! from a channel.
//!
//! So a fiber that is about to take the lock waits here first, parked, until it can be taken. If possible, it
//! keeps the lock until libc's function, which takes it once more, is done. That is not possible for `dlopen`,
//! which identifies its caller by the return address: the lock is released right before. If a fiber on another
//! carrier is faster, and then waits in a constructor, this carrier waits as well.
//!
//! `dlsym` is left alone. It takes the lock briefly, and identifies its caller in the same way. Called while
//! another fiber waits in a constructor, it blocks the carrier until that one is done.
//!
//! A fiber that has the lock makes calls itself that a thread of the offload pool would make: they may need the lock
//! (`getaddrinfo` loads libraries). And once the lock is known, the pool's threads are started without std: those of std
//! register thread-local variables with destructors when they begin.
//!
//! # Which mutex it is
//!
//! It lies in the loader's own memory, and no symbol names it. But while a library begins, its owner is known:
//! the caller. So it is searched for then, as the only mutex there that is recursive and owned by the caller;
//! a mutex of our own shows what that looks like. Before the first library has begun, no fiber waits in a
//! constructor.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use carefree_context::loader;
use carefree_runtime::Reason;
use carefree_runtime::clock::NEVER;
use carefree_runtime::wait::Loader;

use crate::call::user::User;
use crate::locks::mutex::{pthread_mutex_lock, pthread_mutex_unlock};
use crate::locks::object::{Unseen, Wait};

/// The mutex, once it is known.
static LOCK: AtomicPtr<libc::pthread_mutex_t> = AtomicPtr::new(ptr::null_mut());

/// How many words of a mutex hold its state, owner and kind.
const WORDS: usize = 5;

/// Finds the mutex. The caller holds it once, because a library begins.
pub(crate) fn learn() {
    if !LOCK.load(Ordering::Relaxed).is_null() {
        return;
    }
    if let Some(address) = find() {
        LOCK.store(address as *mut _, Ordering::Release);
        carefree_runtime::wait::set_loader(Loader { is_callers });
    }
}

/// The state of the mutex, if that is known and held: its owner is the third word.
fn words() -> Option<[u32; WORDS]> {
    let lock = LOCK.load(Ordering::Acquire).cast::<[u32; WORDS]>();
    // SAFETY: the loader's mutex, once it is known; others may write to it meanwhile.
    let words = (!lock.is_null()).then(|| unsafe { lock.read_volatile() })?;
    (words[1] >= 1).then_some(words)
}

/// Whether the caller holds the lock. What it does by another thread might need the lock, which libc gives to its holder
/// alone.
fn is_callers() -> bool {
    words().is_some_and(|words| held_by_caller().is_some_and(|ours| ours[2] == words[2]))
}

/// Whether the calling thread holds the lock: it loads or unloads a library, and may be in its constructor. To be
/// asked before there are fibers.
pub fn is_held() -> bool {
    find().is_some()
}

/// The mutex, if the caller holds it.
fn find() -> Option<usize> {
    let ours = held_by_caller()?;
    // Searched after the objects were listed: the loader holds another lock while it lists them.
    let mut found = None;
    for address in data().step_by(8) {
        // SAFETY: the loader's data, which is there as long as the process; others may write to it
        // meanwhile.
        let words = unsafe { (address as *const [u32; WORDS]).read_volatile() };
        // The first word also says whether others wait; the second is how often it is held.
        if words[1] >= 1 && [words[0].min(1), 1, words[2], words[3], words[4]] == ours {
            if found.is_some() {
                return None;
            }
            found = Some(address);
        }
    }
    found
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

/// The words of a recursive mutex that the caller holds once.
fn held_by_caller() -> Option<[u32; WORDS]> {
    // SAFETY: attributes and a mutex that are made before they are used and not moved meanwhile; the
    // words of a mutex that its owner holds do not change.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_mutexattr_t>();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_settype(&raw mut attributes, libc::PTHREAD_MUTEX_RECURSIVE);
        let mutex = UnsafeCell::new(std::mem::zeroed::<libc::pthread_mutex_t>());
        libc::pthread_mutex_init(mutex.get(), &raw const attributes);
        let locked = pthread_mutex_lock::original(User::new(mutex.get())) == 0;
        let words = mutex.get().cast::<[u32; WORDS]>().read_volatile();
        if locked {
            pthread_mutex_unlock::original(User::new(mutex.get()));
        }
        libc::pthread_mutex_destroy(mutex.get());
        libc::pthread_mutexattr_destroy(&raw mut attributes);
        (locked && words[..2] == [1, 1] && words[2] != 0).then_some(words)
    }
}

/// Takes the lock, if it is known; the fiber parks until it can.
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
        // libc unlocks it.
        unseen: Unseen::Always,
    };
    // SAFETY: a mutex of libc's that stays where it is.
    wait.until(|| (unsafe { libc::pthread_mutex_trylock(lock) } == 0).then_some(Taken(lock)))
}

/// Parks until the lock can be taken.
#[cfg_attr(carefree_sanitized, expect(dead_code, reason = "`dlopen` is the sanitizer's"))]
pub(crate) fn await_turn() {
    drop(take());
}

/// The lock, held by the caller.
struct Taken(*mut libc::pthread_mutex_t);

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the loader's own mutex, which lives as long as the process, and which the thread that
        // made this value has locked.
        pthread_mutex_unlock::original(unsafe { User::new(self.0) });
    }
}

interpose! { steady
    /// Registers the destructor of a thread-local variable, to be called when the thread ends. `std` and
    /// C++'s run-time library call it.
    safe fn __cxa_thread_atexit_impl(destructor: User, object: User, library: User) -> c_int {
        let _taken = take();
        original(destructor, object, library)
    }
}

interpose! { steady
    /// `dlclose(3)`.
    safe fn dlclose(library: User) -> c_int {
        let _taken = take();
        loader::tell_call();
        let result = original(library);
        // (Its destructors may have taken long.)
        loader::tell_call();
        result
    }
}
