//! Memory from the kernel, by calls that no allocator sees.

use std::ptr::NonNull;

use crate::kernel;

/// Maps `bytes` of readable and writable memory that is all zero, at an address of the kernel's choice.
///
/// ```
/// use carefree_ground::memory;
///
/// let page = memory::map(4096)?;
/// // SAFETY: it was just mapped, and no other code knows of it.
/// unsafe {
///     assert_eq!(page.read(), 0);
///     memory::unmap(page, 4096);
/// }
/// # Ok::<(), i32>(())
/// ```
///
/// # Errors
/// The `errno` value with which the kernel refuses it.
pub fn map(bytes: usize) -> Result<NonNull<u8>, i32> {
    map_with(bytes, 0)
}

/// Unmaps memory.
///
/// # Safety
/// These `bytes` from `start` on are from [`map`], and are not used any more.
pub unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: as this function demands. (It fails only where a mapping would have to be split, which this is not.)
    let _ = unsafe { kernel::call(libc::SYS_munmap, [start.as_ptr() as usize, bytes, 0, 0, 0, 0]) };
}

/// Whether the kernel would map `bytes` more, so that nothing else is refused soon. They are not counted as used.
pub fn is_at_hand(bytes: usize) -> bool {
    let Ok(start) = map_with(bytes, libc::MAP_NORESERVE) else { return false };
    // SAFETY: just mapped, and not used.
    unsafe { unmap(start, bytes) };
    true
}

fn map_with(bytes: usize, flags: libc::c_int) -> Result<NonNull<u8>, i32> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags) as usize;
    // SAFETY: a new private mapping, which replaces none.
    let start =
        unsafe { kernel::call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) }?;
    // (The kernel maps nothing at address 0 that was not asked for there.)
    NonNull::new(start as *mut u8).ok_or(libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_address_space_does_not_hold_is_not_at_hand() {
        assert!(is_at_hand(1 << 20));
        assert!(!is_at_hand(isize::MAX as usize));
        assert_eq!(map(isize::MAX as usize), Err(libc::ENOMEM));
        assert_eq!(map(0), Err(libc::EINVAL));
    }
}
