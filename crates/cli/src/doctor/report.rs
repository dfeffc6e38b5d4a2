//! The doctor's findings as text and JSON.

use carefree_lab::printable;
use serde::Serialize;

use super::checks::{Check, Verdict};

/// The width at which lines of text are broken.
const WIDTH: usize = 88;

pub(super) fn text(headline: &str, found: &[Check], colour: bool) -> String {
    let paint = |code: &str, text: &str| {
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    };
    let mut report = format!("{}\n", paint("1", headline));
    for check in found {
        // Words, and not colours alone: not every reader or terminal has colours.
        let mark = match check.verdict {
            Verdict::Good => paint("32", "good"),
            Verdict::Note => paint("33", "note"),
            Verdict::Bad => paint("31", "bad "),
        };
        // A target's title is its author's.
        let told = format!("{}: {}", check.name, check.value);
        report += &format!("\n{mark}  {}\n", printable::line(&told));
        let reason = check.reason.as_ref().map(|reason| format!("Because {reason}."));
        let advice = check.advice.as_ref().map(|advice| format!("To change it: {advice}."));
        for part in [reason, Some(check.meaning.clone()), advice].into_iter().flatten() {
            for line in wrap(&part) {
                report += &format!("      {}\n", printable::line(&line));
            }
        }
    }
    report
}

pub(super) fn json(found: &[Check], works: bool, threads: bool) -> String {
    #[derive(Serialize)]
    struct Report<'a> {
        schema: u32,
        fibers_work: bool,
        /// What works are threads in place of fibers.
        threads: bool,
        checks: &'a [Check],
    }
    pretty(&Report { schema: 1, fibers_work: works, threads, checks: found })
}

/// Of one program: whether its threads become fibers.
pub(super) fn json_of_program(fibers: bool, found: &[Check]) -> String {
    #[derive(Serialize)]
    struct Report<'a> {
        schema: u32,
        become_fibers: bool,
        checks: &'a [Check],
    }
    pretty(&Report { schema: 1, become_fibers: fibers, checks: found })
}

fn pretty(report: &impl Serialize) -> String {
    // Plain data with string keys always has a JSON form.
    let mut text = serde_json::to_string_pretty(report).expect("plain data");
    text.push('\n');
    text
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        let text = "word ".repeat(40);
        let lines = wrap(&text);
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim());
    }
}
