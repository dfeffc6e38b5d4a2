//! Threads of programs that know no fibers: fibers that have a `pthread_t`.
//!
//! A *hosted* thread is a fiber that a host (the crate `carefree-preload`) has created in place of a thread
//! of libc's. It differs from a spawned fiber in three ways:
//!
//! * Its `pthread_t` is the address of the thread control block on its stack, so libc's functions find there
//!   what they look for. The fiber is found by it: the record of the stack lies at a fixed distance below.
//! * Its stack stays until the `pthread_t` is given up, by a join or a detach, and until the fiber has left
//!   it: it is pinned (`fiber::pin`) from the beginning, and the right to join is a counted reference.
//! * It ends without unwinding to a frame of Rust's that would catch a panic: `pthread_exit` and
//!   cancellation unwind it by libc's means.
//!
//! The process's first thread becomes a fiber, too ([`adopt`]), when the program creates the second one. It
//! keeps its stack and its thread control block. Its kernel thread becomes the host's.

mod adopt;
mod create;
pub(crate) mod thread;
mod time;

pub use crate::carrier::meter::turn_on as measure_time;
pub use crate::process::fork::{ForkHooks, set_fork_hooks};
pub use crate::process::look::tell_of_kept;
pub use adopt::{adopt, leave_faults, set_default_carriers, set_default_stack};
pub use create::create;
pub use thread::{
    Held, HostedThread, Life, become_plain, current, end_main, end_thread_locals, find, find_where,
    is_beside, is_gone, is_hosting, main_thread, renew,
};
