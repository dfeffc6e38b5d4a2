//! Memory for stacks: where fibers and coroutines run.
//!
//! ```text
//!  slab: one mapping of 2 MiB to 16 GiB, cut into slots of one size
//!  +--------+--------------------------+--+--------+--------------------------+--+--------+-----
//!  | guard  |  stack     <-- grows     |  | guard  |  stack     <-- grows     |  | guard  | ...
//!  +--------+--------------------------+--+--------+--------------------------+--+--------+-----
//!  ^ base   ^ limit                    ^ top: then a page that is never touched
//! ```
//!
//! Why the page between two slots: see the module `spacing`.
//!
//! A stack has no mapping of its own, because the kernel allows a process only 65,530 of them. A
//! parked fiber's stack costs the pages that the fiber has touched, its part of a page table (520
//! bytes for 256 KiB), and four bytes of bookkeeping, kept outside of the slab so that an idle
//! stack is never touched.
//!
//! # What a cold stack costs, and how that determined the design
//!
//! Nanoseconds per stack of 256 KiB on a 2-core EPYC virtual machine with Linux 6.18, as printed by
//! `cargo run --release -p carefree-context --example cold_stacks`:
//!
//! | | guard | first page | all |
//! |---|---|---|---|
//! | guard by mprotect, page fault | 4350 | 2665 | 7050 |
//! | guard by madvise, page fault | 1180 | 2400 | 3610 |
//! | guards by 64, page fault | 670 | 2280 | 2970 |
//! | guards by 64, populated by 64 | 660 | 2150 | 2820 |
//! | the same, guards of 4 pages instead of 1 | 710 | 2100 | 2810 |
//! | the same, two pages populated | 630 | 3600 | 4250 |
//!
//! * **Guards in batches** take half the time. The rest is the kernel's page-table walk to each guard.
//! * **The page** costs the remaining time, in which the kernel allocates and clears 4 KiB:
//!   populating in batches only saves the entry to the page fault. One `readv` of /dev/zero into
//!   all top pages would save 200 ns more, by taking the faults inside the kernel, but needs a file
//!   descriptor, which the program might close or replace.
//! * **A batch** is 64 at most: sizes above 32 gained nothing. It is never more than the
//!   stacks already in use, so a program of one fiber pays for one. Guards and pages are made
//!   for the same stacks at once: guarding all of a slab would allocate its page tables too early.
//! * **One page** is populated: the second costs 1.4 us, and most parked fibers need only one.
//! * **Larger guards** cost little time (140 ns more for 16 pages, as used here, than for 4) and
//!   no memory: see [`StackSize::guard`]. Those of large stacks do: for stacks of 16 MiB, 256 pages
//!   took 8,800 ns, 16 took 2,400 and one 2,000, page table included (the same command on a busy
//!   machine, 2026-11-24). [`setting::limit_guards`] is for programs that make many of these.
//!
//! Slabs are aligned to what a page table spans, so that a guard and the top page of its slot share
//! one: 100,000 stacks of which one word was written took 4,125 bytes of memory and 513 bytes of
//! page table each.

mod batch;
mod class;
mod guard;
mod limit;
mod lists;
mod pool;
mod registry;
pub mod setting;
mod size;
mod slab;
mod spacing;
pub(crate) mod sys;
#[cfg(test)]
mod tests;

pub use class::StackStats;
pub use guard::{GuardMode, Guards, guards};
pub use limit::why_refused;
pub use pool::{PoolOptions, Stack, StackPool, default_idle_bytes};
pub use registry::{StackInfo, find};
pub use size::{StackSize, StackSizeError};
