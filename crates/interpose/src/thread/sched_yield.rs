//! Giving up the processor.

use std::ffi::c_int;

interpose! { steady
    /// `sched_yield(2)`, which `std::thread::yield_now` calls: other fibers run.
    safe fn sched_yield() -> c_int, number SYS_sched_yield {
        carefree_runtime::yield_now();
        0
    }
}
