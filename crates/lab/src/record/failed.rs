//! Samples that could not be taken.

use carefree_workloads::answer::Failure;
use serde::{Deserialize, Serialize};

use super::Subject;
use crate::trial::Trial;

/// Samples that could not be taken, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// What they were to be about.
    #[serde(flatten)]
    pub subject: Subject,
    /// How many failed in this way.
    pub times: u32,
    /// What went wrong.
    pub message: String,
    /// What would help, where that is known.
    pub advice: Option<String>,
    /// What the process said on standard error, the last lines of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

impl Failed {
    /// One sample of `trial` that failed; `stderr` is the end of what its process printed there.
    pub(crate) fn new(trial: &Trial, failure: Failure, stderr: String) -> Failed {
        let Failure { message, advice } = failure;
        let stderr = Some(stderr).filter(|text| !text.is_empty());
        Failed { subject: Subject::from(trial), times: 1, message, advice, stderr }
    }
}
