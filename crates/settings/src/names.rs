//! The names of all settings, and what is wrong with their values.

use crate::denied::MOST_STORAGE;
use crate::setting;

/// How all names begin.
pub const PREFIX: &str = "CAREFREE_";

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
    ("CAREFREE_RUN", Takes::Words(&["off", "only"])),
    ("CAREFREE_RUN_THREADS_FOR", Takes::Other),
    ("CAREFREE_RUN_STRICT", Takes::Words(&["1"])),
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
    ALL.iter().try_for_each(|(name, _)| check_one(name))
}

/// [`check`] for one of the settings.
///
/// # Errors
/// A line that says what is wrong with its value.
pub fn check_one(name: &str) -> Result<(), String> {
    let takes = ALL.iter().find(|(known, _)| *known == name).map(|(_, takes)| *takes);
    match (takes, setting(name)) {
        (Some(takes), Some(value)) if !value.is_empty() => {
            check_value(name, takes, &value.to_string_lossy())
        }
        _ => Ok(()),
    }
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
            ("CAREFREE_RUN", "of", "neither `off` nor `only`"),
            ("CAREFREE_RUN_STRICT", "0", "not `1`"),
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
}
