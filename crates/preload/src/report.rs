//! What was done, written to a file when the program ends.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use carefree_runtime::Metrics;

use crate::thread::record;

const VARIABLE: &str = "CAREFREE_RUN_REPORT";

static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Has the report written at the end, if it is asked for.
pub(crate) fn prepare() {
    let Some(file) = carefree_settings::text(VARIABLE) else { return };
    if FILE.set(PathBuf::from(file)).is_ok() {
        // SAFETY: a function of this library, which is never unloaded.
        unsafe { libc::atexit(write) };
    }
}

extern "C" fn write() {
    let Some(file) = FILE.get() else { return };
    let counts = figures();
    let text = match file.extension().is_some_and(|extension| extension == "json") {
        true => json(&counts),
        false => text(&counts),
    };
    if let Err(error) = std::fs::write(file, text) {
        eprintln!("carefree: no report: {}: {error}", file.display());
    }
}

/// What the report tells: a key, its meaning, the figure.
type Figure = (&'static str, &'static str, u64);

fn figures() -> [Figure; 9] {
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
        ("switches", "switches from one to another", switches),
        ("waits", "waits in which a thread left its carrier", parks),
        ("carriers", "kernel threads that ran them, at the end", carriers as u64),
        ("added", "carriers added because threads kept all others", added),
        ("steals", "times a carrier took threads from another", steals),
        ("missed", "times a thread waited while a carrier slept: a fault of Carefree's", missed),
    ]
}

fn text(figures: &[Figure]) -> String {
    let mut text = String::new();
    for (_, meaning, figure) in figures {
        let _ = writeln!(text, "{figure:>12}  {meaning}");
    }
    text
}

fn json(figures: &[Figure]) -> String {
    let mut text = String::from("{");
    for (index, (key, _, figure)) in figures.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}\"{key}\": {figure}");
    }
    text + "}\n"
}
