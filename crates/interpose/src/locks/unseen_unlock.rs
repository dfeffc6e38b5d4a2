//! Mutexes that libc unlocks for a thread that waits for a condition.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use carefree_runtime::lot;

use crate::call::user::User;

const PLACES: usize = 256;

/// How many threads are in libc's waiting functions, by the place of their mutex.
static GIVING: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

fn place(mutex: usize) -> &'static AtomicU32 {
    // A mutex has 40 bytes, and is often part of something larger.
    &GIVING[(mutex >> 4) % PLACES]
}

/// Whether libc may unlock the mutex unseen.
pub(crate) fn gives_back(mutex: usize) -> bool {
    place(mutex).load(Ordering::SeqCst) != 0
}

/// Calls `wait`, libc's function, for a thread. Nothing here needs to be dropped: a thread that is cancelled
/// while it waits stays counted, which only costs others a look now and then.
pub(crate) fn giving_back(
    mutex: User<libc::pthread_mutex_t>,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let key = mutex.address();
    let place = place(key);
    place.fetch_add(1, Ordering::SeqCst);
    lot::fence_before_look();
    if lot::is_waited(key) {
        lot::unpark(key, 1);
    }
    let result = wait();
    place.fetch_sub(1, Ordering::SeqCst);
    result
}
