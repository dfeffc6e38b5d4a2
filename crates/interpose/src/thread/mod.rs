//! Threads, as far as programs ask libc for them: joining, starting and naming them, and their alternate stacks.

pub mod alternate_stack;
pub mod create;
pub mod join;
pub mod name;
pub mod sched_yield;
