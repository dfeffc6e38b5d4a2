//! Memory for stacks: where fibers and coroutines run.
//!
//! ```text
//!  slab: one mapping of 2 MiB to 1 GiB, cut into slots of one size
//!  +--------+--------------------------+--------+--------------------------+--------+-----
//!  | guard  |  stack     <-- grows     | guard  |  stack     <-- grows     | guard  | ...
//!  +--------+--------------------------+--------+--------------------------+--------+-----
//!  ^ base   ^ limit                    ^ top = base of the next
//! ```
//!
//! A stack has no mapping of its own, because the kernel allows a process only 65,530 of them. What a parked fiber
//! costs here is the pages it has touched, its part of a page table (512 bytes for 256 KiB), and four bytes of
//! bookkeeping, kept beside the slab so that an idle stack is never touched.
//!
//! # What a cold stack costs
//!
//! Measured by `cargo run --release -p carefree-context --example cold_stacks` (which prints all of it) on a
//! 2-core EPYC VM, Linux 6.18.
mod class;
mod guard;
mod limit;
pub mod lock;
mod pool;
mod registry;
mod size;
mod slab;
mod sys;
#[cfg(test)]
mod tests;

pub use class::StackStats;
pub use guard::{GuardMode, Guards, guards};
pub use pool::{PoolOptions, Stack, StackPool, default_idle_bytes};
pub use registry::{StackInfo, find};
pub use size::{StackSize, StackSizeError};
