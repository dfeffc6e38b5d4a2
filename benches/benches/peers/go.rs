//! Go: goroutines, in a program of their own that is built here and measures itself.

use carefree_benches::machine;
use carefree_benches::peer::Peer;
use carefree_benches::sample::READERS;
use carefree_benches::scale::Scale;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) const PEER: Peer = Peer {
    name: "Go",
    fewer: 1,
    coroutine: None,
    crowd: None,
    sleepers: None,
    parked: None,
    readers: None,
    channel: None,
    crossbeam: None,
    elsewhere: Some(sample),
};

/// Why there is no program.
pub(crate) fn missing() -> Option<&'static str> {
    program().as_ref().err().map(String::as_str)
}

/// The program, built at first use; or why there is none.
fn program() -> &'static Result<PathBuf, String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-units");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg("units.go")
            .current_dir(folder)
            // What the environment says of modules and toolchains is not for one file.
            .envs([("GO111MODULE", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", "")])
            .output();
        match built {
            Ok(output) if output.status.success() => Ok(program),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("go does not build its program: {}", said.trim()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("go is not installed".to_owned())
            }
            Err(error) => Err(format!("go cannot be run: {error}")),
        }
    })
}

/// The program's answer: nanoseconds, processor time, and the others.
fn ask(words: &[&str], numbers: &[u64]) -> io::Result<Vec<f64>> {
    let program = program().as_ref().map_err(|why| io::Error::other(why.as_str()))?;
    let output = Command::new(program)
        .args(words)
        .args(numbers.iter().map(u64::to_string))
        .env("GOMAXPROCS", machine::workers().to_string())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Result<Vec<f64>, _> = text.split_whitespace().map(str::parse).collect();
    match figures {
        Ok(figures) if output.status.success() => Ok(figures),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("it says nothing");
            Err(io::Error::other(format!("{}: {line}", output.status)))
        }
    }
}

fn sample(workload: &str, scale: Scale) -> Option<io::Result<Vec<f64>>> {
    let (crowd, sleepers, parked) = (scale.crowd(), scale.sleepers() as u64, scale.parked() as u64);
    // A crowd's time by so many of the unit that the row has.
    let crowd_of = |how, units, yields, by: f64| {
        let taken = ask(&["crowd", how], &[units, yields]);
        taken.map(|taken| vec![taken[usize::from(scale.cpu)] / by])
    };
    let memory = |words, units| {
        let grown = ask(words, &[units]);
        grown.map(|parts| {
            parts.iter().map(|bytes| bytes / (1024.0 * units as f64)).collect::<Vec<_>>()
        })
    };
    Some(match workload {
        "yield" => crowd_of("warm", 2, scale.yields(), (2 * scale.yields()) as f64),
        "channel" => ask(&["channel"], &[scale.hand_overs()])
            .map(|taken| vec![taken[usize::from(scale.cpu)] / (2 * scale.hand_overs()) as f64]),
        "warm" => crowd_of("warm", crowd, 2, crowd as f64),
        "cold" => crowd_of("cold", crowd, 2, crowd as f64),
        "throughput" => crowd_of("warm", 1_000, 100, 1e6),
        "sleepers" => ask(&["sleepers"], &[sleepers])
            .map(|taken| taken[..2].iter().map(|nanos| nanos / 1e6).collect()),
        "cold-sleepers" => {
            ask(&["sleepers", "cold"], &[sleepers]).map(|taken| vec![taken[1] / sleepers as f64])
        }
        "parked" => memory(&["parked"], parked),
        "reading" => memory(&["reading"], READERS as u64).map(|parts| parts[..1].to_vec()),
        _ => return None,
    })
}
