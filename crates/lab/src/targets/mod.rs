//! Targets: the runtimes the lab measures, each described by a folder.
//!
//! A folder's `target.toml` ([`Target`]) says how to find a runtime; [`Target::installed`] finds
//! its versions on this machine, [`image::Engine`] those in container images. A version that was
//! found is a [`Runtime`], which knows the units it has, and how to build and start the program
//! that measures them. `docs/targets.md` is the contract with the programs.

mod ask;
mod build;
mod facts;
mod find;
pub mod image;
pub mod lineup;
mod place;
mod shipped;
mod spec;
mod survey;
mod variant;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::anyhow;
pub use build::{NotReady, Ready};
pub use facts::{Facts, UnitFacts};
pub use find::{Finding, Runtime};
pub use shipped::{Folders, sources};
pub(crate) use shipped::{has_hosted, is_ours};
use spec::Spec;
pub use survey::{Waiting, each, survey};

use crate::hosted::Hosting;

/// A runtime that the lab knows how to measure, whether it is here or not.
#[derive(Clone, Debug)]
pub struct Target {
    spec: Spec,
    folder: PathBuf,
    /// What makes its threads fibers, if that is at hand.
    hosting: Option<Hosting>,
    /// What programs have answered that were asked for their version.
    asked: Arc<Mutex<BTreeMap<PathBuf, ask::Version>>>,
}

impl Target {
    /// Reads a target's folder.
    ///
    /// # Errors
    /// One line that says where the mistake is and what would be right.
    pub fn read(folder: &Path) -> anyhow::Result<Target> {
        let path = folder.join("target.toml");
        let spec = Spec::read(&path)?;
        variant::check(&spec).map_err(|mistake| anyhow!("{}: {mistake}", path.display()))?;
        Ok(Target { spec, folder: folder.to_owned(), hosting: None, asked: Arc::default() })
    }

    /// Has the units measured whose threads are fibers.
    #[must_use]
    pub fn hosted_by(self, hosting: Option<&Hosting>) -> Target {
        Target { hosting: hosting.cloned(), ..self }
    }

    /// Its name, on the command line and in records.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its name for readers.
    pub fn title(&self) -> &str {
        &self.spec.title
    }

    /// What brings it to this machine.
    pub fn package(&self) -> &str {
        &self.spec.package
    }

    /// What is to be said of its garbage collector, if it has one.
    pub fn gc(&self) -> Option<&str> {
        self.spec.gc.as_deref()
    }

    /// The names of its variants, whatever version has them.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        self.spec.variants.keys().map(String::as_str)
    }

    /// Whether `name` is one of its units, whatever version has it.
    pub fn has_unit(&self, name: &str) -> bool {
        self.spec.units.contains_key(name)
    }

    /// Whether an image of this name holds this runtime: `ruby:3.4` does if `ruby` is one of its
    /// names.
    pub fn is_in(&self, image: &str) -> bool {
        let base = image.rsplit('/').next().unwrap_or(image);
        let base = base.split([':', '@']).next().unwrap_or(base);
        let known = |name: &String| {
            base == name
                || base.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-'))
        };
        self.spec.image.as_ref().is_some_and(|image| image.names.iter().any(known))
    }
}

/// Reads all targets of some folders, each of which has a folder for each target. One of a later
/// folder takes the place of an earlier one of the same name. What cannot be read is a line of its
/// own; the others are there all the same.
pub fn read_all(folders: &[PathBuf]) -> (Vec<Target>, Vec<String>) {
    let (mut targets, mut mistakes) = (Vec::<Target>::new(), Vec::new());
    for folder in folders {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) => {
                mistakes.push(format!("{}: {error}", folder.display()));
                continue;
            }
        };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.join("target.toml").is_file())
            .collect();
        paths.sort();
        for path in paths {
            match Target::read(&path) {
                Ok(target) => {
                    targets.retain(|known| known.name() != target.name());
                    targets.push(target);
                }
                Err(mistake) => mistakes.push(format!("{mistake:#}")),
            }
        }
    }
    targets.sort_by(|one, other| one.name().cmp(other.name()));
    (targets, mistakes)
}
