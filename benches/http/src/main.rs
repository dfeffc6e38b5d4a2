//! `cargo run --release` in this folder: HTTP servers, each on one core, under the same load from
//! another.
//!
//! The server on fibers and the one on threads are the same file, `examples/http_server.rs`. Rounds
//! alternate over the servers, so that a disturbance of the machine strikes all of them. The table
//! shows medians, and the processor time of a request as a ratio to hyper's.

mod load;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use carefree_workloads::limits;
use carefree_lab::report::table::Table;
use carefree_lab::stats::median;
use clap::Parser;

use load::Figures;

/// HTTP servers on fibers, threads and tasks, under the same load.
#[derive(Debug, Parser)]
struct Args {
    /// Connections kept alive, each with one request under way.
    #[arg(long, value_delimiter = ',', default_value = "64,1000")]
    connections: Vec<usize>,
    /// Seconds of load in each round.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Rounds over all servers.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only servers whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// A server to measure.
struct Server {
    name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

impl Server {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments).envs(self.environment.iter().copied());
        command
    }
}

const HYPER: &str = "hyper on tokio";

fn main() -> ExitCode {
    let args = Args::parse();
    if Command::new("wrk").arg("-v").output().is_err() {
        eprintln!("http-bench: wrk is not installed; Debian's package is called wrk");
        return ExitCode::from(2);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores < 2 {
        eprintln!("http-bench: needs two processors, one for the server and one for the load");
        return ExitCode::from(2);
    }
    if !build_servers() {
        eprintln!("http-bench: the servers could not be built; cargo said why above");
        return ExitCode::from(2);
    }
    // A connection takes a descriptor of `wrk` and one of the server.
    let most = args.connections.iter().max().copied().unwrap_or(0);
    if let Err(error) = limits::raise_open_files(most as u64 + 100) {
        eprintln!("http-bench: {error}");
        return ExitCode::from(2);
    }
    let servers: Vec<Server> = servers()
        .into_iter()
        .filter(|s| args.only.is_empty() || args.only.iter().any(|part| s.name.contains(part)))
        .collect();
    if servers.is_empty() {
        eprintln!("http-bench: no server's name contains one of: {}", args.only.join(", "));
        return ExitCode::from(2);
    }
    let time = Duration::from_secs(args.seconds);
    let mut all_answered = true;
    for &connections in &args.connections {
        let mut samples: Vec<Vec<Figures>> = servers.iter().map(|_| Vec::new()).collect();
        for round in 0..args.rounds {
            for (server, samples) in servers.iter().zip(&mut samples) {
                eprint!("\r\x1b[K{connections} connections, round {}: {}", round + 1, server.name);
                match load::measure(&mut server.command(), 0, 1, connections, time) {
                    Ok(figures) => samples.push(figures),
                    Err(error) => {
                        all_answered = false;
                        eprintln!("\r\x1b[K{}: {error}", server.name);
                    }
                }
            }
        }
        eprint!("\r\x1b[K");
        show(connections, &servers, &samples);
    }
    if all_answered { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds the programs of all servers: `cargo run` builds this one alone.
fn build_servers() -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--quiet", "--bins", "--manifest-path"]).arg(manifest);
    build.status().is_ok_and(|status| status.success())
}

/// The servers that are there, ours first.
fn servers() -> Vec<Server> {
    let here = std::env::current_exe().expect("a program knows where it is");
    let beside = |name: &str| here.with_file_name(name);
    let one_carrier = &[("CAREFREE_CARRIERS", "1")];
    let mut servers = vec![
        Server {
            name: "carefree fibers",
            program: beside("serve-carefree"),
            arguments: &["--on", "fibers", "--listen", "127.0.0.1:0"],
            environment: one_carrier,
        },
        Server {
            name: "std threads",
            program: beside("serve-carefree"),
            arguments: &["--on", "threads", "--listen", "127.0.0.1:0"],
            environment: &[],
        },
        Server { name: HYPER, program: beside("serve-hyper"), arguments: &[], environment: &[] },
        Server {
            name: "may_minihttp",
            program: beside("serve-may"),
            arguments: &[],
            environment: &[],
        },
    ];
    servers.push(Server {
        name: "bare epoll loop",
        program: beside("serve-floor"),
        arguments: &[],
        environment: &[],
    });
    match build_go(&beside("serve-go")) {
        Some(program) => servers.push(Server {
            name: "Go net/http",
            program,
            arguments: &[],
            environment: &[("GOMAXPROCS", "1")],
        }),
        None => eprintln!("skipped: go is not installed"),
    }
    servers
}

fn build_go(program: &Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/go");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(program)
        .arg(".")
        .current_dir(source)
        .stdout(Stdio::null())
        .status();
    built.is_ok_and(|status| status.success()).then(|| program.to_owned())
}

fn show(connections: usize, servers: &[Server], samples: &[Vec<Figures>]) {
    let of = |samples: &[Figures], figure: fn(&Figures) -> f64| {
        let figures: Vec<f64> = samples.iter().map(figure).collect();
        (!figures.is_empty()).then(|| median(&figures))
    };
    let cpu = |samples: &[Figures]| of(samples, |f| f.cpu.as_secs_f64());
    let hyper = servers.iter().position(|s| s.name == HYPER).and_then(|at| cpu(&samples[at]));
    let mut table =
        Table::new("").left(["server"]).right(["requests/s", "CPU/request", "to hyper", "p99"]);
    for (server, samples) in servers.iter().zip(samples) {
        let mut row = vec![server.name.to_owned()];
        match cpu(samples) {
            None => row.extend(["failed", "-", "-", "-"].map(str::to_owned)),
            Some(cpu) => row.extend([
                format!("{:.0}", of(samples, |f| f.rate).unwrap_or(0.0)),
                format!("{:.2} us", cpu * 1e6),
                hyper.map_or("-".to_owned(), |hyper| format!("{:.2}", cpu / hyper)),
                format!("{:.1} ms", of(samples, |f| f.p99.as_secs_f64() * 1e3).unwrap_or(0.0)),
            ]),
        }
        table.rows.push(row);
    }
    println!("{connections} connections\n\n{}", table.text());
}
