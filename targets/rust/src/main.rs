//! Measures tokio's tasks and may's coroutines by the protocol of docs/targets.md.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use may::coroutine::Builder;
use may::sync::SyncFlag;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

const WARMUP_UNITS: u64 = 100;

/// Of the coroutine that runs the program of may's, 512 KiB; its units have may's default.
const STACK_WORDS: usize = 0x10000;

struct Round {
    create_ns: u128,
    run_ns: u128,
    made: u64,
}

/// What the units of a round count in: how many are born, how many switches they made, and the
/// number of the one that yielded last.
#[derive(Default)]
struct Counts {
    born: AtomicU64,
    made: AtomicU64,
    turn: AtomicU64,
}

fn run_tasks(runtime: &Runtime, units: u64, switches: u64, all_alive: &mut dyn FnMut()) -> Round {
    let counts = Arc::new(Counts::default());
    let gate = Arc::new(Semaphore::new(0));
    let crowd = Arc::new(Semaphore::new(0));
    runtime.block_on(async {
        let start = Instant::now();
        let mut tasks = Vec::with_capacity(units as usize);
        for number in 1..=units {
            let (counts, gate, crowd) = (counts.clone(), gate.clone(), crowd.clone());
            tasks.push(tokio::spawn(async move {
                let mut made = u64::from(!gate.is_closed());
                if counts.born.fetch_add(1, Ordering::Relaxed) + 1 == units {
                    crowd.close();
                }
                // Nobody is ever let through: the gate opens by being taken away.
                let _ = gate.acquire().await;
                for _ in 1..switches {
                    counts.turn.store(number, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    made += u64::from(counts.turn.load(Ordering::Relaxed) != number);
                }
                counts.made.fetch_add(made, Ordering::Relaxed);
            }));
        }
        let _ = crowd.acquire().await;
        let create_ns = start.elapsed().as_nanos();
        all_alive();
        let start = Instant::now();
        gate.close();
        for task in tasks {
            task.await.expect("no unit panics");
        }
        let run_ns = start.elapsed().as_nanos();
        Round { create_ns, run_ns, made: counts.made.load(Ordering::Relaxed) }
    })
}

fn run_may(units: u64, switches: u64, all_alive: &mut dyn FnMut()) -> Round {
    let counts = Arc::new(Counts::default());
    let gate = Arc::new(SyncFlag::new());
    let crowd = Arc::new(SyncFlag::new());
    let start = Instant::now();
    let mut all = Vec::with_capacity(units as usize);
    for number in 1..=units {
        let (counts, gate, crowd) = (counts.clone(), gate.clone(), crowd.clone());
        all.push(may::go!(move || {
            let mut made = u64::from(!gate.is_fired());
            if counts.born.fetch_add(1, Ordering::Relaxed) + 1 == units {
                crowd.fire();
            }
            gate.wait();
            for _ in 1..switches {
                counts.turn.store(number, Ordering::Relaxed);
                may::coroutine::yield_now();
                made += u64::from(counts.turn.load(Ordering::Relaxed) != number);
            }
            counts.made.fetch_add(made, Ordering::Relaxed);
        }));
    }
    crowd.wait();
    let create_ns = start.elapsed().as_nanos();
    all_alive();
    let start = Instant::now();
    gate.fire();
    for one in all {
        one.join().expect("no unit panics");
    }
    let run_ns = start.elapsed().as_nanos();
    Round { create_ns, run_ns, made: counts.made.load(Ordering::Relaxed) }
}

fn usage() -> libc::rusage {
    // SAFETY: zeroes are a valid rusage, and it is writable for the length of the call.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    }
}

fn ns(from: libc::timeval, to: libc::timeval) -> i64 {
    (to.tv_sec - from.tv_sec) * 1_000_000_000 + (to.tv_usec - from.tv_usec) * 1_000
}

fn take(orders: &HashMap<&str, &str>) -> Result<String, String> {
    let number = |key: &str, missing: u64| match orders.get(key) {
        None => Ok(missing),
        Some(text) => text.parse().map_err(|_| format!("{key} takes a number, not {text}")),
    };
    let (units, switches) = (number("units", 1)?, number("switches", 1)?);
    let (rounds, warmup) = (number("rounds", 1)?, number("warmup", 0)?);
    let phases = number("phases", 0)? > 0;
    let unit = *orders.get("unit").unwrap_or(&"");
    let runtime = match unit {
        "task" => Some(Runtime::new().map_err(|error| error.to_string())?),
        "may" => None,
        other => return Err(format!("there is no unit '{other}'; the units are task and may")),
    };
    let run = |units: u64, all_alive: &mut dyn FnMut()| match &runtime {
        Some(runtime) => run_tasks(runtime, units, switches, all_alive),
        None => run_may(units, switches, all_alive),
    };
    let stop = |phase: &str| {
        if phases {
            println!(r#"{{"phase":"{phase}"}}"#);
            let _ = io::stdout().flush();
            let _ = io::stdin().lock().read_line(&mut String::new());
        }
    };

    let mut warming = 0;
    for _ in 0..warmup {
        let round = run(units.min(WARMUP_UNITS), &mut || ());
        warming += round.create_ns + round.run_ns;
    }
    stop("base");
    let before = usage();
    let (mut times, mut made) = (Vec::new(), 0);
    for index in 0..rounds {
        let round = run(units, &mut || {
            if index == 0 {
                stop("alive");
            }
        });
        times.push(format!(r#"{{"create_ns":{},"run_ns":{}}}"#, round.create_ns, round.run_ns));
        made += round.made;
        if index == 0 {
            stop("done");
        }
    }
    let after = usage();
    let mut line = format!(
        r#"{{"sample":{{"units":{units},"switches_asked":{},"switches_made":{made},"rounds":[{}]"#,
        units * switches * rounds,
        times.join(","),
    );
    line += &format!(
        r#","voluntary":{},"involuntary":{},"user_ns":{},"system_ns":{}"#,
        after.ru_nvcsw - before.ru_nvcsw,
        after.ru_nivcsw - before.ru_nivcsw,
        ns(before.ru_utime, after.ru_utime),
        ns(before.ru_stime, after.ru_stime),
    );
    if warmup > 0 {
        line += &format!(r#","warmup":{{"rounds":{warmup},"ns":{warming}}}"#);
    }
    line += "}}";
    Ok(line)
}

fn main() -> ExitCode {
    let answer = || {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        take(&arguments.iter().filter_map(|argument| argument.split_once('=')).collect())
    };
    let answer = if std::env::args().any(|argument| argument == "unit=may") {
        // One worker for each core this process may use, as tokio has them.
        if let Ok(cores) = std::thread::available_parallelism() {
            may::config().set_workers(cores.get());
        }
        // A coroutine that another thread wakes waits until those its worker has woken are done,
        // and two that yield are woken by nobody else: so whoever wakes them is a coroutine too.
        let builder = Builder::new().stack_size(STACK_WORDS);
        may::go!(builder, answer).expect("a coroutine").join().expect("no panic")
    } else {
        answer()
    };
    match answer {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            println!(r#"{{"failure":{{"message":"{message}","advice":null}}}}"#);
            ExitCode::FAILURE
        }
    }
}
