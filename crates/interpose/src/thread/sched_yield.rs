//! Giving up the processor.

use std::ffi::c_int;

use carefree_ground::kernel;

use crate::call::answer::answer;

unsafe extern "C-unwind" fn raw_sched_yield() -> c_int {
    // SAFETY: takes nothing and touches nothing.
    answer(unsafe { kernel::call(libc::SYS_sched_yield, [0; 6]) }) as c_int
}

interpose! {
    /// `sched_yield(2)`, which `std::thread::yield_now` is: lets other fibers run.
    fn sched_yield() -> c_int, else raw_sched_yield {
        carefree_runtime::yield_now();
        0
    }
}
