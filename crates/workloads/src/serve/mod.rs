//! The `serve` workload: an HTTP server, by each language's usual one, under a load of the lab's.
//!
//! The lab is the client ([`Client`]), on loopback. It holds idle connections, asks as fast as
//! answers come, and then at a fixed rate, whether the server keeps up or not: a request that is due
//! counts its latency from then on, though no connection may be free to send it. So a server that
//! stands still for a second is charged for all requests of that second, and not for those alone
//! that were under way (what is left out otherwise is known as coordinated omission).
//!
//! Each request has a number of its own, and its answer has to tell it ([`answer_to`]). A server of
//! the kind `backend` asks the lab's backend ([`Backend`]) for each, and passes on its answer.

mod backend;
mod client;
mod connection;
pub(crate) mod own;
mod upstream;

pub use backend::Backend;
pub use client::{Client, Open, Paced, Rushed};

use crate::named;

named! {
    /// What a server does for a request.
    pub enum Kind as "kind" {
        /// It answers at once.
        Plain = "plain",
        /// It asks a backend, and answers with what that said.
        Backend = "backend",
    }
}

/// The body of the answer to a GET of this target: `carefree /17`, and the end of a line.
pub fn answer_to(target: &str) -> String {
    format!("carefree {target}\n")
}
