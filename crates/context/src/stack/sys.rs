//! System calls on stacks: memory mapping, and advice on it.
//!
//! They do not go through libc, for the reasons given in `carefree_ground`. Also, a raw call leaves
//! `errno` alone, so acquiring or dropping a stack is invisible to the code around it.
//!
//! Tests make the n-th call of a kind fail here: see `inject`.

use carefree_ground::kernel;

/// An error number returned by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(super) fn to_io(self) -> std::io::Error {
        std::io::Error::from_raw_os_error(self.0)
    }
}

/// `MADV_POPULATE_WRITE` (Linux 5.14): allocates the pages of a range as a write to each would.
pub(super) const MADV_POPULATE_WRITE: i32 = 23;
/// `MADV_GUARD_INSTALL` (Linux 6.13): makes any access to the pages of a range fault, without a
/// separate mapping.
pub(super) const MADV_GUARD_INSTALL: i32 = 102;
/// `PIDFD_SELF_THREAD` (Linux 6.14): means this process in calls that take a pidfd.
pub(super) const PIDFD_SELF: i32 = -10_000;

/// Makes a system call of up to six arguments.
///
/// # Safety
/// As for [`kernel::call`].
#[inline]
unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: both functions require the same.
    unsafe { kernel::call(number, args) }.map_err(Errno)
}

/// Reserves `bytes` of readable, writable, private memory that is not accounted for until it is
/// touched.
pub(super) fn reserve(bytes: usize) -> Result<*mut u8, Errno> {
    reserve_with(0, bytes, 0)
}

/// [`reserve`] at this address, which fails if the place is taken. Kernels before Linux 4.17 may
/// choose another address instead.
pub(super) fn reserve_at(address: usize, bytes: usize) -> Result<*mut u8, Errno> {
    reserve_with(address, bytes, libc::MAP_FIXED_NOREPLACE)
}

fn reserve_with(address: usize, bytes: usize, flags: i32) -> Result<*mut u8, Errno> {
    inject::check(inject::Call::Mmap)?;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping that replaces none.
    let address =
        unsafe { call(libc::SYS_mmap, [address, bytes, protection, flags, usize::MAX, 0]) }?;
    Ok(address as *mut u8)
}

/// Whether the word at `address`, which must not hold 1, can be read. The kernel reads it, so that
/// this cannot fault.
pub(super) fn is_readable(address: *const u32) -> bool {
    // The kernel reads the word and returns at once, since it differs from the expected 1. valgrind
    // passes this call on without reading the memory itself, where it would fault; of others it
    // does, for example of those that take paths.
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the kernel only reads the word. It does not wait, as the word is not 1.
    let answer = unsafe { call(libc::SYS_futex, [address as usize, operation, 1, 0, 0, 0]) };
    answer != Err(Errno(libc::EFAULT))
}

/// Unmaps a range.
///
/// # Safety
/// The range belongs to the caller and is not used any more.
pub(super) unsafe fn unmap(address: *mut u8, bytes: usize) -> Result<(), Errno> {
    // SAFETY: no code uses the memory afterwards.
    unsafe { call(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]) }.map(drop)
}

/// Advises the kernel on a range.
///
/// # Safety
/// The range belongs to the caller, and contents that the advice destroys or makes inaccessible are
/// not needed.
pub(super) unsafe fn madvise(address: *mut u8, bytes: usize, advice: i32) -> Result<(), Errno> {
    inject::check(inject::Call::Madvise)?;
    // SAFETY: no code uses what the advice takes away.
    unsafe { call(libc::SYS_madvise, [address as usize, bytes, advice as usize, 0, 0, 0]) }
        .map(drop)
}

/// Advises the kernel on many ranges of this process at once; returns for how many bytes it worked.
///
/// # Safety
/// As for [`madvise`], for every range.
pub(super) unsafe fn process_madvise(
    pidfd: i32,
    ranges: &[libc::iovec],
    advice: i32,
) -> Result<usize, Errno> {
    inject::check(inject::Call::ProcessMadvise)?;
    let args = [pidfd as usize, ranges.as_ptr() as usize, ranges.len(), advice as usize, 0, 0];
    // SAFETY: the kernel only reads `ranges`, and no code uses what the advice takes away.
    unsafe { call(libc::SYS_process_madvise, args) }
}

