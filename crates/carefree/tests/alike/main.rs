//! The same calls on threads and on fibers: results, `errno`, bytes and positions must agree.
//!
//! On a thread the calls are libc's own, and so what the kernel answers; on a fiber they are ours.

// `#[test]` with a limit to how long a test may take.
#[macro_use]
extern crate carefree_testing;

mod answers;
mod between;
mod common;
mod failing;
mod hostile;
mod limits;
mod modes;
mod moving;
mod pointers;
mod sharing;
mod traces;
