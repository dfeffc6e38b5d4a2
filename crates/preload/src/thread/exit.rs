//! The end of a thread by `pthread_exit`, and the first thread's life.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;

use carefree_runtime::hosted::{self, HostedThread};

use crate::signal;
use crate::thread::alive;
use crate::thread::cancel::{begin_end, begin_return};
use crate::thread::main;
use crate::thread::record::{self, MAIN};

/// Calls the program's `main` on a frame to which `pthread_exit` can unwind.
///
/// # Safety
/// To be called by libc, once, with `main`'s arguments.
pub(crate) unsafe fn run_main(
    program: usize,
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) -> c_int {
    let mut exited = 0;
    let main = main::caller_of(program);
    let count = ptr::without_provenance_mut(count as usize);
    // SAFETY: the first thread calls it, and the program's `main` takes these. (The first is an `int`, in the same register.)
    let status =
        unsafe { MAIN.call(main, count, arguments.cast(), environment.cast(), &raw mut exited) };
    if exited == 0 {
        begin_return();
        return status as isize as c_int;
    }
    match hosted::current().filter(|me| me.is_main()) {
        Some(me) => end_first(me),
        // It has never had a second thread, or this is the child of a fork. libc goes on from its own frame.
        // SAFETY: the thread exits, and nothing here needs to be dropped.
        None => unsafe { pthread_exit(MAIN.value.load(Ordering::Relaxed)) },
    }
}

/// Ends the first thread, and the process if that is the last one.
pub(super) fn end_first(me: HostedThread) -> ! {
    // Before it counts as ended: they may wait, and the process does not end amid them.
    hosted::end_thread_locals(me);
    signal::handle();
    if alive::uncount_hosted() {
        // SAFETY: no other thread calls it.
        unsafe { libc::exit(0) };
    }
    signal::end(&MAIN);
    hosted::end_main(me)
}

stand_in! {
    /// `pthread_exit(3)`.
    fn pthread_exit(value: *mut c_void) -> ! {
        let record = record::current().map_or(&MAIN, |(_, record)| record);
        record.value.store(value, Ordering::Relaxed);
        begin_end();
        // libc's unwinds to the frame that has called the thread's function.
        // SAFETY: the caller's argument.
        unsafe { next(value) }
    }

    /// C11's `thrd_exit(3)`.
    fn thrd_exit(value: c_int) -> ! {
        // SAFETY: the value goes to the joiner as it is, and `pthread_exit` does not follow it.
        unsafe { pthread_exit(value as isize as *mut c_void) }
    }
}
