//! What became of a server under its load, as a sample has it, and the figures that follow from it.

use std::ops::Not;

use carefree_workloads::serve::{Paced, Rushed};
use serde::{Deserialize, Serialize};

use crate::sample::Sample;

/// What became of a server under its load: part of the proof of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Connections that were open, had each been used once, and said nothing while memory was read.
    pub(crate) idle: u64,
    /// As fast as answers came.
    pub(crate) rushed: Rushed,
    /// At the rate that was ordered.
    pub(crate) paced: Paced,
    /// Processor time of the server during the latter, nanoseconds; none where it cannot be read.
    pub(crate) cpu_ns: Option<u64>,
    /// Requests that its backend answered: as many as it was asked in all, those before included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backend_answered: Option<u64>,
    /// Connections that it closed, as it had said, after many requests each; others were opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) closed: u64,
    /// Whether it was still busy with connections that had been closed when a load began.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(crate) unsettled: bool,
}

// `serde` asks by reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The key of a sample's account under which this is told.
const KEY: &str = "served";

impl Served {
    /// Adds it to what the program has told.
    pub(crate) fn tell(&self, sample: &mut serde_json::Map<String, serde_json::Value>) {
        // Plain numbers have a JSON form.
        sample.insert(KEY.into(), serde_json::to_value(self).unwrap_or_default());
    }

    /// What a sample has of it.
    pub(crate) fn of(sample: &Sample) -> Option<Served> {
        serde_json::from_value(sample.account.more.get(KEY)?.clone()).ok()
    }

    /// Processor time of a request.
    pub(crate) fn cpu_per_request(&self) -> Option<f64> {
        let requests = self.paced.requests;
        (requests > 0).then_some(self.cpu_ns? as f64 / requests as f64)
    }

    /// Requests that were answered in a second, when they were made as fast as answers came.
    pub(crate) fn rate(&self) -> Option<f64> {
        let Rushed { requests, ns } = self.rushed;
        (requests > 0 && ns > 0).then_some(requests as f64 / (ns as f64 / 1e9))
    }

    /// A connection's share of this memory.
    pub(crate) fn per_connection(&self, bytes: u64) -> Option<f64> {
        (self.idle > 0).then_some(bytes as f64 / self.idle as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shares_of_what_was_asked() {
        let rushed = Rushed { requests: 3_000, ns: 500_000_000 };
        let paced = Paced { requests: 500, ns: 1_000_000_000, ..Paced::default() };
        let cpu_ns = Some(5_000_000);
        let served = Served {
            idle: 100,
            rushed,
            paced,
            cpu_ns,
            backend_answered: None,
            closed: 0,
            unsettled: false,
        };
        assert_eq!(served.cpu_per_request(), Some(10_000.0));
        assert_eq!(served.rate(), Some(6_000.0));
        assert_eq!(served.per_connection(409_600), Some(4_096.0));
        let none = Served { idle: 0, cpu_ns: None, ..served };
        assert_eq!((none.cpu_per_request(), none.per_connection(1)), (None, None));
    }
}
