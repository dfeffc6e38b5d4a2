//! Restartable sequences, which libc registers with the kernel for each of its threads.

use carefree_context::tls;
use carefree_ground::kernel;

#[cfg(target_arch = "x86_64")]
const SIGNATURE: usize = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: usize = 0xd428_bc00;
const UNREGISTER: usize = 1;
/// How much memory libc registers: what the first version of the interface had, or as much as the kernel
/// says it uses.
const SIZE: usize = 32;
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

/// Ends the sequences of the calling kernel thread, which libc has registered under the thread pointer `tp`.
/// Returns the area, if there was one.
///
/// # Safety
/// `tp` was the thread pointer of the kernel thread when libc started it.
pub(crate) unsafe fn take_back(tp: *mut u8) -> Option<*mut u8> {
    let area = tp.wrapping_offset(tls::rseq_offset()?);
    // SAFETY: `getauxval` may be called at any time.
    let later = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as usize;
    [SIZE, later.next_multiple_of(SIZE)].into_iter().find_map(|size| {
        let arguments = [area as usize, size, UNREGISTER, SIGNATURE, 0, 0];
        // SAFETY: the kernel refuses all but what was registered, and then does not access that any more.
        unsafe { kernel::call(libc::SYS_rseq, arguments) }.ok().map(|_| area)
    })
}
