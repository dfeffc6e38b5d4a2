//! Variables of the environment that look like settings and are none.
//!
//! The command line tells its users of them. A program that has fibers says nothing: it may have variables of its own
//! that begin so, and what it writes is what its users ask for.

use std::ffi::OsString;

use carefree_settings::names::{ALL, OF_TESTS, PREFIX};
use strsim::levenshtein;

use crate::complain;

/// Says which they are, on standard error.
pub(crate) fn complain_of_settings() {
    among(std::env::vars_os()).iter().for_each(complain);
}

/// A line for each.
fn among(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, _) in variables {
        let name = name.to_string_lossy();
        let is_known = ALL.iter().any(|(known, _)| *known == name);
        let is_of_tests = OF_TESTS.iter().any(|start| name.starts_with(start));
        if !name.to_ascii_uppercase().starts_with(PREFIX) || is_known || is_of_tests {
            continue;
        }
        lines.push(match meant(&name) {
            Some(meant) => format!("{name} is no setting, but {meant} is"),
            None => format!("{name} is no setting: docs/settings.md has all of them"),
        });
    }
    lines.sort();
    lines
}

/// The setting whose name is the most like this one, if one is.
fn meant(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let (letters, meant) =
        ALL.iter().map(|(known, _)| (levenshtein(&name, known), *known)).min()?;
    (letters <= 1 + (name.len() - PREFIX.len()) / 4).then_some(meant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_told_of() {
        let names = ["CARRIER", "TLSRESERVE", "COLOUR", "TEST_LIMIT", "STACK"];
        let names = names.map(|name| format!("{PREFIX}{name}"));
        let others = ["carefree_stack", "HOME"].map(String::from);
        let variables = names.into_iter().chain(others);
        let lines = among(variables.map(|name| (OsString::from(name), OsString::from("1"))));
        let expected = [
            "CARRIER is no setting, but CAREFREE_CARRIERS is",
            "COLOUR is no setting: docs/settings.md has all of them",
            "TLSRESERVE is no setting, but CAREFREE_TLS_RESERVE is",
        ];
        let mut expected = expected.map(|line| format!("{PREFIX}{line}")).to_vec();
        expected.push("carefree_stack is no setting, but CAREFREE_STACK is".into());
        assert_eq!(lines, expected);
    }
}
