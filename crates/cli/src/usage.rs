//! One clear line about a command line that makes no sense.

use std::env;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::{complain, exit};

/// Says what clap found: help and version as they are, a mistake in one line that says what would
/// have been right. (clap's own way takes five, and for a number keeps the right ones to itself.)
pub(crate) fn report(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nothing to do about a standard output that is closed.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit::USAGE)
        }
        _ => {
            complain(&line(error));
            ExitCode::from(exit::USAGE)
        }
    }
}

fn line(error: &clap::Error) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();
    let option = argument.split(' ').next().unwrap_or_default();
    let suggestion = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]
        .into_iter()
        .find_map(text)
        .map_or_else(|| "see carefree --help".into(), |near| format!("did you mean {near}?"));
    match error.kind() {
        ErrorKind::ValueValidation => {
            // Our own parsers say it all; those of numbers say what is wrong with this one.
            let reason = std::error::Error::source(error).map(ToString::to_string);
            let reason = reason.unwrap_or_else(|| "it is not valid".into());
            match reason.starts_with("there is no ") {
                true => reason,
                false => format!("{option} takes {}, not '{value}'", numbers(option)),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("{option} needs a value"),
        ErrorKind::UnknownArgument => format!("there is no {argument}; {suggestion}"),
        ErrorKind::InvalidSubcommand => {
            let wrong = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            format!(
                "there is no command '{wrong}'; the commands are bench, report, \
                 compare, history and doctor"
            )
        }
        // An argument by its place, `<RECORD>...`, or the option that another one needs.
        ErrorKind::MissingRequiredArgument => {
            let command = env::args().nth(1).unwrap_or_default();
            format!("{argument} is missing; see carefree {command} --help")
        }
        ErrorKind::ArgumentConflict => format!("{option} can be given only once"),
        // Whatever else there may be: clap's first line, without its prefix.
        _ => {
            let all = error.to_string();
            let first = all.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    }
}

/// What an option with a number takes.
fn numbers(option: &str) -> &'static str {
    match option {
        "--fail-on-regression" => "a percentage from 0 to 1,000,000",
        "--precision" => "a percentage from 1 to 100",
        "--samples" => "a number from 1 to 10,000",
        "--units" => "a number from 1 to 100,000,000",
        "--people" => "a number from 1 to 1,000,000",
        "--requests" => "a number from 1 to 4,000",
        "--latency" => "a number from 0 to 60,000",
        "--nutrients" => "a number from 1 to 1,000,000,000",
        "--body" | "--read-size" => "a number from 0 to 1,000,000,000",
        _ => "a number from 0 to 18,446,744,073,709,551,615",
    }
}
