//! What a thread has used of the processors.

/// The nanoseconds of processor time that a thread of this process has used, by the kernel's number of it; none once it
/// has ended.
///
/// ```
/// use carefree_ground::usage;
///
/// // SAFETY: no preconditions.
/// let me = unsafe { libc::gettid() };
/// assert!(usage::of_thread(me).is_some_and(|nanos| nanos > 0));
/// // The kernel gives no thread so large a number.
/// assert_eq!(usage::of_thread(1 << 24), None);
/// ```
pub fn of_thread(thread: i32) -> Option<u64> {
    // The kernel's number of the clock of any thread: the inverted number of that, "per thread", "by the scheduler".
    // (`pthread_getcpuclockid` computes the same, from a pthread_t.)
    const PER_THREAD: libc::clockid_t = 4;
    const SCHEDULER: libc::clockid_t = 2;
    let clock = (!thread << 3) | PER_THREAD | SCHEDULER;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is written to; a clock of a thread that has ended is refused.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (failed == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
