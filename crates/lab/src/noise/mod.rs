//! What may have disturbed the figures, as values: each warning says what was seen and what to do
//! about it, and a report can show, count or ignore it.

mod load;

use serde::{Deserialize, Serialize};

pub use load::Load;
pub(crate) use load::LoadMeter;

/// A reason to doubt figures, with what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// What was seen.
    pub message: String,
    /// What to do.
    pub advice: String,
}

impl Warning {
    /// A warning of this kind.
    pub fn new(kind: WarningKind, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Warning { kind, message: message.into(), advice: advice.into() }
    }
}

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The program was built without optimization.
    Unoptimized,
    /// The cores' frequency is not held.
    Governor,
    /// Other programs used the cores meanwhile.
    OtherLoad,
    /// The machine under this virtual one gave its cores to others.
    Steal,
    /// A control group allows less time than there are cores.
    Quota,
    /// Too few samples for an interval to say much.
    FewSamples,
    /// The samples differ a lot among themselves.
    Spread,
    /// Units made fewer switches than they were asked for.
    SwitchesMissing,
    /// Fibers share their carrier's thread-local storage.
    SharedTls,
    /// The whole memory could only be had for the whole machine.
    SharedMemoryFigures,
    /// Units ran in smaller crowds than the others, because more make no sense.
    FewerUnits,
    /// Some kinds have fewer samples than the rest, for want of time.
    Cut,
    /// Something that was asked for, or would have been measured, is not here.
    LeftOut,
}
