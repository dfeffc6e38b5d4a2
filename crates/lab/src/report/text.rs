//! A record for a terminal.

use super::table::Table;
use super::{number, tables, words};
use crate::record::Record;

/// Turns colours on, or nothing at all.
struct Ink(bool);

impl Ink {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn green(&self, text: &str) -> String {
        self.paint("32", text)
    }

    fn yellow(&self, text: &str) -> String {
        self.paint("33", text)
    }

    fn red(&self, text: &str) -> String {
        self.paint("31", text)
    }
}

pub(super) fn render(record: &Record, colour: bool) -> String {
    let ink = Ink(colour);
    let mut text = String::new();
    for line in machine(record) {
        text += &format!("{}\n", ink.dim(&line));
    }
    let section = |table: &Table| {
        let notes: String =
            table.notes.iter().map(|note| format!("  {}\n", ink.dim(note))).collect();
        format!("\n{}\n\n{}{notes}", ink.bold(&table.title), table.text())
    };
    let published = tables::published(record);
    published.iter().for_each(|table| text += &section(table));
    if let Some(table) = tables::intervals(record) {
        text += &section(&table);
    }
    let sentences = words::sentences(record);
    if !sentences.is_empty() {
        text += &format!("\n{}\n\n", ink.bold("In plain words"));
        for sentence in sentences {
            text += &format!("  {}\n", ink.green(&sentence));
        }
    }
    if !record.warnings.is_empty() {
        text += &format!("\n{}\n\n", ink.bold("Warnings"));
        for warning in &record.warnings {
            text += &format!("  {}.\n", ink.yellow(&capitalized(&warning.message)));
            text += &format!("    What to do: {}.\n", warning.advice);
        }
    }
    if !record.failures.is_empty() {
        text += &format!("\n{}\n\n", ink.bold("Failures"));
        for failed in &record.failures {
            let line = failure(failed);
            text += &format!("  {}\n", ink.red(&line));
            if let Some(advice) = &failed.advice {
                text += &format!("    What to do: {advice}.\n");
            }
        }
    }
    if record.run.interrupted {
        text += &format!("\n{}\n", ink.yellow("Broken off: these are the samples until then."));
    }
    text
}

/// `thread alloc: thread 499 of 10000 could not be started (10 samples).`
pub(super) fn failure(failed: &crate::record::Failed) -> String {
    let samples = if failed.times == 1 { "sample" } else { "samples" };
    format!("{}: {} ({} {samples}).", failed.subject.spoken(), failed.message, failed.times)
}

/// Where and how it ran, in a few lines.
pub(super) fn machine(record: &Record) -> Vec<String> {
    let environment = &record.environment;
    let cores = match (environment.cores_allowed, environment.cores) {
        (1, 1) => "1 core".to_owned(),
        (allowed, cores) if allowed == cores => format!("{cores} cores"),
        (allowed, cores) => format!("{allowed} of {cores} cores"),
    };
    let mut hardware =
        vec![environment.cpu.clone().unwrap_or_else(|| "unknown processor".into()), cores];
    hardware.extend(environment.memory.map(|bytes| number::size(bytes as f64)));
    if environment.virtual_machine == Some(true) {
        hardware.push("virtual machine".into());
    }
    hardware.extend(environment.container.as_ref().map(|kind| format!("in {kind}")));
    let software = [
        format!("carefree {}", environment.carefree),
        format!("rustc {}", environment.rustc),
        environment.kernel.clone(),
        environment.libc.clone(),
    ];
    let mut settings = vec![format!("pages of {} KiB", environment.page_size / 1024)];
    settings.extend(environment.governor.as_ref().map(|name| format!("governor {name}")));
    settings.extend(environment.thp.as_ref().map(|choice| format!("THP {choice}")));
    settings.extend(environment.aslr.as_ref().map(|level| format!("ASLR {level}")));
    let mut fibers = vec![
        format!("fibers with {} TLS", environment.tls_mode),
        format!("guards by {}", environment.guard_mode),
    ];
    fibers.extend(environment.variables.iter().map(|(name, value)| format!("{name}={value}")));
    let run = &record.run;
    let samples = if run.samples == 1 { "sample" } else { "samples" };
    let mut order = format!(
        "{} {samples} of each, every one in a process of its own, in random order (seed {})",
        run.samples, run.seed
    );
    if run.pinned {
        order.push_str(", on one core");
    }
    vec![hardware.join(", "), software.join(", "), settings.join(", "), fibers.join(", "), order]
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
