//! What threads and fibers run: a program, as data.
//!
//! A program is drawn from a seed, shrunk, and written as JSON to keep it or to send it to a worker.

use serde::{Deserialize, Serialize};

use crate::call::Step;
use crate::crowd::Crowd;
use crate::object::Object;
use crate::storm::Storm;

/// One thing to run and compare.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Program {
    /// One thread or fiber makes calls in turn: each has one outcome.
    Sequence(Sequence),
    /// Several at once: what must hold at the end is checked.
    Crowd(Crowd),
}

/// Calls in turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Sequence {
    /// `RLIMIT_FSIZE`.
    pub file_limit: Option<u32>,
    /// Signals that hit all kernel threads meanwhile.
    pub storm: Option<Storm>,
    /// What is open at the start: each fills one slot, or two.
    pub objects: Vec<Object>,
    pub steps: Vec<Step>,
}
