//! What the rooms above stand on: system calls without libc, and what is made of one alone.
//!
//! Carefree defines libc's blocking calls anew to park fibers in them. Code that must not find itself in
//! the scheduler (the scheduler's own, above all) enters the kernel from here.

#![warn(missing_docs)]
#![cfg(target_os = "linux")]

pub mod file;
mod futex;
pub mod kernel;
pub mod lock;
pub mod mapped;
pub mod membarrier;
pub mod nap;
pub mod text;
