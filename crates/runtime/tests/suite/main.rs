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
mod stress;
mod thread_like;
mod threads;
mod timing;
mod unwinding;
mod virtual_time;

/// Has the suite watched. Tests may block their carriers: nothing is said about it, unless a mode or a
/// test asks for that. Before `main`, because the environment is read by the first of many threads.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCHED: extern "C" fn() = {
    extern "C" fn watched() {
        // SAFETY: there is one thread yet; both are C strings.
        unsafe { libc::setenv(c"CAREFREE_WATCH".as_ptr(), c"60000".as_ptr(), 0) };
        carefree_insight::register();
    }
    watched
};
