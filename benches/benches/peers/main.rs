//! Carefree beside its peers, on one core and then on all.
//!
//! `cargo bench -p carefree-benches [-- [--one-core | --all-cores] [--quick] [--cpu] [--million] [NAME...]]`

mod boost;
mod corosensei;
mod go;
mod may;
mod thread;
mod tokio;

use carefree_benches::peer::Peer;
use carefree_benches::scale::{ALL_CORES, Scale};
use carefree_benches::workload::{Line, Process, Target, WORKLOADS, Workload};
use carefree_benches::{child, machine, ours};
use carefree_lab::number::three_digits;
use carefree_lab::report::table::{Align, Table};
use carefree_lab::stats::{median, spread};
use carefree_lab::{env, plan};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::{Command, ExitCode};

/// The flag for the first table alone.
const ONE_CORE: &str = "--one-core";

/// The columns, ours first. `None`: not there.
fn peers(scale: Scale) -> Vec<(&'static str, Option<Peer>)> {
    if scale.all_cores {
        // Those that use more than one.
        return vec![
            (ours::PEER.name, Some(ours::PEER)),
            (may::PEER.name, Some(may::PEER)),
            (tokio::PEER.name, Some(tokio::PEER)),
            (go::PEER.name, go::missing().is_none().then_some(go::PEER)),
            (thread::PEER.name, Some(thread::PEER)),
        ];
    }
    vec![
        (ours::PEER.name, Some(ours::PEER)),
        (corosensei::PEER.name, Some(corosensei::PEER)),
        (boost::NAME, boost::peer()),
        (may::PEER.name, Some(may::PEER)),
        (tokio::PEER.name, Some(tokio::PEER)),
        (thread::PEER.name, Some(thread::PEER)),
    ]
}

/// What one peer showed on one workload: samples of each line, or why there are none.
type Samples = Result<Vec<Vec<f64>>, String>;

struct Options {
    scale: Scale,
    million: bool,
    names: Vec<String>,
}

impl Options {
    fn wants(&self, workload: &Workload) -> bool {
        let flagged = workload.flag.is_none() || self.million;
        let named = |name: &String| workload.name.contains(name.as_str());
        let here = !self.scale.all_cores || workload.uses_cores();
        flagged && here && (self.names.is_empty() || self.names.iter().any(named))
    }

