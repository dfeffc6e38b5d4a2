//! How many threads of the program's are alive: the last one's end is the process's, if the first one has ended by
//! `pthread_exit`.
//!
//! libc's own count includes the carriers. So this module counts the hosted threads and the threads that are not fibers,
//! from their creation on. (It does not count those that were there before the first hosted thread.) A key's destructor
//! notices the end of a thread that is not a fiber, whether it returns, exits or is cancelled. It acts in the last round
//! of destructors, so that the program's destructors have run.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceNonZeroUsize;

/// Hosted threads in the lower half, threads that are not fibers in the upper half. One word, so that exactly one end
/// finds that it is the last.
static ALIVE: AtomicU64 = AtomicU64::new(HOSTED);
const HOSTED: u64 = 1;
const PLAIN: u64 = 1 << 32;

/// A hosted thread is created: how many others there are.
pub(super) fn count_hosted() -> u64 {
    u64::from(ALIVE.fetch_add(HOSTED, Ordering::SeqCst) as u32)
}

/// A hosted thread has ended, or was not created: whether it was the program's last thread.
pub(super) fn uncount_hosted() -> bool {
    ALIVE.fetch_sub(HOSTED, Ordering::SeqCst) == HOSTED
}

/// How many there are of both.
pub(crate) fn number() -> u64 {
    let alive = ALIVE.load(Ordering::SeqCst);
    alive % PLAIN + alive / PLAIN
}

/// In the child of a fork: the caller is the only thread.
pub(super) fn renew() {
    ALIVE.store(HOSTED, Ordering::Relaxed);
}

/// `PTHREAD_DESTRUCTOR_ITERATIONS` of glibc.
const ROUNDS: usize = 4;

/// The key, plus 1. (Two threads may make one at once: then one is left unused.)
static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();

fn key() -> Option<libc::pthread_key_t> {
    let make = || {
        let mut key = 0;
        // SAFETY: a place for the key, and a function that may be called with what is set for it.
        let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ends)) };
        let made = (made == 0).then_some(key as usize + 1);
        made.and_then(std::num::NonZero::new).ok_or(())
    };
    KEY.get_or_try_init(make).ok().map(|key| (key.get() - 1) as libc::pthread_key_t)
}

unsafe extern "C" fn ends(round: *mut c_void) {
    let round = round.addr();
    if round < ROUNDS {
        set(round + 1);
    } else {
        uncount();
    }
}

fn set(round: usize) {
    if let Some(key) = key() {
        // SAFETY: a key, and a number in place of an address.
        unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(round)) };
    }
}

/// A thread that is not a fiber is created. (Without a key it is not counted, because its end would go unnoticed.)
pub(super) fn count() {
    if key().is_some() {
        ALIVE.fetch_add(PLAIN, Ordering::SeqCst);
    }
}

/// Such a thread has ended, or was not created.
pub(super) fn uncount() {
    if key().is_some() && ALIVE.fetch_sub(PLAIN, Ordering::SeqCst) == PLAIN {
        // The first thread has ended by `pthread_exit`, and this is the last one.
        // SAFETY: no other thread calls it.
        unsafe { libc::exit(0) };
    }
}

/// Has the destructor notice the end of the calling thread, which was counted.
pub(super) fn tell_end() {
    set(1);
}

/// The calling thread is a hosted one from now on: the destructor is to ignore its end.
pub(super) fn forget_end() {
    set(0);
}
