//! What fibers promise, in one program: `modes` runs all of it again in every forced mode.

// Under loom there are models of the runtime's parts, and no runtime.
#![cfg(not(loom))]

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod cancelling;
mod common;
mod coroutines;
mod fairness;
mod few_threads;
mod forking;
mod limits;
mod locals;
mod modes;
mod offloading;
mod results;
mod runtimes;
mod scopes;
mod semaphores;
mod sizes;
mod starting;
mod stress;
mod thread_like;
mod threads;
mod timing;
mod unwinding;
mod virtual_time;

/// Registers the watchdog with a threshold of a minute, because tests may block their carriers; a mode or a
/// test can set another one. Before `main`, because the variable must be set while there is one thread.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCHED: extern "C" fn() = {
    extern "C" fn watched() {
        // SAFETY: there is only one thread so far, and both are C strings.
        unsafe { libc::setenv(c"CAREFREE_WATCH".as_ptr(), c"60000".as_ptr(), 0) };
        carefree_insight::register();
    }
    watched
};
