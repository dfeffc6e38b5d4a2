//! A record for a terminal.

use std::collections::BTreeSet;

use super::ink::Ink;
use super::view::{View, by_machine};
use super::{tables, words};
use crate::env::Environment;
use crate::number::{self, counted, whole};
use crate::record::{Record, Source};
use crate::targets;

pub(super) fn render(records: &[Record], colour: bool) -> String {
    let ink = Ink::new(colour);
    let view = View::new(records);
    let mut text = String::new();
    for (at, records) in by_machine(records).iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        for line in machine(records) {
            text += &format!("{}\n", ink.dim(&line));
        }
    }
    let tables = tables::published(&view).into_iter().chain(tables::intervals(&view, false));
    tables.for_each(|table| text += &table.text_section(ink));
    let topics = words::topics(&view);
    if !topics.is_empty() {
        text += &format!("\n{}\n\n", ink.bold("In plain words"));
        for topic in topics {
            let heading = topic.heading();
            let margin = if heading.is_some() { "    " } else { "  " };
            text.extend(heading.map(|heading| format!("  {}\n", ink.bold(&heading))));
            for sentence in topic.said {
                text += &format!("{margin}{}\n", ink.green(&sentence));
            }
        }
    }
    let warnings: Vec<_> = records.iter().flat_map(|record| &record.warnings).collect();
    if !warnings.is_empty() {
        text += &format!("\n{}\n\n", ink.bold("Warnings"));
        for warning in warnings {
            text += &format!("  {}.\n", ink.yellow(&capitalized(&warning.message)));
            text += &format!("    What to do: {}.\n", warning.advice);
        }
    }
    let failures: Vec<_> = records.iter().flat_map(|record| &record.failures).collect();
    if !failures.is_empty() {
        text += &format!("\n{}\n\n", ink.bold("Failures"));
        for failed in failures {
            let line = failure(failed);
            text += &format!("  {}\n", ink.red(&line));
            if let Some(advice) = &failed.advice {
                text += &format!("    What to do: {advice}.\n");
            }
            for line in failed.stderr.iter().flat_map(|said| said.lines()) {
                text += &format!("    | {line}\n");
            }
        }
    }
    if records.iter().any(|record| record.run.interrupted) {
        text += &format!("\n{}\n", ink.yellow("Broken off: these are the samples until then."));
    }
    text
}

/// `thread alloc: thread 499 of 10000 could not be started (10 samples).`
pub(super) fn failure(failed: &crate::record::Failed) -> String {
    let samples = counted(failed.times as usize, "sample");
    format!("{}: {} ({samples}).", failed.subject.spoken(), failed.message)
}

/// Where and how the records of one machine came to be, in a few lines, each said once.
pub(super) fn machine(records: &[&Record]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut lines: Vec<String> = records.iter().flat_map(|record| one_record(record)).collect();
    lines.retain(|line| seen.insert(line.clone()));
    lines.extend(used_again(records));
    lines
}

/// `AMD EPYC, 2 cores, 23.5 GiB, virtual machine, in docker`.
pub(super) fn hardware(environment: &Environment) -> String {
    let cores = match (environment.cores_allowed, environment.cores) {
        (allowed, cores) if allowed == cores => counted(cores, "core"),
        (allowed, cores) => format!("{allowed} of {cores} cores"),
    };
    let mut hardware: Vec<String> = environment.machine.iter().cloned().collect();
    hardware.push(environment.cpu.clone().unwrap_or_else(|| "unknown processor".into()));
    hardware.push(cores);
    hardware.extend(environment.memory.map(|bytes| number::size(bytes as f64)));
    if environment.virtual_machine == Some(true) {
        hardware.push("virtual machine".into());
    }
    hardware.extend(environment.container.as_ref().map(|kind| format!("in {kind}")));
    hardware.join(", ")
}

/// What a record does not know is left out.
fn one_record(record: &Record) -> Vec<String> {
    if let Some(source) = &record.source {
        return published(record, source);
    }
    let environment = &record.environment;
    let hardware = hardware(environment);
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
    let mut order = format!(
        "{} of each, every one in a process of its own, in random order (seed {})",
        counted(run.samples as usize, "sample"),
        run.seed
    );
    if run.pinned {
        order.push_str(", on one core");
    }
    let mut lines =
        vec![hardware, software.join(", "), settings.join(", "), fibers.join(", "), order];
    lines.extend(run.runtimes.iter().map(ToString::to_string));
    lines
}

/// How many samples were not taken in the runs of these records, and when they were.
pub(super) fn used_again(records: &[&Record]) -> Option<String> {
    let mut older = Vec::new();
    for record in records {
        let runs = record.samples.iter().map(|sample| sample.run.as_str());
        older.extend(runs.filter(|run| *run != record.environment.started));
    }
    let all: u64 = records.iter().map(|record| record.samples.len() as u64).sum();
    let first = older.iter().min()?;
    let older = whole(older.len() as u64);
    Some(format!("{older} of {} samples used again from runs since {first}", whole(all)))
}

/// Where figures of others come from, and what they tell of their machine.
fn published(record: &Record, source: &Source) -> Vec<String> {
    let environment = &record.environment;
    let mut lines = vec![source.title.clone()];
    lines.extend(source.address.clone());
    let mut machine: Vec<String> = environment.cpu.iter().cloned().collect();
    if environment.cores_allowed > 0 {
        machine.push(format!("{} cores", environment.cores_allowed));
    }
    machine.extend(environment.memory.map(|bytes| number::size(bytes as f64)));
    if !environment.kernel.is_empty() {
        machine.push(environment.kernel.clone());
    }
    if !machine.is_empty() {
        lines.push(machine.join(", "));
    }
    lines.extend(source.notes.iter().cloned());
    lines
}

/// With a capital, but for the name of a runtime, which everywhere is written as the lab knows it.
pub(super) fn capitalized(text: &str) -> String {
    let first = text.split([' ', ':']).next().unwrap_or_default();
    if targets::is_ours(first) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
