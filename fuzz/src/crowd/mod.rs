//! Several lanes at once. What each call returns depends on chance, so the outcome is a list of
//! problems: what must hold at the end and does not.

mod counter;
mod flow;
mod race;
mod records;
mod start;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use crate::lane::Lanes;

pub use counter::Counter;
pub use flow::{Flow, Transport};
pub use race::{Race, Rival};
pub use records::{Readers, Records, Sharing};

/// What several lanes do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Crowd {
    /// They write records to one file.
    Records(Records),
    /// They read one file.
    Readers(Readers),
    /// Some write, others read.
    Flow(Flow),
    /// They count up and down.
    Counter(Counter),
    /// Some wait, while another one changes what they wait for.
    Race(Race),
}

/// Any crowd.
pub(crate) fn any() -> impl Strategy<Value = Crowd> {
    prop_oneof![
        3 => records::records().prop_map(Crowd::Records),
        2 => records::readers().prop_map(Crowd::Readers),
        4 => flow::flow().prop_map(Crowd::Flow),
        1 => counter::counter().prop_map(Crowd::Counter),
        4 => race::race().prop_map(Crowd::Race),
    ]
}

/// Runs it; the lines are the same for all kinds of lanes, if all is well.
pub(crate) fn run(crowd: &Crowd, lanes: Lanes) -> Vec<String> {
    let problems = match crowd {
        Crowd::Records(records) => records.run(lanes),
        Crowd::Readers(readers) => readers.run(lanes),
        Crowd::Flow(flow) => flow.run(lanes),
        Crowd::Counter(counter) => counter.run(lanes),
        Crowd::Race(race) => race.run(lanes),
    };
    match problems.is_empty() {
        true => vec!["as it must be".to_owned()],
        false => problems,
    }
}
