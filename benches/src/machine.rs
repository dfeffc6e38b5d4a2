//! One core for everybody.

use std::io;
use std::time::Duration;

/// Ties the calling thread, and every thread started from it, to one of the cores it may use: the
/// last, since the kernel's own work prefers the first. Returns its number.
///
/// # Errors
/// When the kernel refuses.
pub fn pin() -> io::Result<usize> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of_val(&set);
    // SAFETY: the set is valid to write and `size` bytes long.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: CPU_ISSET reads a bit within the set.
    let core = (0..libc::CPU_SETSIZE as usize)
        .rev()
        .find(|&core| unsafe { libc::CPU_ISSET(core, &set) })
        .ok_or_else(|| io::Error::other("this process may run on no core"))?;
    // SAFETY: `core` is within the set, which is valid to write.
    unsafe {
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(core, &mut set);
    }
    // SAFETY: the set is valid to read and `size` bytes long.
    if unsafe { libc::sched_setaffinity(0, size, &raw const set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(core)
}

/// Processor time this process has used, in user and kernel mode together.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Finer than getrusage, which counts microseconds.
    // SAFETY: `time` is valid to write. The call fails only for bad arguments.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processor's name, as the kernel tells it.
pub fn processor() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_core() {
        std::thread::spawn(|| {
            let core = pin().unwrap();
            assert_eq!(std::thread::available_parallelism().unwrap().get(), 1);
            // Pinning again finds the only core left.
            assert_eq!(pin().unwrap(), core);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn work_uses_processor_time() {
        let before = cpu_time();
        while cpu_time() - before < Duration::from_millis(5) {
            std::hint::black_box((0..1000).sum::<u64>());
        }
    }
}
