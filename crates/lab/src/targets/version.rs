//! Versions: how they are read, compared and named.

use std::cmp::Ordering;

/// The version in what a program printed: the first word after the text `after`.
pub(crate) fn of_output<'a>(output: &'a str, after: &str) -> Option<&'a str> {
    let rest = output.split_once(after).map(|(_, rest)| rest)?;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | '~');
    let rest = rest.trim_start();
    let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// Whether `version` is `wanted` or begins with its parts: `3.13.0` is `3.13`, and `3.1` is not.
pub(crate) fn matches(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Which version is newer: numbers by their value, anything else by its letters.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    let parts = |version: &str| -> Vec<(u64, String)> {
        let part = |part: &str| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            (part[..digits].parse().unwrap_or(0), part[digits..].to_owned())
        };
        version.split(['.', '-', '_', '+']).map(part).collect()
    };
    parts(one).cmp(&parts(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let go = "go version go1.26.8 linux/amd64";
        assert_eq!(of_output(go, "go version go"), Some("1.26.8"));
        let java = "openjdk version \"25.0.1\" 2025-10-21\nOpenJDK Runtime";
        assert_eq!(of_output(java, "version \""), Some("25.0.1"));
        let ldc = "LDC - the LLVM D compiler (1.30.0):\n";
        assert_eq!(of_output(ldc, "("), Some("1.30.0"));
        assert_eq!(of_output("3.13.0\n/usr/bin/python3\n", ""), Some("3.13.0"));
        assert_eq!(of_output("command not found", "version"), None);
        assert_eq!(of_output("version: ?", "version:"), None);
    }

    #[test]
    fn a_prefix_names_a_version_part_by_part() {
        assert!(matches("3.13.0", "3.13") && matches("3.13.0", "3") && matches("21-ea", "21"));
        assert!(!matches("3.13.0", "3.1") && !matches("3.1", "3.13"));
    }

    #[test]
    fn ten_is_newer_than_nine() {
        assert_eq!(compare("3.10.1", "3.9.18"), Ordering::Greater);
        assert_eq!(compare("1.8.0_392", "21"), Ordering::Less);
        assert_eq!(compare("21.0.1", "21"), Ordering::Greater);
    }
}
