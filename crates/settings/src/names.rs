//! The names of all settings, and what is wrong with the environment's.

use std::ffi::OsString;

use crate::denied::MOST_STORAGE;
use crate::{is_privileged, setting};

/// How all names begin.
const PREFIX: &str = "CAREFREE_";

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A number of bytes, without a suffix, up to this one.
    Bytes(u64),
    /// What the crate that reads it looks at itself.
    Other,
}

/// All settings, and what they take: those of `docs/settings.md`.
pub const ALL: [(&str, Takes); 18] = [
    ("CAREFREE_CARRIERS", Takes::Other),
    ("CAREFREE_TLS", Takes::Words(&["own", "shared", "threads"])),
    ("CAREFREE_TLS_RESERVE", Takes::Bytes(MOST_STORAGE)),
    ("CAREFREE_MALLOC", Takes::Words(&["own"])),
    ("CAREFREE_RUN", Takes::Other),
    ("CAREFREE_RUN_THREADS_FOR", Takes::Other),
    ("CAREFREE_RUN_STRICT", Takes::Other),
    ("CAREFREE_RUN_REPORT", Takes::Other),
    ("CAREFREE_RUN_REPORT_PROCESS", Takes::Other),
    ("CAREFREE_STACK", Takes::Other),
    ("CAREFREE_GUARD", Takes::Other),
    ("CAREFREE_GUARDS", Takes::Words(&["madvise", "mprotect"])),
    ("CAREFREE_REACTOR", Takes::Other),
    ("CAREFREE_URING", Takes::Other),
    ("CAREFREE_OFFLOAD", Takes::Other),
    ("CAREFREE_WATCH", Takes::Other),
    ("CAREFREE_FSGSBASE", Takes::Words(&["off"])),
    ("CAREFREE_MEMBARRIER", Takes::Words(&["off"])),
];

/// How the names of variables begin that are for this project's own tests and scripts.
pub const OF_TESTS: [&str; 5] = [
    "CAREFREE_TEST_",
    "CAREFREE_FAULT_",
    "CAREFREE_SUITES_",
    "CAREFREE_DAMAGE_TIMES",
    "CAREFREE_ENDING",
];

/// Looks at the settings that are words or plain numbers. (Those that take something else are looked at by what reads
/// them.) An empty value counts as none.
///
/// # Errors
/// A line that says what is wrong with the first one that has a wrong value.
///
/// ```
/// assert_eq!(carefree_settings::names::check(), Ok(()));
/// ```
pub fn check() -> Result<(), String> {
    ALL.iter().try_for_each(|(name, takes)| match setting(name) {
        Some(value) if !value.is_empty() => check_value(name, *takes, &value.to_string_lossy()),
        _ => Ok(()),
    })
}

fn check_value(name: &str, takes: Takes, value: &str) -> Result<(), String> {
    let wanted = match takes {
        Takes::Other => return Ok(()),
        Takes::Words(words) if words.contains(&value) => return Ok(()),
        Takes::Words([one]) => format!("not `{one}`"),
        Takes::Words([one, other]) => format!("neither `{one}` nor `{other}`"),
        Takes::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            let (last, others) = words.split_last().expect("there are words");
            format!("none of {} and {last}", others.join(", "))
        }
        Takes::Bytes(most) if value.parse().is_ok_and(|bytes: u64| bytes <= most) => return Ok(()),
        Takes::Bytes(most) => format!("not a number of bytes up to {most}"),
    };
    Err(format!("{name}={value} is {wanted}"))
}

/// A line for each variable of the environment whose name begins as those of settings do, and is none.
///
/// For command lines to tell their users. A program that has fibers says nothing of them: it may have variables of its
/// own that begin so, and what it writes is what its users ask for.
pub fn unknown() -> Vec<String> {
    if is_privileged() { Vec::new() } else { unknown_of(std::env::vars_os()) }
}

fn unknown_of(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
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
    let names = ALL.iter().map(|(known, _)| (distance(&name, known), *known));
    let (distance, meant) = names.min()?;
    (distance <= 1 + (name.len() - PREFIX.len()) / 4).then_some(meant)
}

/// How many letters have to be added, dropped or changed to make `other` of `one`.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for letter in one.chars() {
        let mut diagonal = row[0];
        row[0] += 1;
        for (at, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *wanted);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_refused_in_a_line() {
        let takes = |name: &str| ALL.iter().find(|(known, _)| *known == name).unwrap().1;
        let said = |name, value| check_value(name, takes(name), value);
        for (name, value, why) in [
            ("CAREFREE_TLS", "x", "none of `own`, `shared` and `threads`"),
            ("CAREFREE_TLS_RESERVE", "much", "not a number of bytes up to 1048576"),
            ("CAREFREE_TLS_RESERVE", "1048577", "not a number of bytes up to 1048576"),
            ("CAREFREE_GUARDS", "yes", "neither `madvise` nor `mprotect`"),
            ("CAREFREE_FSGSBASE", "on", "not `off`"),
            ("CAREFREE_MEMBARRIER", "Off", "not `off`"),
            ("CAREFREE_MALLOC", "mine", "not `own`"),
        ] {
            assert_eq!(said(name, value), Err(format!("{name}={value} is {why}")));
        }
        for (name, value) in [
            ("CAREFREE_TLS", "shared"),
            ("CAREFREE_TLS_RESERVE", "1048576"),
            ("CAREFREE_GUARDS", "madvise"),
            ("CAREFREE_FSGSBASE", "off"),
            ("CAREFREE_CARRIERS", "looked at elsewhere"),
        ] {
            assert_eq!(said(name, value), Ok(()));
        }
    }

    #[test]
    fn mistyped_names_are_told_of() {
        let names = [
            "CAREFREE_CARRIER",
            "CAREFREE_TLSRESERVE",
            "CAREFREE_COLOUR",
            "CAREFREE_TEST_LIMIT",
            "CAREFREE_STACK",
            "carefree_stack",
            "HOME",
        ];
        let variables = names.map(|name| (OsString::from(name), OsString::from("1")));
        let lines = [
            "CAREFREE_CARRIER is no setting, but CAREFREE_CARRIERS is",
            "CAREFREE_COLOUR is no setting: docs/settings.md has all of them",
            "CAREFREE_TLSRESERVE is no setting, but CAREFREE_TLS_RESERVE is",
            "carefree_stack is no setting, but CAREFREE_STACK is",
        ];
        assert_eq!(unknown_of(variables.into_iter()), lines);
    }
}
