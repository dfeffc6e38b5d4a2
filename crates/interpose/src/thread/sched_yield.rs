//! Giving up the processor.

use std::ffi::c_int;

use crate::call::answer::answer;
use crate::call::sys::{self, Number};

unsafe extern "C-unwind" fn raw_sched_yield() -> c_int {
    answer(sys::call(Number::SCHED_YIELD, [])) as c_int
}

interpose! {
    /// `sched_yield(2)`, which `std::thread::yield_now` calls: other fibers run.
    safe fn sched_yield() -> c_int, else raw_sched_yield {
        carefree_runtime::yield_now();
        0
    }
}
