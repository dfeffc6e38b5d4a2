//! Mutexes that cannot be what the program asks for.
//!
//! For a mutex that inherits priorities, a thread of another process waits in the kernel, which must know the owner by
//! its number; a fiber has none there. Nothing can be done about that, so it is said.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use carefree_ground::text::Text;
use carefree_runtime::hosted;
use libc::{pthread_mutex_t, pthread_mutexattr_t};

/// Whether the program has made one that is shared with other processes.
static MADE: AtomicBool = AtomicBool::new(false);

/// Says that there are such mutexes, if there are and the program's threads are fibers. To be called when they become
/// that.
pub(crate) fn tell() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if MADE.load(Ordering::Relaxed) && !TOLD.swap(true, Ordering::Relaxed) {
        Text::print_line(format_args!(
            "carefree: this program shares a mutex that inherits priorities with other processes: they would wait for \
             ever for a thread that is a fiber and has locked it; to run the program on threads, set CAREFREE_RUN=off"
        ));
    }
}

/// Whether a mutex with these attributes inherits priorities and is shared.
///
/// # Safety
/// Null, or attributes that were initialised.
unsafe fn is_such(attributes: *const pthread_mutexattr_t) -> bool {
    let (mut protocol, mut shared) = (libc::PTHREAD_PRIO_NONE, libc::PTHREAD_PROCESS_PRIVATE);
    // SAFETY: as this function demands; there is room for the answers.
    let known = unsafe {
        !attributes.is_null()
            && libc::pthread_mutexattr_getprotocol(attributes, &raw mut protocol) == 0
            && libc::pthread_mutexattr_getpshared(attributes, &raw mut shared) == 0
    };
    known && protocol == libc::PTHREAD_PRIO_INHERIT && shared == libc::PTHREAD_PROCESS_SHARED
}

stand_in! {
    /// `pthread_mutex_init(3)`.
    fn pthread_mutex_init(
        mutex: *mut pthread_mutex_t,
        attributes: *const pthread_mutexattr_t,
    ) -> c_int {
        // SAFETY: the caller's arguments.
        unsafe {
            let done = next(mutex, attributes);
            if done == 0 && is_such(attributes) {
                MADE.store(true, Ordering::Relaxed);
                if hosted::is_hosting() {
                    tell();
                }
            }
            done
        }
    }
}
