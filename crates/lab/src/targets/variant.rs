//! Variants of a runtime: it with other settings, or built in another way. Each stands in records and
//! reports as a version of its own.

use anyhow::{Result, bail, ensure};

use super::spec::{Changes, PLACES, RUNTIME, Spec, UnitSpec, Variant, known, places};

impl Changes {
    fn apply(&self, unit: &mut UnitSpec) {
        let Changes { what, yields, kernel, cores } = self.clone();
        unit.what = what.unwrap_or_else(|| unit.what.clone());
        unit.yields = yields.unwrap_or_else(|| unit.yields.clone());
        unit.kernel = kernel.unwrap_or(unit.kernel);
        unit.cores = cores.unwrap_or(unit.cores);
    }
}

impl Variant {
    /// What the format alone does not tell.
    fn check(&self, name: &str, spec: &Spec) -> Result<()> {
        let place = format!("[variants.{name}]");
        // It must be told from versions.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        ensure!(
            begins && name.chars().all(plain),
            "{place}: the name is not letters, digits and - with a letter first"
        );
        let sets = !self.env.is_empty() || !self.arguments.is_empty();
        match &self.ending {
            Some(ending) => ensure!(
                !ending.is_empty() && !sets && self.probe.is_empty() && self.since.is_none(),
                "{place}: an ending goes without env, arguments, probe and since"
            ),
            None => ensure!(sets, "{place} needs env, arguments or ending: what makes it another"),
        }
        let may_lack = self.ending.is_some() || !self.probe.is_empty();
        ensure!(
            may_lack == self.package.is_some(),
            "{place}: package goes with probe or ending, and tells what has the variant"
        );
        places(&format!("{place} env"), self.env.values(), &PLACES)?;
        places(&format!("{place} arguments"), &self.arguments, &PLACES)?;
        places(&format!("{place} probe"), &self.probe, &PLACES[..4])?;
        for unit in self.units.iter().flatten().chain(self.changes.keys()) {
            known(&place, "unit", unit, &spec.units)?;
        }
        let mut programs = spec.programs.iter();
        let deaf = programs.find(|(_, program)| !program.run.iter().any(|word| word == RUNTIME));
        if let Some((program, _)) = deaf.filter(|_| !self.arguments.is_empty()) {
            bail!("{place}: [programs.{program}] run has no {RUNTIME} to put the arguments behind");
        }
        Ok(())
    }

    pub(super) fn is_of(&self, version: &str) -> bool {
        self.ending.as_ref().is_some_and(|ending| version.ends_with(ending.as_str()))
    }

    /// These words, with the arguments behind the runtime.
    pub(super) fn within(&self, words: &[String]) -> Vec<String> {
        let at = words.iter().position(|word| word == RUNTIME).map_or(0, |at| at + 1);
        let (before, after) = words.split_at(at);
        [before, self.arguments.as_slice(), after].concat()
    }

    pub(super) fn applied(&self, spec: &Spec) -> Spec {
        let mut spec = spec.clone();
        for program in spec.programs.values_mut() {
            program.run = self.within(&program.run);
            program.env.extend(self.env.clone());
        }
        if let Some(own) = &self.units {
            spec.units.retain(|name, _| own.contains(name));
        }
        for (name, changes) in &self.changes {
            if let Some(unit) = spec.units.get_mut(name) {
                changes.apply(unit);
            }
        }
        spec.variant = Some(self.what.clone());
        spec
    }
}

/// Finds a mistake in the variants of a file.
pub(super) fn check(spec: &Spec) -> Result<()> {
    spec.variants.iter().try_for_each(|(name, variant)| variant.check(name, spec))
}

impl Spec {
    /// For this version, which may be a variant by the way it was built.
    pub(super) fn for_version(&self, version: &str) -> Spec {
        let variant = self.variants.values().find(|variant| variant.is_of(version));
        variant.map_or_else(|| self.clone(), |variant| variant.applied(self))
    }
}
