//! Thread-local storage of a fiber's own: the tests run on blocks, entered by the bare switch, on one
//! kernel thread or moving between several.
//!
//! `modes.rs` runs all of them again with the thread pointer set by system call, as on a machine
//! without FSGSBASE.
//!
//! Fibers have storage of their own over glibc alone, whose layout is read from its tables for debuggers.
#![cfg(target_env = "gnu")]

mod harness;

mod heap;
mod keys;
mod leaks;
mod libc_state;
mod libraries;
mod modes;
mod mutexes;
mod process;
mod variables;
