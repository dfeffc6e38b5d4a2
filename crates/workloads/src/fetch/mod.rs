//! The `fetch` workload: some dozens of HTTP GETs at a time, by each language's usual client.
//!
//! The lab serves them itself ([`Server`]), on loopback, with an answer that takes as long as it is
//! told to: what is measured is the client, not a network. One server serves one sample, so that
//! what it counted ([`Tally`]) proves what that sample's client says.

// A target is a folder that stands alone, and Rust's counts as we do: one file for both.
#[path = "../../../../targets/rust/src/counting.rs"]
mod allocations;
mod client;
pub(crate) mod own;
pub(crate) mod request;
mod response;
mod server;

pub use allocations::{Allocations, CountingAllocator, count as count_allocations};
pub use response::{Encoding, Secret};
pub use server::{Server, Settings, Tally};

/// The unit that makes one GET after the other.
pub const SEQUENTIAL: &str = "sequential";
