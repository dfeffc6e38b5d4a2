//! What a task leaves beside its record when it is over: that it is, how it went, and what the
//! record's bytes are, so that a record that arrives damaged is not taken for a good one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use carefree_lab::record::fingerprint;
use serde::{Deserialize, Serialize};

use crate::out::Out;

/// The version of the format.
const FORMAT: u32 = 1;

/// One task's on one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Receipt {
    carefree_receipt: u32,
    /// The plan it belongs to.
    pub(super) plan: String,
    pub(super) task: u32,
    /// What the task measures.
    pub(super) name: String,
    pub(super) machine: String,
    /// Whether everything was measured.
    pub(super) complete: bool,
    /// Why it was not, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trouble: Option<String>,
    /// The record, where anything was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<Bytes>,
}

/// What a file's bytes are to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bytes {
    bytes: usize,
    fingerprint: String,
}

/// Where the files of one task on one machine are, in a fleet's folder.
#[derive(Clone, Debug)]
pub(super) struct Place {
    base: PathBuf,
    /// Samples of a task that is not over, kept until it is.
    pub(super) work: PathBuf,
}

impl Place {
    pub(super) fn new(folder: &Path, plan: &str, task: u32, machine: &str) -> Place {
        let name = format!("{plan}-{task}-{machine}");
        Place { work: folder.join("work").join(&name), base: folder.join(name) }
    }

    pub(super) fn record(&self) -> PathBuf {
        self.with("jsonl")
    }

    pub(super) fn receipt(&self) -> PathBuf {
        self.with("receipt.json")
    }

    /// A machine's name may have dots.
    fn with(&self, extension: &str) -> PathBuf {
        let mut name = self.base.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }
}

impl Receipt {
    /// Of a task without a record yet.
    pub(super) fn new(plan: &str, (task, name): (u32, &str), machine: &str) -> Receipt {
        Receipt {
            carefree_receipt: FORMAT,
            plan: plan.to_owned(),
            task,
            name: name.to_owned(),
            machine: machine.to_owned(),
            complete: false,
            trouble: None,
            record: None,
        }
    }

    /// Puts the task's record at its place, and this receipt beside it.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn write(mut self, place: &Place, record: Option<&Path>) -> Result<()> {
        if let Some(written) = record {
            let bytes = fs::read(written).with_context(|| written.display().to_string())?;
            self.record = Some(Bytes { bytes: bytes.len(), fingerprint: fingerprint(&bytes) });
            fs::rename(written, place.record())
                .with_context(|| place.record().display().to_string())?;
        }
        let text = serde_json::to_string_pretty(&self).expect("a receipt is plain data") + "\n";
        Out::check(&place.receipt())?.write(&text)
    }

    /// The receipt at this place, if there is one, and the record is what it says.
    ///
    /// # Errors
    /// One line: what is damaged.
    pub(super) fn read(place: &Place, plan: &str) -> Result<Option<Receipt>> {
        let path = place.receipt();
        let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
        let receipt: Receipt = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged", path.display()))?;
        ensure!(
            receipt.carefree_receipt == FORMAT && receipt.plan == plan,
            "{} belongs to another plan or program",
            path.display()
        );
        if let Some(expected) = &receipt.record {
            let path = place.record();
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            let found = Bytes { bytes: bytes.len(), fingerprint: fingerprint(&bytes) };
            ensure!(found == *expected, "{} is damaged", path.display());
        }
        Ok(Some(receipt))
    }

    pub(super) fn has_record(&self) -> bool {
        self.record.is_some()
    }
}

/// Puts what is damaged aside, so that the task can be run again.
///
/// # Errors
/// Those of the file system.
pub(super) fn set_aside(place: &Place) -> Result<()> {
    for path in [place.receipt(), place.record()] {
        if path.exists() {
            let mut aside = path.clone().into_os_string();
            aside.push(".damaged");
            fs::rename(&path, aside).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_not_what_the_receipt_says_is_found_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::new(folder.path(), "p", 2, "n1.example");
        assert_eq!(Receipt::read(&place, "p").expect("nothing is damaged"), None);
        let written = folder.path().join("written");
        fs::write(&written, "{\"median\":1.0}\n").expect("written");
        let receipt = Receipt::new("p", (2, "ruby"), "n1.example");
        receipt.write(&place, Some(&written)).expect("written");
        assert!(!written.exists());
        let read = Receipt::read(&place, "p").expect("whole").expect("there");
        assert!(read.has_record() && read.machine == "n1.example");
        assert!(Receipt::read(&place, "q").is_err(), "another plan's");
        // One digit, and one byte less.
        for damaged in ["{\"median\":7.0}\n", "{\"median\":1.0}"] {
            fs::write(place.record(), damaged).expect("written");
            let error = Receipt::read(&place, "p").expect_err("damaged").to_string();
            assert!(error.ends_with("p-2-n1.example.jsonl is damaged"), "{error}");
        }
        set_aside(&place).expect("moved");
        assert_eq!(Receipt::read(&place, "p").expect("nothing is damaged"), None);
        assert!(!place.record().exists());
    }
}
