//! The system calls the stack room makes: memory mapping, and advice on it.
//!
//! They are made straight, not through libc, for two reasons. The runtime interposes libc's
//! blocking calls (its `syscall` among them) to park fibers, and a pool that hands out the stacks
//! fibers are made of must not find itself in the scheduler. And a raw call leaves `errno` alone,
//! so acquiring or dropping a stack is invisible to the code around it.
//!
//! It is also the seam where tests make the n-th call of a kind fail: see `inject`.

use carefree_ground::kernel;

/// An error number, as the kernel returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(super) fn to_io(self) -> std::io::Error {
        std::io::Error::from_raw_os_error(self.0)
    }
}

/// `MADV_POPULATE_WRITE` (Linux 5.14): allocates the pages of a range as a write to each would.
pub(super) const MADV_POPULATE_WRITE: i32 = 23;
/// `MADV_GUARD_INSTALL` (Linux 6.13): makes the pages of a range fault at any access, without a
/// mapping of its own.
pub(super) const MADV_GUARD_INSTALL: i32 = 102;
/// `PIDFD_SELF_THREAD` (Linux 6.14): stands for this process wherever a pidfd is asked for.
pub(super) const PIDFD_SELF: i32 = -10_000;

/// Makes a system call of up to six arguments.
///
/// # Safety
/// As for [`kernel::call`].
#[inline]
unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    unsafe { kernel::call(number, args) }.map_err(Errno)
}

/// Reserves `bytes` of readable, writable, private memory that counts for nothing until it is
/// touched.
pub(super) fn reserve(bytes: usize) -> Result<*mut u8, Errno> {
    reserve_with(0, bytes, 0)
}

/// As [`reserve`], but there, unless something is there already. Kernels before Linux 4.17 may
/// choose another address.
pub(super) fn reserve_at(address: usize, bytes: usize) -> Result<*mut u8, Errno> {
    reserve_with(address, bytes, libc::MAP_FIXED_NOREPLACE)
}

fn reserve_with(address: usize, bytes: usize, flags: i32) -> Result<*mut u8, Errno> {
    inject::check(inject::Call::Mmap)?;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new anonymous mapping where nothing is touches no memory in use.
    let address =
        unsafe { call(libc::SYS_mmap, [address, bytes, protection, flags, usize::MAX, 0]) }?;
    Ok(address as *mut u8)
}

/// Whether the word at `address`, which is zero if it can be read, can be. The kernel is asked to read
/// it, so that no fault is risked.
pub(super) fn is_readable(address: *const u32) -> bool {
    // A wait for a word that is not what the caller expects ends at once, but for that the kernel has
    // to read the word. The call is one that valgrind passes on without touching the memory itself,
    // which would fault there; it reads paths, for example.
    let operation = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the call only reads the word, and does not wait while that is 0, not 1.
    let answer = unsafe { call(libc::SYS_futex, [address as usize, operation, 1, 0, 0, 0]) };
    answer != Err(Errno(libc::EFAULT))
}

/// Unmaps a range.
///
/// # Safety
/// Nobody may use the range any more.
pub(super) unsafe fn unmap(address: *mut u8, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_munmap, [address as usize, bytes, 0, 0, 0, 0]) }.map(drop)
}

/// Advises the kernel on a range.
///
/// # Safety
/// The range is the caller's, and nothing in it may be needed that the advice destroys or makes
/// inaccessible.
pub(super) unsafe fn madvise(address: *mut u8, bytes: usize, advice: i32) -> Result<(), Errno> {
    inject::check(inject::Call::Madvise)?;
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_madvise, [address as usize, bytes, advice as usize, 0, 0, 0]) }
        .map(drop)
}

/// Advises the kernel on many ranges of this process at once; returns how many bytes were done.
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
    // SAFETY: the caller's promise; the kernel only reads `ranges`.
    unsafe { call(libc::SYS_process_madvise, args) }
}

/// Makes a range inaccessible.
///
/// # Safety
/// The range is the caller's, and nobody needs to reach it any more.
pub(super) unsafe fn forbid(address: *mut u8, bytes: usize) -> Result<(), Errno> {
    inject::check(inject::Call::Mprotect)?;
    // SAFETY: the caller's promise.
    unsafe {
        call(libc::SYS_mprotect, [address as usize, bytes, libc::PROT_NONE as usize, 0, 0, 0])
    }
    .map(drop)
}

/// Tells which pages of a range are in memory: bit 0 of one byte a page.
pub(super) fn resident(address: *const u8, bytes: usize, pages: &mut [u8]) -> Result<(), Errno> {
    assert!(pages.len() >= bytes.div_ceil(page_size()), "mincore writes one byte a page");
    // SAFETY: reads no memory of ours, and writes one byte a page to `pages`, which is large
    // enough.
    unsafe {
        call(libc::SYS_mincore, [address as usize, bytes, pages.as_mut_ptr() as usize, 0, 0, 0])
    }
    .map(drop)
}

/// Names a range in `/proc/self/maps`; what cannot be named stays nameless.
pub(super) fn name(address: *const u8, bytes: usize, name: &'static std::ffi::CStr) {
    const PR_SET_VMA: usize = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: usize = 0;
    let args =
        [PR_SET_VMA, PR_SET_VMA_ANON_NAME, address as usize, bytes, name.as_ptr() as usize, 0];
    // SAFETY: only reads `name`, and changes no memory.
    let _ = unsafe { call(libc::SYS_prctl, args) };
}

/// Opens a pidfd of this process, for kernels that have `process_madvise` but not [`PIDFD_SELF`].
pub(super) fn pidfd_open_self() -> Result<i32, Errno> {
    // SAFETY: neither call touches memory.
    unsafe {
        let pid = call(libc::SYS_getpid, [0; 6])?;
        call(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]).map(|fd| fd as i32)
    }
}

/// Closes a file descriptor of ours.
pub(super) fn close(fd: i32) {
    // SAFETY: touches no memory; the descriptor is the caller's own.
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

    /// Runs `body` with the calls number `from..from + times` (counted from 0) of this kind
    /// failing.
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

/// Outside tests nothing is made to fail, and the checks compile to nothing.
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
