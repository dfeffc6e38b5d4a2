//! What the records of a fleet cost: their size, the time to read them, to report on them and to compare
//! two versions, for so many machines and versions. `docs/fleet.md` quotes it.
//!
//! ```sh
//! cargo run --release -p carefree-lab --example fleet -- 10x4 100x4
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use carefree_lab::compare::Comparison;
use carefree_lab::env::Environment;
use carefree_lab::record::{self, Extent, Parameters, Reading, Record, RunFacts, Subject};
use carefree_lab::report::{self, Format};

/// What a task has measured by default: a fiber and a thread, five workloads, eleven samples of each.
/// All figures are `times` what they are else.
fn record(times: f64) -> Record {
    let figures = [
        ("alloc", &["time_per_unit", "memory_per_unit", "whole_memory_per_unit"][..]),
        ("switch", &["time_per_switch", "switches_per_second"]),
        ("warm", &["first_time_per_unit", "last_time_per_unit"]),
        ("throughput", &["time", "units_per_second"]),
        ("parked", &["memory_per_unit", "whole_memory_per_unit"]),
    ];
    let mut samples = Vec::new();
    for position in 0..11 * 2 * figures.len() {
        let (workload, metrics) = figures[position % figures.len()];
        let unit = ["fiber", "thread"][position / figures.len() % 2];
        let value = if unit == "fiber" { 1_000.5 } else { 20_000.25 } + (position * 7 % 11) as f64;
        let value = times * value;
        let parameters = Parameters::of([("cores", 16), ("switches", 2), ("units", 10_000)]);
        let proof = serde_json::json!({
            "process": 31_337, "switches_asked": 20_000, "switches_made": 20_000,
            "rounds": [{"create_ns": 1_234_567, "run_ns": 12_345_678, "total_ns": 13_580_245}],
            "memory": {"own": {"base": 5_000_000, "peak": 15_000_000, "rest": 14_000_000}},
        });
        samples.push(Reading {
            subject: Subject::new(["ruby", "3.0.VERSION", unit, workload], parameters),
            role: Some(unit.into()),
            run: "2026-01-31T12:00:00Z".into(),
            position,
            program: "0123456789abcdef".into(),
            figures: metrics
                .iter()
                .map(|&metric| (metric.into(), value))
                .collect::<BTreeMap<_, _>>(),
            proof: proof.as_object().cloned().unwrap_or_default(),
            ..Reading::default()
        });
    }
    let environment = Environment { machine: Some("MACHINE".into()), ..Environment::capture() };
    let run = RunFacts { samples: 11, ..RunFacts::default() };
    Record::new(environment, run, samples, Vec::new())
}

fn timed<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let begun = Instant::now();
    let done = what();
    (done, begun.elapsed().as_secs_f64())
}

fn measure(folder: &Path, machines: usize, versions: usize) -> anyhow::Result<()> {
    // Every other version is slower, for a step takes more to be found than none.
    let texts = [record(1.0), record(1.2)].map(|record| record.to_lines());
    for machine in 0..machines {
        for version in 0..versions {
            let text = texts[version % 2].replace("MACHINE", &format!("n{machine:04}"));
            let text = text.replace("3.0.VERSION", &format!("3.0.{version}"));
            fs::write(folder.join(format!("p-{version}-n{machine:04}.jsonl")), text)?;
        }
    }
    let name = folder.display().to_string();
    let (read, reading) = timed(|| record::find(&name, None, Extent::Shown));
    let records = read?.records;
    let (text, as_text) = timed(|| report::render_all(&records, Format::Text, false));
    let (page, as_page) = timed(|| report::render_all(&records, Format::Html, false));
    let of = |version: usize| -> Vec<Record> {
        let wanted = format!("3.0.{version}");
        records.iter().filter_map(|record| record.clone().of_version(&wanted)).collect()
    };
    let (old, new) = (of(0), of(versions - 1));
    let (_, comparing) = timed(|| Comparison::new(&old, &new));
    println!(
        "{machines:>8} {versions:>8} {:>8} {:>12.1} {reading:>9.2} {as_text:>9.2} {:>10.1} \
         {as_page:>9.2} {:>10.1} {comparing:>11.2}",
        records.len(),
        (fs::metadata(folder.join("p-0-n0000.jsonl"))?.len()) as f64 / 1024.0,
        text.len() as f64 / 1024.0,
        page.len() as f64 / 1024.0,
    );
    Ok(())
}

fn main() -> anyhow::Result<()> {
    println!(
        "machines versions  records KiB a record  read (s)  text (s) text (KiB)  page (s) page (KiB) \
         compare (s)"
    );
    for size in std::env::args().skip(1) {
        let folder = tempfile::tempdir()?;
        let sizes = size.split_once('x').and_then(|(machines, versions)| {
            Some((machines.parse::<usize>().ok()?, versions.parse::<usize>().ok()?))
        });
        let (machines, versions) =
            sizes.ok_or_else(|| anyhow::anyhow!("a size is 100x40, not {size}"))?;
        measure(folder.path(), machines, versions)?;
    }
    Ok(())
}
