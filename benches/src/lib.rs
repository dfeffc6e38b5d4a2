//! What is measured, with what, and how Carefree does it.
//!
//! The peers, and the program that sets them side by side, are `benches/peers`; `cargo bench -p
//! carefree-benches` runs it. What each row does for each peer stands in `README.md`.
#![warn(missing_docs)]

pub mod boost;
pub mod child;
pub mod machine;
pub mod memory;
pub mod ours;
pub mod peer;
pub mod sample;
pub mod scale;
pub mod workload;

/// Tests that map much memory, or count the process's, take turns.
#[cfg(test)]
static MEMORY: std::sync::Mutex<()> = std::sync::Mutex::new(());
