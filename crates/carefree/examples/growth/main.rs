//! How cost grows with the number of fibers: time and memory of each, from a hundred to a million.
//!
//!     cargo run --release -p carefree --example growth [-- OPTIONS] [ROW ...]
//!
//!     --format table|json    what is printed (a Markdown table unless told)
//!     --draw FILE.svg        also draws the curves
//!     --most N               no crowd larger than N (a million unless told)
//!     --count                also instructions and misses of caches, by valgrind's cachegrind (not
//!                           over io_uring)
//!     --check                ends with 1 if a row has no figure, unless the machine has no io_uring
//!
//! Each figure is of a process of its own, with one carrier: the median of several for small crowds. Time
//! is processor time of the whole process, which other programs disturb least. A row stops, and says
//! why, where the machine's limits or the time that it would take end it.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use carefree::spawn;

mod crowd;
mod draw;
mod limit;

use crowd::{Figures, ROWS, Row};

/// Crowds, unless a limit is in the way.
const SIZES: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// Under cachegrind, which is slower by far.
const COUNTED: [usize; 3] = [100, 1_000, 10_000];
/// A crowd is not begun if a tenth of it took a twentieth of this.
const PATIENCE: Duration = Duration::from_secs(90);

/// What is asked for on the command line.
struct Options {
    json: bool,
    draw: Option<String>,
    most: usize,
    count: bool,
    check: bool,
    rows: Vec<String>,
}

/// A row's figures by the size of the crowd, and why there are no more.
pub(crate) struct Curve {
    pub(crate) row: &'static Row,
    pub(crate) points: Vec<(usize, Figures)>,
    /// By cachegrind: instructions, misses of the first cache, and of the last.
    pub(crate) counts: Vec<(usize, [f64; 3])>,
    pub(crate) stopped: Option<String>,
    /// Whether this machine cannot have such a row.
    skipped: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["crowd", name, size] = words[..] {
        return one(name, size);
    }
    let options = match options(arguments) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!(
                "growth: {wrong}\nusage: growth [--format table|json] [--draw FILE.svg] [--most N] [--count] \
                 [--check] [ROW ...]\nrows: {}",
                ROWS.map(|row| row.name).join(", ")
            );
            return ExitCode::from(2);
        }
    };
    let asked = |row: &&Row| options.rows.is_empty() || options.rows.iter().any(|r| r == row.name);
    let curves: Vec<Curve> = ROWS.iter().filter(asked).map(|row| measure(row, &options)).collect();
    match options.json {
        true => json(&curves),
        false => table(&curves),
    }
    let drawn =
        options.draw.as_ref().map(|path| (path, std::fs::write(path, draw::picture(&curves))));
    if let Some((path, Err(error))) = drawn {
        eprintln!("growth: {path}: {error}");
        return ExitCode::FAILURE;
    }
    let missed: Vec<&str> =
        curves.iter().filter(|c| c.points.is_empty() && !c.skipped).map(|c| c.row.name).collect();
    if options.check && !missed.is_empty() {
        eprintln!("growth: nothing was measured of: {}", missed.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn options(arguments: Vec<String>) -> Result<Options, String> {
    let mut options = Options {
        json: false,
        draw: None,
        most: SIZES[SIZES.len() - 1],
        count: false,
        check: false,
        rows: Vec::new(),
    };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &argument[..] {
            "--format" => {
                options.json = match &value()?[..] {
                    "table" => false,
                    "json" => true,
                    other => return Err(format!("no format is named {other}")),
                }
            }
            "--draw" => options.draw = Some(value()?),
            "--most" => {
                let text = value()?;
                options.most = text.parse().map_err(|_| format!("{text} is no number"))?;
            }
            "--count" => options.count = true,
            "--check" => options.check = true,
            name if ROWS.iter().any(|row| row.name == name) => options.rows.push(argument),
            other => return Err(format!("there is no row or option {other}")),
        }
    }
    Ok(options)
}

/// In a process of its own: one crowd.
fn one(name: &str, size: &str) -> ExitCode {
    let (row, size) = (ROWS.iter().find(|row| row.name == name), size.parse());
    let (Some(row), Ok(size)) = (row, size) else { return ExitCode::from(2) };
    limit::raise_descriptors();
    let made = spawn(move || crowd::run(row, size)).join();
    match made {
        Ok(Ok(figures)) => {
            println!("{}", figures.line());
            // Memory goes with the process.
            std::process::exit(0)
        }
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// This program, for one crowd; the words before it run it.
fn command(words: &[&str], row: &Row, size: usize) -> Command {
    let me = std::env::current_exe().expect("this program has a name");
    let mut command = match words {
        [] => Command::new(me),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(me);
            command
        }
    };
    command.args(["crowd", row.name, &size.to_string()]).env("CAREFREE_CARRIERS", "1");
    if let Some(reactor) = row.reactor {
        command.env("CAREFREE_REACTOR", reactor);
    }
    command
}

fn measure(row: &'static Row, options: &Options) -> Curve {
    let mut curve =
        Curve { row, points: Vec::new(), counts: Vec::new(), stopped: None, skipped: false };
    let platform = carefree::platform();
    if row.reactor == Some("uring") && platform.reactor != Some(carefree::ReactorKind::Uring) {
        curve.stopped = Some(format!("io_uring is not used here: {}", platform.reactor_reason));
        curve.skipped = true;
        return curve;
    }
    let mut sizes = SIZES.to_vec();
    sizes.retain(|&size| size <= options.most);
    if let Some(room) = limit::descriptors().checked_div(row.descriptors) {
        if let Some(place) = sizes.iter().position(|&size| size > room) {
            sizes.truncate(place);
            sizes.push(room);
            curve.stopped = Some(format!(
                "{room} take all file descriptors: RLIMIT_NOFILE (ulimit -Hn, and fs.nr_open above it)"
            ));
        }
    }
    let mut last = (0, Duration::ZERO);
    for size in sizes {
        let stop = limit::memory(size as u64 * row.bytes).or_else(|| {
            let expected = last.1 * (size / last.0.max(1)) as u32 * 2;
            (expected > PATIENCE).then(|| {
                format!(
                    "{} took {:.1} s, so this would take too long",
                    last.0,
                    last.1.as_secs_f64()
                )
            })
        });
        if let Some(stop) = stop {
            curve.stopped = Some(format!("not {size}: {stop}"));
            break;
        }
        let begun = Instant::now();
        let times = (100_000 / size).clamp(1, 3);
        let mut all = Vec::new();
        for _ in 0..times {
            let output = command(&[], row, size).output().expect("this program starts");
            match Figures::read(&String::from_utf8_lossy(&output.stdout)) {
                Some(figures) => all.push(figures),
                None => {
                    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                    curve.stopped = Some(format!("not {size}: {text}"));
                    return curve;
                }
            }
        }
        last = (size, begun.elapsed() / times as u32);
        curve.points.push((size, Figures::median(&all)));
        // There is no io_uring under valgrind.
        if options.count && row.reactor != Some("uring") && COUNTED.contains(&size) {
            curve.counts.extend(count(row, size).map(|counts| (size, counts)));
        }
    }
    curve
}

/// What cachegrind counts of a crowd, for each unit: of the whole process, less one of a single unit.
fn count(row: &Row, size: usize) -> Option<[f64; 3]> {
    let [all, one] = [size, 1].map(|size| cachegrind(row, size));
    let (all, one) = (all?, one?);
    Some([0, 1, 2].map(|i| (all[i] - one[i]) / (size - 1) as f64))
}

fn cachegrind(row: &Row, size: usize) -> Option<[f64; 3]> {
    let words =
        ["valgrind", "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"];
    let mut command = command(&words, row, size);
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    // "==1== D1  misses:         35,541  ( 27,158 rd + …"
    let number = |what: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.contains(what))?;
        let number = line.split_once(what)?.1.trim_start().split(' ').next()?;
        number.replace(',', "").parse().ok()
    };
    Some([
        number("I   refs:").or_else(|| number("I refs:"))?,
        number("D1  misses:")?,
        number("LLd misses:")?,
    ])
}

