//! `pthread_spin_*`: a fiber that spins for long lets other fibers run, which may include the holder.

use std::ffi::c_int;

/// How often it tries before it lets other fibers run: longer than a holder on another carrier needs.
const SPINS: u32 = 100;

interpose! {
    /// `pthread_spin_lock(3)`.
    fn pthread_spin_lock(lock: *mut libc::pthread_spinlock_t) -> c_int,
        linked "__pthread_spin_lock"
    {
        let mut spins = 0;
        loop {
            // SAFETY: the caller's promise.
            match unsafe { libc::pthread_spin_trylock(lock) } {
                libc::EBUSY if spins < SPINS => {
                    spins += 1;
                    std::hint::spin_loop();
                }
                libc::EBUSY => carefree_runtime::yield_now(),
                result => return result,
            }
        }
    }
}
