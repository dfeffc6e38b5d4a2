//! The kind of a lock of libc's: shared between processes, robust, and so on.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::user::User;

/// A bit in an object of libc's that distinguishes one kind from the usual one.
///
/// Its place differs between versions of libc. So it is not taken from a header, but found by comparing two
/// objects that libc has set up.
#[derive(Clone, Copy, Debug)]
struct Bit {
    word: u32,
    /// 0 where no such bit was found.
    mask: u32,
}

impl Bit {
    /// The bit that is set in `special` and not in `usual`.
    fn between<T>(usual: &T, special: &T) -> Bit {
        let words = size_of::<T>() as u32 / 4;
        let word_of = |object: &T, index: u32| {
            // SAFETY: within the object, which libc has set up whole; the caller zeroed it before.
            unsafe { std::ptr::from_ref(object).cast::<u32>().add(index as usize).read() }
        };
        (0..words)
            .map(|word| Bit { word, mask: word_of(special, word) & !word_of(usual, word) })
            .find(|bit| bit.mask != 0)
            .unwrap_or(Bit { word: 0, mask: 0 })
    }

    /// As for [`Known::is_set`].
    ///
    /// # Safety
    /// Libc has set the object up.
    unsafe fn is_set<T>(self, object: *const T, unknown: bool) -> bool {
        if self.mask == 0 {
            return unknown;
        }
        // SAFETY: within the object. The word does not change while the object is in use, but its
        // neighbours do, by atomic accesses.
        unsafe { object.cast::<u32>().add(self.word as usize).read_volatile() & self.mask != 0 }
    }
}

/// A [`Bit`] that is found when it is first needed.
///
/// Threads that need it at the same time each find it, and find the same. A `OnceLock` would not do: in the
/// child of a fork, the thread that was finding it may be missing, and others would wait for it. Nor would
/// allocated memory: the program's allocator may be the caller.
#[derive(Debug)]
pub(crate) struct Known {
    /// [`FOUND`](Self::FOUND), the word, the mask; 0 before.
    bit: AtomicU64,
    find: fn() -> Bit,
}

impl Known {
    const FOUND: u64 = 1 << 63;

    const fn new(find: fn() -> Bit) -> Known {
        Known { bit: AtomicU64::new(0), find }
    }

    /// Whether `object` is of the special kind. `unknown` if this libc has no such bit.
    pub(crate) fn is_set<T>(&self, object: User<T>, unknown: bool) -> bool {
        // SAFETY: the program has given it for an object of this type, which libc has set up.
        unsafe { self.bit().is_set(object.pointer(), unknown) }
    }

    fn bit(&self) -> Bit {
        // Nothing else is published by it.
        let known = self.bit.load(Ordering::Relaxed);
        if known != 0 {
            return Bit { word: ((known & !Self::FOUND) >> 32) as u32, mask: known as u32 };
        }
        self.find()
    }

    /// (Not inlined: the two objects of libc's would lie in the frames of fibers that wait for the lock.)
    #[cold]
    #[inline(never)]
    fn find(&self) -> Bit {
        let bit = (self.find)();
        self.bit.store(
            Self::FOUND | u64::from(bit.word) << 32 | u64::from(bit.mask),
            Ordering::Relaxed,
        );
        bit
    }
}

/// The kinds that libc's objects show.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// The mutex can be unlocked by another process.
    pub(crate) mutex_shared: Known,
    /// The kernel unlocks the mutex when its owner ends.
    pub(crate) mutex_robust: Known,
    /// The mutex reports an owner that locks it again.
    pub(crate) mutex_checked: Known,
    /// The kernel manages the waits for the mutex, for priority inheritance.
    pub(crate) mutex_inherits: Known,
    pub(crate) condition_shared: Known,
    /// The condition's times are of the monotonic clock.
    pub(crate) condition_monotonic: Known,
    pub(crate) lock_shared: Known,
    /// A writer that waits for the lock turns readers away.
    pub(crate) lock_prefers_writers: Known,
    pub(crate) semaphore_shared: Known,
}