/// A number with spaces for its thousands' commas.
pub(crate) fn spelled(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn table(curves: &[Curve]) {
    println!(
        "| row | crowd | begin, ns | again | end, ns | again | in the kernel | bytes each | faults each | mappings |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for curve in curves {
        for (size, f) in &curve.points {
            println!(
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0}% | {:.0} | {:.2} | {:.0} |",
                curve.row.name,
                spelled(*size),
                f.begin,
                f.begin_again,
                f.end,
                f.end_again,
                100.0 * f.kernel,
                f.bytes,
                f.faults,
                f.mappings
            );
        }
    }
    if curves.iter().any(|curve| !curve.counts.is_empty()) {
        println!("\n| row | crowd | instructions each | misses of the first cache | of the last |");
        println!("|---|--:|--:|--:|--:|");
    }
    for curve in curves {
        for (size, [instructions, first, last]) in &curve.counts {
            let (name, size) = (curve.row.name, spelled(*size));
            println!("| {name} | {size} | {instructions:.0} | {first:.1} | {last:.1} |");
        }
    }
    println!();
    for curve in curves {
        println!("- `{}`: {}.", curve.row.name, curve.row.what);
        if let Some(why) = &curve.stopped {
            println!("  Stopped: {why}.");
        }
    }
}

fn json(curves: &[Curve]) {
    println!("[");
    for (at, curve) in curves.iter().enumerate() {
        let points: Vec<String> = curve
            .points
            .iter()
            .map(|(size, f)| {
                let counts = curve.counts.iter().find(|(counted, _)| counted == size);
                let counts = counts.map_or(String::new(), |(_, [i, first, last])| {
                    format!(r#", "instructions": {i:.1}, "misses_first": {first:.2}, "misses_last": {last:.2}"#)
                });
                format!(r#"{{"crowd": {size}, {}{counts}}}"#, f.json())
            })
            .collect();
        println!(
            r#"  {{"row": "{}", "stopped": {}, "points": [{}{}]}}{}"#,
            curve.row.name,
            curve.stopped.as_ref().map_or("null".to_owned(), |why| format!("{why:?}")),
            points.iter().map(|point| format!("\n    {point}")).collect::<Vec<_>>().join(","),
            if points.is_empty() { "" } else { "\n  " },
            if at + 1 < curves.len() { "," } else { "" }
        );
    }
    println!("]");
}