    fn rounds(&self, workload: &Workload) -> usize {
        if self.scale.quick { workload.rounds.min(3) } else { workload.rounds }
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` adds this one.
    arguments.retain(|argument| argument != "--bench");
    let given = arguments.clone();
    let scale = Scale::take(&mut arguments);
    let one_core = arguments.iter().any(|argument| argument == ONE_CORE);
    arguments.retain(|argument| argument != ONE_CORE);
    if !scale.all_cores {
        // SAFETY: no other thread is there yet to read the environment.
        unsafe { std::env::set_var("CAREFREE_CARRIERS", "1") };
    }
    if let [child::FLAG, workload, peer] =
        arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        let mut peers = peers(scale).into_iter();
        let peer = peers.find(|(name, _)| *name == peer).and_then(|(_, peer)| peer);
        return child::serve(workload, peer.as_ref(), scale);
    }

    let mut options = Options { scale, million: false, names: Vec::new() };
    for argument in arguments {
        let known = WORKLOADS.iter().any(|workload| workload.name.contains(&argument));
        if argument == "--million" {
            options.million = true;
        } else if known {
            // Naming it asks for it.
            options.million |= argument == "million";
            options.names.push(argument);
        } else {
            let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
            eprintln!(
                "no workload is called {argument:?}; there are {} (and --one-core, --all-cores, \
                 --quick, --cpu, --million)",
                names.join(", ")
            );
            return ExitCode::from(2);
        }
    }
    match (one_core, scale.all_cores) {
        (true, true) => {
            eprintln!("{ONE_CORE} or {ALL_CORES}, not both; without them there are two tables");
            ExitCode::from(2)
        }
        (false, false) => both(&given),
        _ => compare(&options),
    }
}

/// Both tables, each by a process that starts its runtimes for so many cores.
fn both(arguments: &[String]) -> ExitCode {
    for table in [ONE_CORE, ALL_CORES] {
        let mut command = Command::new(myself());
        if table == ALL_CORES {
            // As it was before.
            command.env_remove("CAREFREE_CARRIERS");
        }
        let status = command.arg(table).args(arguments).status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("cannot run this program again: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn compare(options: &Options) -> ExitCode {
    if !WORKLOADS.iter().any(|workload| options.wants(workload)) {
        return ExitCode::SUCCESS;
    }
    let cores = if options.scale.all_cores {
        format!("all {} cores", machine::workers())
    } else {
        match plan::pin_here() {
            Ok(core) => format!("one core ({core})"),
            Err(error) => {
                eprintln!("cannot tie this process to one core: {error}");
                return ExitCode::FAILURE;
            }
        }
    };
    let clock = if options.scale.cpu { "processor time" } else { "time" };
    let processor = env::processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    println!("{cores} of {processor}, medians of {clock}");
    if let Ok(cost) = machine::page_cost() {
        println!("a page of fresh memory, which every cold stack needs: {} ns", cost.as_nanos());
    }
    #[cfg(has_boost)]
    println!("Boost {}", carefree_benches::boost::version());

    let peers = peers(options.scale);
    let mut table = Table::new("").left(["workload", "unit"]);
    for heading in peers.iter().map(|(name, _)| *name).chain(["ours/best", "target", "met"]) {
        table.add(heading, Align::Right);
    }
    let mut notes = Vec::new();
    if let Some(why) = go::missing().filter(|_| options.scale.all_cores) {
        notes.push(format!("{}: skipped: {why}", go::PEER.name));
    }
    for workload in WORKLOADS.iter().filter(|workload| options.wants(workload)) {
        let samples = measure(workload, &peers, options);
        for (number, line) in workload.lines.iter().enumerate() {
            table.rows.push(row(line, number, &peers, &samples, options.scale, &mut notes));
        }
    }
    println!("\n{}", table.text());
    for note in notes {
        println!("{note}");
    }
    ExitCode::SUCCESS
}

/// All samples of a workload, a round of every peer at a time, so that a disturbance of the machine
/// strikes all of them.
fn measure(
    workload: &Workload,
    peers: &[(&'static str, Option<Peer>)],
    options: &Options,
) -> BTreeMap<&'static str, Samples> {
    let mut samples: BTreeMap<&str, Samples> = BTreeMap::new();
    let rounds = options.rounds(workload);
    // The first round finds pools empty and code unmapped.
    let warm_up = usize::from(workload.process == Process::Same);
    for round in 0..warm_up + rounds {
        progress(&format!("{}: {round} of {rounds}", workload.name));
        for (name, peer) in peers {
            let Some(peer) = peer else { continue };
            let able = peer.elsewhere.is_some() || able(workload, peer);
            if workload.only.is_some_and(|only| only != *name) || !able {
                continue;
            }
            if matches!(samples.get(name), Some(Err(_))) {
                continue;
            }
            let sample = match workload.process {
                _ if peer.elsewhere.is_some() => {
                    let sample = peer.elsewhere.and_then(|it| it(workload.name, options.scale));
                    let Some(sample) = sample else { continue };
                    sample
                }
                Process::Same => {
                    (workload.sample)(peer, options.scale).unwrap_or_else(|| Ok(Vec::new()))
                }
                Process::Fresh => {
                    // Ours from a program without the peers: see there.
                    let alone = env!("CARGO_BIN_EXE_carefree-alone");
                    let program = if *name == ours::PEER.name { alone.into() } else { myself() };
                    let environment = workload.environment;
                    child::measure(&program, workload.name, name, options.scale, environment)
                }
            };
            let known = samples.entry(name).or_insert(Ok(Vec::new()));
            match (sample, known) {
                (Ok(_), _) if round < warm_up => {}
                (Ok(figures), Ok(taken)) => taken.push(figures),
                (Ok(_), Err(_)) => {}
                (Err(error), known) => *known = Err(error.to_string()),
            }
        }
    }
    progress("");
    samples
}

/// The path of this program.
fn myself() -> OsString {
    std::env::current_exe().map_or_else(|_| "/proc/self/exe".into(), OsString::from)
}

/// Shows how far the run is, on a terminal.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r{:<60}\r{text}", "");
    }
}

/// Whether the peer has what the workload needs. Known without running it.
fn able(workload: &Workload, peer: &Peer) -> bool {
    match workload.name {
        "coroutine" => peer.coroutine.is_some(),
        "reading" => peer.readers.is_some(),
        "channel" => peer.channel.is_some(),
        "crossbeam" => peer.crossbeam.is_some(),
        "sleepers" => peer.sleepers.is_some(),
        "parked" | "million" => peer.parked.is_some(),
        _ => peer.crowd.is_some(),
    }
}

/// One line of the table.
fn row(
    line: &Line,
    number: usize,
    peers: &[(&'static str, Option<Peer>)],
    samples: &BTreeMap<&'static str, Samples>,
    scale: Scale,
    notes: &mut Vec<String>,
) -> Vec<String> {
    let mut medians = BTreeMap::new();
    let mut cells = vec![line.name.to_owned(), line.unit.to_owned()];
    for (name, peer) in peers {
        let cell = match (peer, samples.get(name)) {
            (None, _) => "not installed".to_owned(),
            (_, None) => "-".to_owned(),
            (_, Some(Err(error))) => {
                // Once, not for each line of the workload.
                if number == 0 {
                    notes.push(format!("{name}, {}: {error}", line.name));
                }
                "fails".to_owned()
            }
            (_, Some(Ok(taken))) => {
                let figures: Vec<f64> = taken.iter().map(|sample| sample[number]).collect();
                if spread(&figures) > 0.1 {
                    let spread = 100.0 * spread(&figures);
                    notes.push(format!(
                        "{name}, {}: noisy, its samples differ by {spread:.0}%",
                        line.name
                    ));
                }
                medians.insert(*name, median(&figures));
                three_digits(median(&figures))
            }
        };
        cells.push(cell);
    }
    let ours = medians.get(ours::PEER.name).copied();
    let best = medians
        .iter()
        .filter(|(name, _)| **name != ours::PEER.name)
        .map(|(_, figure)| *figure)
        .min_by(f64::total_cmp);
    // (A part of the memory may be nothing.)
    let ratio = ours.zip(best).map(|(ours, best)| ours / best).filter(|ratio| ratio.is_finite());
    let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let (target, met) = if !scale.all_cores {
        judge(line.target, ours, &medians)
    } else if line.is_memory() {
        judge_by(None, ours)
    } else {
        judge_by(best, ours)
    };
    cells.extend([ratio, target, met]);
    cells
}

/// The target in words, and whether it is met.
fn judge(target: Target, ours: Option<f64>, medians: &BTreeMap<&str, f64>) -> (String, String) {
    let limit = match target {
        Target::None => None,
        Target::AtMost(limit) => Some(limit),
        Target::Relative(shares) => shares
            .iter()
            .filter_map(|(peer, share)| Some(medians.get(peer)? * share))
            .min_by(f64::total_cmp),
    };
    judge_by(limit, ours)
}

/// The same for a limit of so much.
fn judge_by(limit: Option<f64>, ours: Option<f64>) -> (String, String) {
    let Some(limit) = limit else {
        return ("-".to_owned(), "-".to_owned());
    };
    let met = match ours {
        None => "-".to_owned(),
        Some(ours) if ours <= limit => "yes".to_owned(),
        Some(ours) => format!("no, +{:.0}%", 100.0 * (ours / limit - 1.0)),
    };
    (format!("<= {}", three_digits(limit)), met)
}
