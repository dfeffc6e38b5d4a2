//! A differential fuzzer: programs of calls are drawn from seeds and run by threads, and by fibers
//! over each reactor; what comes out must be the same. See the crate's README.

pub mod call;
pub mod compare;
pub mod crowd;
mod futex;
pub mod generate;
mod going;
pub mod known;
pub mod lane;
mod memory;
mod message;
pub mod object;
mod outcome;
mod perform;
pub mod program;
mod readiness;
mod rescue;
mod sequence;
pub mod shrink;
pub mod soak;
pub mod storm;
mod system;
pub mod worker;
mod world;
