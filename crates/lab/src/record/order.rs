//! The order in which reports show things, whatever the order they were measured in.

use carefree_workloads::workload::Workload;

use super::Measurement;
use crate::metric;

const OURS: [&str; 2] = ["carefree", "rust"];
const UNITS: [&str; 3] = ["coroutine", "fiber", "thread"];

/// The place of `name` among `known`, the unknown ones behind, by name.
fn place<'a>(known: &[&str], name: &'a str) -> (usize, &'a str) {
    let at = known.iter().position(|known| *known == name);
    (at.unwrap_or(known.len()), name)
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
    let mut parts = Vec::new();
    let split = |c: char| c == '.' || c == '-' || c == '+' || c == '_';
    let (number, build) = version_and_build(version);
    for part in number.split(split) {
        parts.push(match part.parse::<u64>() {
            Ok(number) => (2, number, String::new()),
            // Of a word such as rc1, the number counts too.
            Err(_) => {
                let word = part.trim_end_matches(|c: char| c.is_ascii_digit());
                (0, part[word.len()..].parse().unwrap_or(0), word.to_owned())
            }
        });
    }
    // What comes after the end: more than a word, less than a number.
    parts.push((1, 0, String::new()));
    if let Some(build) = build {
        let word = build.trim_end_matches(|c: char| c.is_ascii_digit());
        // A number counts where the words before it are the same.
        parts.push((1, 0, word.to_owned()));
        parts.push((1, build[word.len()..].parse().unwrap_or(0), String::new()));
    }
    parts
}

/// Puts figures in order.
pub(super) fn sort(results: &mut [Measurement]) {
    results.sort_by(|a, b| {
        let (one, other) = (&a.subject, &b.subject);
        let workloads = Workload::ALL.map(Workload::name);
        let rank = |m: &Measurement| metric::rank(&m.subject.workload, &m.metric).0;
        place(&workloads, &one.workload)
            .cmp(&place(&workloads, &other.workload))
            .then_with(|| (rank(a), &a.metric).cmp(&(rank(b), &b.metric)))
            .then_with(|| place(&OURS, &one.runtime).cmp(&place(&OURS, &other.runtime)))
            .then_with(|| version_key(&one.version).cmp(&version_key(&other.version)))
            .then_with(|| place(&UNITS, &one.unit).cmp(&place(&UNITS, &other.unit)))
            .then_with(|| one.parameters.cmp(&other.parameters))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_their_release() {
        let mut versions = ["3.10", "3.5-rc1", "2.7", "3.9.1", "3.5", "3.5-rc2", "3.5.0", "3.9"];
        versions.sort_by_key(|version| version_key(version));
        assert_eq!(versions, ["2.7", "3.5-rc1", "3.5-rc2", "3.5", "3.5.0", "3.9", "3.9.1", "3.10"]);
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
