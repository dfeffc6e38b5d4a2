//! System calls without libc, and what needs nothing else: a lock, naps, `membarrier`, text and
//! files in memory that no allocator is asked for, and requests to valgrind.
//!
//! Carefree interposes libc's blocking calls to park fibers in them. Code that must not enter the
//! scheduler (above all the scheduler itself) makes its system calls through this crate.
//!
//! # Why not rustix
//!
//! Its `linux_raw` backend would make the same calls, many of them without `unsafe`. But rustix
//! calls libc, and so the interposed functions, as soon as any crate of the program enables its
//! feature `use-libc`: the scheduler's correctness would depend on the features of unrelated
//! dependencies. Besides, the calls on memory (`mmap`, `munmap`, `mprotect`, `madvise`) are
//! `unsafe` there too; `process_madvise` and `mincore` are missing; and the reactor's tests make
//! system calls fail by a hook that all of its calls pass through.

#![warn(missing_docs)]
#![cfg(target_os = "linux")]

pub mod fatal;
pub mod file;
pub mod fork_lock;
mod futex;
pub mod host;
pub mod kernel;
pub mod lock;
pub mod mapped;
pub mod membarrier;
pub mod memory;
pub mod nap;
pub mod number;
pub mod own;
pub mod probe;
pub mod slice;
pub mod text;
pub mod usage;
pub mod valgrind;
