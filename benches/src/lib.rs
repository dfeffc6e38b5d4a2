//! What the benchmarks measure with: statistics, memory, pinning, processes, tables.
//!
//! The benchmarks themselves are `benches/peers`; `cargo bench -p carefree-benches` runs them. What
//! each row does for each peer stands in `README.md`.
#![warn(missing_docs)]

pub mod boost;
pub mod child;
pub mod machine;
pub mod memory;
pub mod statistics;
pub mod table;
