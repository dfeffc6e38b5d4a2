//! Versions: how they are read, compared and named.

/// The version in what a program printed: the first word after the text `after`.
pub(crate) fn of_output<'a>(output: &'a str, after: &str) -> Option<&'a str> {
    let rest = output.split_once(after).map(|(_, rest)| rest)?;
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_' | '~');
    let rest = rest.trim_start();
    let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// Whether `version` is `wanted` or begins with its parts: `3.13.0` is `3.13`; it is not `3.1`, and `3.13.0rc1` not
/// `3.13.0`.
pub(crate) fn matches(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || !rest.starts_with(char::is_alphanumeric))
}

/// A version without, and with nothing but, what tells builds of it apart: `3.5.0 (patch)` is
/// `3.5.0` and `patch`.
pub fn version_and_build(version: &str) -> (&str, Option<&str>) {
    let parts = version.split_once(" (");
    let parts = parts.and_then(|(number, rest)| Some((number, rest.strip_suffix(')')?)));
    parts.map_or((version, None), |(number, build)| (number, Some(build)))
}

/// A version taken apart, so that 3.10 comes after 3.9, and 3.5-rc before 3.5. Builds of one
/// version are in the order of their names.
pub fn version_key(version: &str) -> Vec<(u8, u64, String)> {
    let (number, build) = version_and_build(version);
    let mut parts = Vec::new();
    for part in number.split(['.', '-', '+', '_']) {
        // Of 13t and 0rc1 the number counts first, of rc1 the word.
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (digits, rest) = part.split_at(end);
        parts.extend(digits.parse().ok().map(|number| (2, number, String::new())));
        if !rest.is_empty() || digits.is_empty() {
            let (word, number) = word_and_number(rest);
            parts.push((0, number, word.to_owned()));
        }
    }
    // What comes after the end: more than a word, less than a number.
    parts.push((1, 0, String::new()));
    if let Some(build) = build {
        let (word, number) = word_and_number(build);
        // A number counts where the words before it are the same.
        parts.extend([(1, 0, word.to_owned()), (1, number, String::new())]);
    }
    parts
}

/// `rc1` is `rc` and 1.
fn word_and_number(text: &str) -> (&str, u64) {
    let word = text.trim_end_matches(|c: char| c.is_ascii_digit());
    (word, text[word.len()..].parse().unwrap_or(0))
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
        assert!(!matches("3.13.0rc1", "3.13.0") && matches("3.13.0rc1", "3.13"));
    }

    #[test]
    fn versions_are_in_the_order_of_their_release() {
        for ordered in [
            &["2.7", "3.5-rc1", "3.5-rc2", "3.5", "3.5.0", "3.9", "3.9.1", "3.10"][..],
            &["1.8.0_392", "21-ea", "21", "21.0.1"],
            &["3.12", "3.13t", "3.13", "3.13.1", "3.14.0rc1", "3.14.0rc2", "3.14.0"],
        ] {
            let mut sorted = ordered.to_vec();
            sorted.reverse();
            sorted.sort_by_key(|version| version_key(version));
            assert_eq!(sorted, ordered);
        }
    }

    #[test]
    fn builds_of_a_version_stand_behind_it_by_name() {
        let mut versions = [
            "25 (erlang:25)",
            "3.5.0 (pr10)",
            "3.5.1",
            "3.5.0 (base)",
            "9",
            "3.5.0 (pr9)",
            "3.5.0",
            "3.5.10 (ruby:3.5)",
            "3.5.9 (ruby:3.5)",
        ];
        versions.sort_by_key(|version| version_key(version));
        assert_eq!(
            versions,
            [
                "3.5.0",
                "3.5.0 (base)",
                "3.5.0 (pr9)",
                "3.5.0 (pr10)",
                "3.5.1",
                "3.5.9 (ruby:3.5)",
                "3.5.10 (ruby:3.5)",
                "9",
                "25 (erlang:25)",
            ]
        );
        assert_eq!(version_and_build("3.5.0 (patch)"), ("3.5.0", Some("patch")));
        assert_eq!(version_and_build("3.5.0"), ("3.5.0", None));
    }
}
