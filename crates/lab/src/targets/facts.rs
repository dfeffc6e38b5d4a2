//! What a report has to say of a runtime beside its figures.

use std::collections::BTreeMap;
use std::fmt;

use carefree_workloads::role::Role;
use serde::{Deserialize, Serialize};

use super::place;
use super::spec::Cores;
use super::{Finding, Runtime};

/// A version of a runtime that took part in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Its name in the record.
    pub runtime: String,
    /// Its version in the record.
    pub version: String,
    /// Its name for readers.
    pub title: String,
    /// The program that was found.
    pub program: String,
    /// What it is, where it is a variant of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What is to be said of its garbage collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gc: Option<String>,
    /// Optional parts that are there, with their versions.
    pub parts: BTreeMap<String, String>,
    /// Its units that are there.
    pub units: BTreeMap<String, UnitFacts>,
}

/// A unit of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitFacts {
    /// Which side of the comparison it stands on.
    pub role: Role,
    /// What it is in its language.
    pub what: String,
    /// How it waits for the others.
    pub gate: String,
    /// How it gives way to the others.
    #[serde(rename = "yield")]
    pub yields: String,
    /// Whether it can use one core alone.
    pub one_core: bool,
}

impl fmt::Display for Facts {
    /// `Ruby 3.3.8 (/usr/bin/ruby, async 2.1; garbage collection: generational, on): thread is
    /// Thread, yields by Thread.pass`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({}", self.title, self.version, self.program)?;
        if let Some(variant) = &self.variant {
            write!(f, ", {variant}")?;
        }
        for (part, version) in &self.parts {
            write!(f, ", {part} {version}")?;
        }
        if let Some(gc) = &self.gc {
            write!(f, "; garbage collection: {gc}")?;
        }
        f.write_str(")")?;
        for (at, (name, unit)) in self.units.iter().enumerate() {
            let gap = if at == 0 { ": " } else { "; " };
            let cores = if unit.one_core { ", on one core at a time" } else { "" };
            write!(f, "{gap}{name} is {}", unit.what)?;
            // One that waits for others' answers alone has no yield of its own.
            if !unit.yields.is_empty() {
                write!(f, ", yields by {}", unit.yields)?;
            }
            f.write_str(cores)?;
        }
        Ok(())
    }
}

impl Runtime {
    /// What a report has to say of it.
    pub fn facts(&self) -> Facts {
        let spec = &self.target.spec;
        let here = self.units().into_iter().filter(|(_, finding)| *finding == Finding::Here);
        let units = here.filter_map(|(name, _)| {
            let unit = self.unit(&name)?;
            let facts = UnitFacts {
                role: unit.role,
                what: unit.what.clone(),
                gate: unit.gate.clone(),
                yields: unit.yields.clone(),
                one_core: unit.cores == Cores::One,
            };
            Some((name, facts))
        });
        let parts =
            spec.parts.keys().filter_map(|part| Some((part.clone(), self.part_version(part)?)));
        Facts {
            runtime: spec.name.clone(),
            version: self.version(),
            title: spec.title.clone(),
            program: match (&self.image, &self.build) {
                // The version has the build's name in place of the image's.
                (Some(image), Some(_)) => format!("{} in {}", self.program, image.name()),
                _ => place::shortened(&self.program),
            },
            variant: spec.variant.clone(),
            gc: spec.gc.clone(),
            parts: parts.collect(),
            units: units.collect(),
        }
    }
}
