//! Short sleeps and yields of the kernel thread, which park no fiber as libc's would.

use std::time::Duration;

use crate::kernel;

/// Sleeps for `span`, or less if a signal comes.
///
/// ```
/// use std::time::Duration;
///
/// carefree_ground::nap::sleep(Duration::from_micros(50));
/// ```
pub fn sleep(span: Duration) {
    let time = libc::timespec {
        tv_sec: span.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    };
    // SAFETY: the kernel reads the time, which lives until the call returns.
    let _ = unsafe { kernel::call(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]) };
}

/// Gives the processor to another thread that is ready, if there is one.
pub fn yield_processor() {
    // SAFETY: it takes nothing and touches nothing.
    let _ = unsafe { kernel::call(libc::SYS_sched_yield, [0; 6]) };
}
