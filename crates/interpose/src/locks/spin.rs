//! `pthread_spin_*`: a fiber that spins for long lets other fibers run, which may include the holder.

use std::ffi::c_int;

use crate::call::host;
use crate::call::user::User;

/// How often it tries before it lets other fibers run: longer than a holder on another carrier needs.
const SPINS: u32 = 100;

interpose! { steady
    /// `pthread_spin_lock(3)`.
    safe fn pthread_spin_lock(lock: User<libc::pthread_spinlock_t>) -> c_int,
        linked "__pthread_spin_lock"
    {
        let mut spins = 0;
        loop {
            // SAFETY: the program has given a lock that libc has set up.
            match unsafe { libc::pthread_spin_trylock(lock.pointer()) } {
                libc::EBUSY if spins < SPINS => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                libc::EBUSY => {
                    carefree_runtime::yield_now();
                    // A thread's signals interrupt it here as in any loop.
                    host::handle_signals();
                }
                result => return result,
            }
        }
    }
}
