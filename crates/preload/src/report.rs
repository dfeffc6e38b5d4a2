//! What was done, written to a file when the program ends.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use carefree_ground::text::Text;
use carefree_runtime::{Metrics, Reason};

use crate::kept::{self, Site};
use crate::signal::spared;
use crate::thread::{exempt, record};

const VARIABLE: &str = "CAREFREE_RUN_REPORT";
/// The process that `carefree run` has become. Those that it starts write files of their own.
const PROCESS: &str = "CAREFREE_RUN_REPORT_PROCESS";

/// Functions that kept carriers, of which the report tells: those that did so for longest.
const SITES: usize = 10;

static FILE: OnceLock<PathBuf> = OnceLock::new();
/// [`PROCESS`], which the program may take out of its environment; empty if it was not there.
static FIRST: OnceLock<String> = OnceLock::new();

/// Has the report written at the end, if it is asked for.
pub(crate) fn prepare() {
    let Some(file) = carefree_settings::text(VARIABLE) else { return };
    let first = carefree_settings::text(PROCESS).unwrap_or_default();
    if FIRST.set(first).is_ok() && FILE.set(PathBuf::from(file)).is_ok() {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { libc::atexit(write) };
        kept::prepare();
    }
}

/// The file for the report of this process; `None` if it is one that another has started, and had no threads.
fn own_file() -> Option<PathBuf> {
    let file = FILE.get()?;
    let own = std::process::id().to_string();
    if FIRST.get().is_none_or(|first| first.is_empty() || *first == own) {
        return Some(file.clone());
    }
    if record::CREATED.load(Ordering::Relaxed) + exempt::KEPT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let extension = file.extension().map(|extension| extension.to_string_lossy());
    Some(
        file.with_extension(
            extension.map_or(own.clone(), |extension| format!("{own}.{extension}")),
        ),
    )
}

extern "C" fn write() {
    let Some(file) = own_file() else { return };
    let (counts, waits) = (figures(), carefree_runtime::waits_by_reason());
    let mut sites = kept::sites();
    sites.truncate(SITES);
    let text = match file.extension().is_some_and(|extension| extension == "json") {
        true => json(&counts, &waits, &sites),
        false => text(&counts, &waits, &sites),
    };
    // (By which a file that is too long ends the process.)
    let written = spared(libc::SIGXFSZ, || std::fs::write(&file, text));
    if let Err(error) = written {
        Text::print_line(format_args!("carefree: no report: {}: {error}", file.display()));
    }
}

/// What the report tells: a key, its meaning, the figure.
type Figure = (&'static str, &'static str, u64);

fn figures() -> [Figure; 12] {
    let (used, kept_time) = carefree_runtime::kept_carriers();
    let Metrics { carriers, added, switches, parks, steals, missed, .. } =
        carefree_runtime::metrics();
    [
        ("process", "the process's number", u64::from(std::process::id())),
        (
            "threads",
            "threads that were fibers, besides the first",
            record::CREATED.load(Ordering::Relaxed),
        ),
        ("most", "of these, alive at once", record::MOST.load(Ordering::Relaxed)),
        ("kept", "threads that `--threads-for` left threads", exempt::KEPT.load(Ordering::Relaxed)),
        ("switches", "switches from one to another", switches),
        ("waits", "waits in which a thread left its carrier", parks),
        ("carriers", "kernel threads that ran them, at the end", carriers as u64),
        ("used", "kernel threads that ran them, the most at once", used as u64),
        ("stuck_ms", "milliseconds for which threads kept carriers", kept_time / 1_000_000),
        ("added", "carriers added because threads kept all others", added),
        ("steals", "times a carrier took threads from another", steals),
        ("missed", "times a thread waited while a carrier slept: a fault of Carefree's", missed),
    ]
}

fn text(figures: &[Figure], waits: &[(Reason, u64)], sites: &[(Site, u64)]) -> String {
    let mut text = String::new();
    for (_, meaning, figure) in figures {
        let _ = writeln!(text, "{figure:>12}  {meaning}");
    }
    text += "Waits, by what a thread does in them:\n";
    for (reason, count) in waits {
        let _ = writeln!(text, "{count:>12}  {reason}");
    }
    text += "Milliseconds for which threads kept carriers, by the function that they were in:\n";
    for (Site { function, object }, nanos) in sites {
        let _ = writeln!(text, "{:>12}  {function} ({object})", nanos / 1_000_000);
    }
    text
}

/// A string of JSON's.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\0'..' ' => _ = write!(quoted, "\\u{:04x}", letter as u32),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}

fn json(figures: &[Figure], waits: &[(Reason, u64)], sites: &[(Site, u64)]) -> String {
    let mut text = String::from("{");
    for (index, (key, _, figure)) in figures.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}\"{key}\": {figure}");
    }
    text += ", \"waits_by_kind\": {";
    for (index, (reason, count)) in waits.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}\"{reason:?}\": {count}");
    }
    text += "}, \"kept_by\": [";
    for (index, (Site { function, object }, nanos)) in sites.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let (function, object, ms) = (quoted(function), quoted(object), nanos / 1_000_000);
        let site = format!("{{\"function\": {function}, \"object\": {object}, \"ms\": {ms}}}");
        text += comma;
        text += &site;
    }
    text + "]}\n"
}
