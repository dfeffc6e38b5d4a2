//! The workloads of the fiber-vs-thread lab: what a sample does, whatever measures it.
//!
//! A [`workload::Workload`] at some [`parameters`] is done by units of some runtime. Those of ours
//! ([`unit::Unit`]: coroutines, fibers and threads of Rust) are here, with the program that runs them
//! ([`own::take`]): it gets orders and prints an [`answer`], as every runtime's program does by the
//! protocol of `docs/targets.md`. [`fetch::Server`] is the other side of `fetch`, and
//! [`serve::Client`] the load of `serve`.

#![warn(missing_docs)]

pub mod answer;
pub mod feed;
pub mod fetch;
pub mod groups;
pub mod limits;
pub mod named;
pub mod own;
pub mod parameters;
pub mod role;
pub mod serve;
pub mod sys;
pub mod unit;
pub mod workload;

/// The programs of our own units, for readers of their figures: what fibers, coroutines and Rust's
/// threads do for each workload.
pub const SOURCES: [(&str, &str); 7] = [
    ("unit/gated.rs", include_str!("unit/gated.rs")),
    ("unit/fiber.rs", include_str!("unit/fiber.rs")),
    ("unit/coroutine.rs", include_str!("unit/coroutine.rs")),
    ("unit/thread.rs", include_str!("unit/thread.rs")),
    ("feed/rust.rs", include_str!("feed/rust.rs")),
    ("fetch/client.rs", include_str!("fetch/client.rs")),
    ("serve/own.rs", include_str!("serve/own.rs")),
];
