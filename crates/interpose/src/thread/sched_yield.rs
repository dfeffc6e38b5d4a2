//! Giving up the processor.

use std::ffi::c_int;

interpose! { steady
    /// `sched_yield(2)`, which `std::thread::yield_now` calls: other fibers run.
    safe fn sched_yield() -> c_int, number SYS_sched_yield {
        carefree_runtime::yield_now();
        0
    }
}

/// For a static program: by `sched_yield`, like libc's own.
extern "C-unwind" fn raw_thrd_yield() {
    sched_yield::original();
}

interpose! { steady
    /// C11's `thrd_yield(3)`. glibc's calls its `sched_yield` by another name, unseen.
    safe fn thrd_yield() -> (), else raw_thrd_yield {
        carefree_runtime::yield_now();
    }
}

interpose! { steady
    /// `pthread_yield(3)`, which programs call that were built with a glibc of before 2.34. Its own calls `sched_yield`
    /// unseen, and the loader finds it only by its version.
    safe fn pthread_yield() -> c_int, number SYS_sched_yield {
        carefree_runtime::yield_now();
        0
    }
}