/// Sets an object up twice, with an attribute and without, and finds the bit.
macro_rules! bit {
    ($object:ty, $init:ident, $attributes:ty, $attributes_init:ident, $destroy:ident, $set:expr) => {{
        // SAFETY: plain memory for libc to set up; the functions, `$set` among them, are used as
        // the manual says. What is set up is never used, so it need not be destroyed.
        unsafe {
            let (mut usual, mut special) = std::mem::zeroed::<($object, $object)>();
            let mut attributes = std::mem::zeroed::<$attributes>();
            libc::$attributes_init(&raw mut attributes);
            let set: fn(*mut $attributes) -> c_int = $set;
            let possible = libc::$init(&raw mut usual, std::ptr::null()) == 0
                && set(&raw mut attributes) == 0
                && libc::$init(&raw mut special, &raw const attributes) == 0;
            libc::$destroy(&raw mut attributes);
            if possible { Bit::between(&usual, &special) } else { Bit { word: 0, mask: 0 } }
        }
    }};
}

macro_rules! mutex_bit {
    ($set:expr) => {
        bit!(
            libc::pthread_mutex_t,
            pthread_mutex_init,
            libc::pthread_mutexattr_t,
            pthread_mutexattr_init,
            pthread_mutexattr_destroy,
            $set
        )
    };
}

macro_rules! condition_bit {
    ($set:expr) => {
        bit!(
            libc::pthread_cond_t,
            pthread_cond_init,
            libc::pthread_condattr_t,
            pthread_condattr_init,
            pthread_condattr_destroy,
            $set
        )
    };
}

macro_rules! lock_bit {
    ($set:expr) => {
        bit!(
            libc::pthread_rwlock_t,
            pthread_rwlock_init,
            libc::pthread_rwlockattr_t,
            pthread_rwlockattr_init,
            pthread_rwlockattr_destroy,
            $set
        )
    };
}

/// The kinds, with this libc's bits.
pub(crate) fn kinds() -> &'static Kinds {
    const SHARED: c_int = libc::PTHREAD_PROCESS_SHARED;
    static KINDS: Kinds = Kinds {
        mutex_shared: Known::new(|| mutex_bit!(|a| libc::pthread_mutexattr_setpshared(a, SHARED))),
        mutex_robust: Known::new(|| {
            mutex_bit!(|a| libc::pthread_mutexattr_setrobust(a, libc::PTHREAD_MUTEX_ROBUST))
        }),
        mutex_checked: Known::new(|| {
            mutex_bit!(|a| libc::pthread_mutexattr_settype(a, libc::PTHREAD_MUTEX_ERRORCHECK))
        }),
        mutex_inherits: Known::new(|| {
            mutex_bit!(|a| libc::pthread_mutexattr_setprotocol(a, libc::PTHREAD_PRIO_INHERIT))
        }),
        condition_shared: Known::new(|| {
            condition_bit!(|a| libc::pthread_condattr_setpshared(a, SHARED))
        }),
        condition_monotonic: Known::new(|| {
            condition_bit!(|a| libc::pthread_condattr_setclock(a, libc::CLOCK_MONOTONIC))
        }),
        lock_shared: Known::new(|| lock_bit!(|a| libc::pthread_rwlockattr_setpshared(a, SHARED))),
        lock_prefers_writers: Known::new(lock_prefers_writers),
        semaphore_shared: Known::new(semaphore_shared),
    };
    &KINDS
}

#[cfg(target_env = "gnu")]
fn lock_prefers_writers() -> Bit {
    const PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP: c_int = 2;
    lock_bit!(|a| libc::pthread_rwlockattr_setkind_np(
        a,
        PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP
    ))
}

/// musl's locks are of one kind.
#[cfg(not(target_env = "gnu"))]
fn lock_prefers_writers() -> Bit {
    Bit { word: 0, mask: 0 }
}

fn semaphore_shared() -> Bit {
    // SAFETY: memory for libc to set up, never used.
    unsafe {
        let (mut usual, mut special) = std::mem::zeroed::<(libc::sem_t, libc::sem_t)>();
        libc::sem_init(&raw mut usual, 0, 0);
        libc::sem_init(&raw mut special, 1, 0);
        Bit::between(&usual, &special)
    }
}
