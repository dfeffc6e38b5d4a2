//! Suspended computations: stacks, the switch between them, and what runs on them.
//!
//! This crate knows no scheduler. It provides stacks, coroutines and thread-local storage to the
//! runtime above it.

#![warn(missing_docs)]

pub mod arch;
pub mod backtrace;
pub mod coroutine;
pub mod exports;
pub mod extent;

pub mod fork;
pub mod loader;
pub mod mapped_file;
pub mod object;
pub mod overflow;
pub mod sanitizer;
pub mod stack;
pub mod tls;
pub(crate) mod valgrind;

pub use coroutine::{Coroutine, CoroutineState, ScopedCoroutine, Suspender, SymmetricSuspender};
