//! Short sleeps and yields of the kernel thread, which unlike libc's interposed ones park no fiber.

use std::time::Duration;

use crate::kernel;

/// Sleeps for `span`, or until a signal.
///
/// ```
/// use std::time::Duration;
///
/// carefree_ground::nap::sleep(Duration::from_micros(50));
/// ```
pub fn sleep(span: Duration) {
    let time = libc::timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: span.subsec_nanos().into(),
    };
    // SAFETY: the kernel only reads `time`.
    let _ = unsafe { kernel::call(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Yields the processor to another thread that is ready, if there is one.
pub fn yield_processor() {
    // SAFETY: sched_yield has no arguments and accesses no memory.
    let _ = unsafe { kernel::call(libc::SYS_sched_yield, [0; 6]) };
}
