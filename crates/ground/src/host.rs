//! A process whose threads are fibers of another copy of Carefree's: under `carefree run`.
//!
//! The functions of libc's names are that copy's there, and a thread that waits by one of them parks. A thread
//! of this copy's that waited by a bare system call would keep the carrier that it runs on. So its waits, and
//! the wake-ups that end them, go through the other copy's `syscall` once that is known. (Not by this copy's
//! function of that name: it looks for fibers that wait, under a lock that the caller may hold.)

use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function like libc's `syscall`.
pub type SystemCall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// The other copy's function; null if there is none.
static CALL: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Notes that the process's threads are fibers of another copy's, whose `syscall` this is.
///
/// # Safety
/// `call` takes and does what libc's `syscall` does, and is there as long as the process.
pub unsafe fn note(call: SystemCall) {
    CALL.store(call as *mut (), Ordering::SeqCst);
}

/// Whether the process's threads are another copy's fibers.
pub fn is_there() -> bool {
    !CALL.load(Ordering::SeqCst).is_null()
}

/// The system call `futex`, by the other copy if there is one. Does not change `errno`.
///
/// ```
/// use std::sync::atomic::AtomicU32;
///
/// let word = AtomicU32::new(1);
/// let arguments = [word.as_ptr() as usize, libc::FUTEX_WAIT as usize, 2, 0, 0, 0];
/// // SAFETY: the kernel only reads the word.
/// assert_eq!(unsafe { carefree_ground::host::futex(arguments) }, None);
/// // SAFETY: it is libc's.
/// unsafe { carefree_ground::host::note(libc::syscall) };
/// // SAFETY: the kernel only reads the word.
/// let waited = unsafe { carefree_ground::host::futex(arguments) };
/// assert_eq!(waited, Some(Err(libc::EAGAIN)), "the word is not 2");
/// ```
///
/// # Safety
/// As for the system call.
#[inline]
pub unsafe fn futex(arguments: [usize; 6]) -> Option<Result<usize, c_int>> {
    let call = CALL.load(Ordering::SeqCst);
    if call.is_null() {
        return None;
    }
    // SAFETY: only `note` writes it, a function of that type. The caller vouches for the call.
    Some(unsafe { futex_by(std::mem::transmute::<*mut (), SystemCall>(call), arguments) })
}

/// # Safety
/// As for [`futex`].
#[cold]
unsafe fn futex_by(call: SystemCall, [a, b, c, d, e, f]: [usize; 6]) -> Result<usize, c_int> {
    // SAFETY: the caller vouches for the call. The location of `errno` is the calling thread's.
    unsafe {
        let location = libc::__errno_location();
        let before = *location;
        let returned = call(libc::SYS_futex, a, b, c, d, e, f);
        let errno = std::mem::replace(&mut *location, before);
        if returned < 0 { Err(errno) } else { Ok(returned as usize) }
    }
}
