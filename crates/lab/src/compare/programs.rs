//! The lab's programs behind a figure, and whether they may have changed it.

use std::collections::BTreeSet;

use crate::record::{Reading, Subject};

/// The programs that took the samples of a figure, by their fingerprints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs<'a> {
    /// As built, for one version of the runtime.
    built: BTreeSet<&'a str>,
    /// As written, for any version.
    written: BTreeSet<&'a str>,
}

/// What else than a runtime's version is another than before, and may have changed a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// The lab's program for the runtime.
    Program,
    /// The build of the version, or what belongs to it: its modules, `libcarefree.so`.
    Build,
    /// One of the two, in records that do not tell which.
    Either,
}

impl<'a> Programs<'a> {
    /// Adds that of a sample.
    pub(crate) fn add(&mut self, sample: &'a Reading) {
        self.built.insert(&sample.program);
        self.written.insert(&sample.source);
    }

    /// Adds those of another figure.
    pub(crate) fn extend(&mut self, other: &Programs<'a>) {
        self.built.extend(&other.built);
        self.written.extend(&other.written);
    }

    /// What has changed since `old`, of a figure of `subject` that was one of `before`. Nothing where the lab's own
    /// program is the runtime, for that is what is compared; nothing where a program of both sides took samples, or
    /// where the records do not tell.
    pub(crate) fn suspect_since(
        &self,
        old: &Programs<'_>,
        before: &Subject,
        subject: &Subject,
    ) -> Option<Suspect> {
        if subject.is_ours() {
            return None;
        }
        match differ(&old.written, &self.written) {
            Some(true) => Some(Suspect::Program),
            // Another version is another build.
            _ if before.version != subject.version => None,
            known => (differ(&old.built, &self.built) == Some(true))
                .then_some(if known.is_some() { Suspect::Build } else { Suspect::Either }),
        }
    }
}

/// Whether the two have nothing in common; nothing where one of them is not told.
fn differ(old: &BTreeSet<&str>, new: &BTreeSet<&str>) -> Option<bool> {
    let is_told = |all: &BTreeSet<&str>| !all.is_empty() && !all.contains("");
    (is_told(old) && is_told(new)).then(|| old.is_disjoint(new))
}

impl Suspect {
    /// What it is called in a sentence.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Suspect::Program => "the lab's program",
            Suspect::Build => "the build",
            Suspect::Either => "the lab's program or the build",
        }
    }

    /// The name in machine-readable formats.
    pub fn name(self) -> &'static str {
        match self {
            Suspect::Program => "program",
            Suspect::Build => "build",
            Suspect::Either => "program or build",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is suspected between samples of two programs: (runtime, version, built, written).
    fn suspected(old: [&str; 4], new: [&str; 4]) -> Option<Suspect> {
        let [(before, was), (subject, is)] =
            [old, new].map(|[runtime, version, built, written]| {
                let subject = Subject {
                    runtime: runtime.into(),
                    version: version.into(),
                    ..Subject::default()
                };
                let sample =
                    Reading { program: built.into(), source: written.into(), ..Reading::default() };
                (subject, sample)
            });
        let [mut old, mut new] = [Programs::default(), Programs::default()];
        old.add(&was);
        new.add(&is);
        new.suspect_since(&old, &before, &subject)
    }

    #[test]
    fn programs_are_told_from_builds_and_versions_from_both() {
        let was = ["ruby", "3.3", "b1", "s1"];
        assert_eq!(suspected(was, was), None);
        assert_eq!(suspected(was, ["ruby", "3.3", "b2", "s1"]), Some(Suspect::Build));
        assert_eq!(suspected(was, ["ruby", "3.3", "b2", "s2"]), Some(Suspect::Program));
        assert_eq!(suspected(was, ["ruby", "3.4", "b2", "s1"]), None, "a version is a build");
        assert_eq!(suspected(was, ["ruby", "3.4", "b2", "s2"]), Some(Suspect::Program));
        let (ours, theirs) = (["carefree", "1", "b1", ""], ["carefree", "1", "b2", ""]);
        assert_eq!(suspected(ours, theirs), None, "it is what is compared");
    }

    #[test]
    fn records_that_do_not_tell_say_so() {
        let old = ["ruby", "3.3", "b1", ""];
        assert_eq!(suspected(old, ["ruby", "3.3", "b2", "s2"]), Some(Suspect::Either));
        assert_eq!(suspected(old, ["ruby", "3.4", "b2", "s2"]), None);
        assert_eq!(suspected(["ruby", "3.3", "", ""], ["ruby", "3.3", "b2", "s2"]), None);
        assert_eq!(suspected(old, ["ruby", "3.3", "b1", "s2"]), None, "the same program");
    }
}
