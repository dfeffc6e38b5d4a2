//! The machine: its cores, and what it costs itself: processor time, and fresh pages.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

static WORKERS: AtomicUsize = AtomicUsize::new(1);

/// Has peers use all cores, or one.
pub(crate) fn use_cores(all: bool) {
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    WORKERS.store(if all { cores() } else { 1 }, Ordering::Relaxed);
}

/// Worker threads that a peer is to have.
pub fn workers() -> usize {
    WORKERS.load(Ordering::Relaxed)
}

/// Processor time this process has used, in user and kernel mode together.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Finer than getrusage, which counts microseconds.
    // SAFETY: `time` is valid to write. The call fails only for bad arguments.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What the kernel takes for a page of fresh memory at its first touch. Every stack needs one, so no
/// cold start can be cheaper; on virtual machines it varies from 0.3 to 3 us with the host's load.
///
/// # Errors
/// When there is no address space for the probe.
pub fn page_cost() -> io::Result<Duration> {
    const PAGES: usize = 1_000;
    const APART: usize = 256 * 1024;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces no other.
    let map = unsafe { libc::mmap(ptr::null_mut(), PAGES * APART, access, flags, -1, 0) };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: advice on the mapping just made. Refused where there are no huge pages to refuse.
    unsafe { libc::madvise(map, PAGES * APART, libc::MADV_NOHUGEPAGE) };
    let before = cpu_time();
    for page in 0..PAGES {
        // SAFETY: within the mapping, which is writable and used by no other code.
        unsafe { map.cast::<u8>().add(page * APART).write_volatile(1) };
    }
    let used = cpu_time() - before;
    // SAFETY: the mapping made above, to which no reference exists.
    unsafe { libc::munmap(map, PAGES * APART) };
    Ok(used / PAGES as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cost_something() {
        let _turn = crate::MEMORY.lock();
        let cost = page_cost().unwrap();
        assert!(cost > Duration::from_nanos(20), "{cost:?} is no page fault");
    }

    #[test]
    fn work_uses_processor_time() {
        let before = cpu_time();
        while cpu_time() - before < Duration::from_millis(5) {
            std::hint::black_box((0..1000).sum::<u64>());
        }
    }
}
