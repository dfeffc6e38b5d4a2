//! A suspended computation: stacks, the switch between them, and what runs on them.
//!
//! This room knows no scheduler. It gives the runtime above it stacks, coroutines and thread-local
//! storage.

#![warn(missing_docs)]

pub mod arch;
pub mod coroutine;
pub mod extent;
pub mod file;
pub mod fork;
pub mod loader;
pub mod overflow;
pub mod sanitizer;
pub mod stack;
pub mod tls;
pub(crate) mod valgrind;

pub use coroutine::{Coroutine, CoroutineState, ScopedCoroutine, Suspender, SymmetricSuspender};
