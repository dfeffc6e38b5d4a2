//! The options of a command line, one by one: a plan passes on all that it does not split up,
//! whichever there are.

use std::ffi::OsString;

use anyhow::{Context, Result, anyhow};
use clap::{ArgAction, Args, CommandFactory};

use crate::args::{Bench, Cli};

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Its name: `samples`.
    pub(super) name: String,
    /// The words that give it again: `--samples=5`.
    pub(super) words: Vec<String>,
}

/// The options and workloads of `line`, a whole command line of `carefree bench`.
///
/// # Errors
/// One line: an option that is wrong, or that cannot be written into a plan.
pub(super) fn given(line: impl IntoIterator<Item = OsString>) -> Result<Vec<Given>> {
    let bench = Bench::augment_args(clap::Command::new("bench"));
    let matches =
        Cli::command().try_get_matches_from(line).map_err(|error| anyhow!(plain(&error)))?;
    let matches = matches.subcommand_matches("bench").context("this is no line of bench")?;
    let mut found = Vec::new();
    for option in bench.get_arguments() {
        let name = option.get_id().as_str();
        // Help has no value.
        let Ok(true) = matches.try_contains_id(name) else { continue };
        if matches.value_source(name) != Some(clap::parser::ValueSource::CommandLine) {
            continue;
        }
        let long = option.get_long().map(|long| format!("--{long}"));
        let words = match (long, option.get_action()) {
            (Some(long), ArgAction::SetTrue) => vec![long],
            (long, _) => {
                let values = matches.get_raw(name).into_iter().flatten();
                let word = |value: &std::ffi::OsStr| {
                    let value = value.to_str().with_context(|| {
                        format!(
                            "{} cannot stand in a plan: it is not UTF-8",
                            value.to_string_lossy()
                        )
                    })?;
                    Ok(match &long {
                        Some(long) => format!("{long}={value}"),
                        None => value.to_owned(),
                    })
                };
                values.map(word).collect::<Result<Vec<String>>>()?
            }
        };
        found.push(Given { name: name.to_owned(), words });
    }
    Ok(found)
}

/// The first line of what clap says, without its `error: `.
pub(super) fn plain(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.lines().next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let found = given(line.split(' ').map(OsString::from)).expect("a good line");
        found.into_iter().flat_map(|given| given.words).collect()
    }

    #[test]
    fn what_was_given_can_be_given_again() {
        let line = "carefree bench alloc switch --quick --samples 3 --unit fiber,thread --seed=7 \
                    --people 1,2 --latency 5 --pin";
        let once = words(line);
        for word in ["alloc", "switch", "--quick", "--samples=3", "--unit=fiber", "--unit=thread"] {
            assert!(once.iter().any(|found| found == word), "no {word} in {once:?}");
        }
        assert!(!once.iter().any(|word| word.starts_with("--body")), "a default: {once:?}");
        let again = words(&format!("carefree bench {}", once.join(" ")));
        assert_eq!(again, once);
    }

    #[test]
    fn a_wrong_line_is_refused_in_one_line() {
        let line = ["carefree", "bench", "--samples", "x"].map(OsString::from);
        let error = given(line).expect_err("no number").to_string();
        assert!(error.starts_with("invalid value 'x' for '--samples"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