/// Makes a range inaccessible.
///
/// # Safety
/// The range belongs to the caller and is not accessed any more.
pub(super) unsafe fn forbid(address: *mut u8, bytes: usize) -> Result<(), Errno> {
    inject::check(inject::Call::Mprotect)?;
    // SAFETY: no code accesses the memory afterwards.
    unsafe {
        call(libc::SYS_mprotect, [address as usize, bytes, libc::PROT_NONE as usize, 0, 0, 0])
    }
    .map(drop)
}

/// Finds which pages of a range are in memory: bit 0 of one byte a page.
pub(super) fn resident(address: *const u8, bytes: usize, pages: &mut [u8]) -> Result<(), Errno> {
    assert!(pages.len() >= bytes.div_ceil(page_size()), "mincore writes one byte a page");
    // SAFETY: the kernel writes one byte a page to `pages`, which is large enough.
    unsafe {
        call(libc::SYS_mincore, [address as usize, bytes, pages.as_mut_ptr() as usize, 0, 0, 0])
    }
    .map(drop)
}

/// Names a range in `/proc/self/maps`, if the kernel supports that.
pub(super) fn name(address: *const u8, bytes: usize, name: &'static std::ffi::CStr) {
    const PR_SET_VMA: usize = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: usize = 0;
    let args =
        [PR_SET_VMA, PR_SET_VMA_ANON_NAME, address as usize, bytes, name.as_ptr() as usize, 0];
    // SAFETY: the kernel only reads `name`, and changes no memory.
    let _ = unsafe { call(libc::SYS_prctl, args) };
}

/// Opens a pidfd of this process, for kernels that have `process_madvise` but not [`PIDFD_SELF`].
pub(super) fn pidfd_open_self() -> Result<i32, Errno> {
    // SAFETY: neither call accesses memory.
    unsafe {
        let pid = call(libc::SYS_getpid, [0; 6])?;
        call(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]).map(|fd| fd as i32)
    }
}

/// Closes a file descriptor that [`pidfd_open_self`] has opened.
pub(super) fn close(fd: i32) {
    // SAFETY: accesses no memory; only the caller of `pidfd_open_self` knows the descriptor.
    let _ = unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Writes to a file descriptor; returns how many bytes were written.
pub(crate) fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the kernel only reads `bytes`.
    unsafe { call(libc::SYS_write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) }
}

/// The size of a memory page in bytes.
pub(crate) fn page_size() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    match PAGE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: sysconf has no preconditions.
            let page =
                usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
            PAGE.store(page, Ordering::Relaxed);
            page
        }
        page => page,
    }
}

/// Makes the n-th call of a kind fail on this thread, for tests.
#[cfg(test)]
pub(super) mod inject {
    use super::Errno;
    use std::cell::Cell;

    /// The calls that can be made to fail.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::stack) enum Call {
        Mmap,
        Madvise,
        ProcessMadvise,
        Mprotect,
    }

    thread_local! {
        static PLAN: Cell<Option<(Call, u32, u32, Errno)>> = const { Cell::new(None) };
    }

    /// Runs `body` while the calls number `from..from + times` (counted from 0) of this kind fail.
    pub(in crate::stack) fn failing<T>(
        call: Call,
        from: u32,
        times: u32,
        errno: i32,
        body: impl FnOnce() -> T,
    ) -> T {
        PLAN.set(Some((call, from, times, Errno(errno))));
        let result = body();
        PLAN.set(None);
        result
    }

    pub(super) fn check(call: Call) -> Result<(), Errno> {
        match PLAN.get() {
            Some((planned, from, times, errno)) if planned == call && times > 0 => {
                if from > 0 {
                    PLAN.set(Some((planned, from - 1, times, errno)));
                    Ok(())
                } else {
                    PLAN.set(Some((planned, 0, times - 1, errno)));
                    Err(errno)
                }
            }
            _ => Ok(()),
        }
    }
}

/// Outside of tests no call is made to fail, and the checks compile to nothing.
#[cfg(not(test))]
mod inject {
    pub(super) enum Call {
        Mmap,
        Madvise,
        ProcessMadvise,
        Mprotect,
    }

    #[inline(always)]
    pub(super) fn check(_: Call) -> Result<(), super::Errno> {
        Ok(())
    }
}
