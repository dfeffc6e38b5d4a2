//! Measures tokio's tasks and may's coroutines by the protocol of docs/targets.md.

mod counting;
mod feed;
mod fetch;
mod gated;
mod may_client;
mod serve;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use tokio::runtime::Runtime;

const WARMUP_UNITS: u64 = 100;

/// Of the coroutine that runs the program of may's, 512 KiB; its units have may's default.
const STACK_WORDS: usize = 0x10000;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// What a round took, and the switches its units made.
#[derive(Clone, Copy, Default)]
pub struct Round {
    pub create_ns: u128,
    pub run_ns: u128,
    pub made: u64,
}

/// The orders of a sample.
pub struct Orders(HashMap<String, String>);

impl Orders {
    pub fn number(&self, key: &str, missing: u64) -> Result<u64, String> {
        match self.0.get(key) {
            None => Ok(missing),
            Some(text) => text.parse().map_err(|_| format!("{key} takes a number, not {text}")),
        }
    }

    pub fn is_set(&self, key: &str) -> Result<bool, String> {
        Ok(self.number(key, 0)? > 0)
    }

    pub fn word(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Stops where the lab wants to look at the process.
    pub fn phase(&self, phase: &str) {
        if self.word("phases") == "1" {
            tell(&format!(r#"{{"phase":"{phase}"}}"#));
        }
    }
}

/// Prints a line, and waits until the lab answers it.
pub fn tell(line: &str) {
    println!("{line}");
    let _ = io::stdout().flush();
    let _ = io::stdin().lock().read_line(&mut String::new());
}

/// What a sample tells beside what the kernel counted.
#[derive(Default)]
pub struct Account {
    pub asked: u64,
    pub rounds: Vec<Round>,
    /// Rounds before those that count, and how long they took together.
    pub warmup: Option<(u64, u128)>,
    pub more: BTreeMap<&'static str, u64>,
    pub figures: BTreeMap<&'static str, u64>,
    /// Of the rounds, by the process's own count.
    pub usage: Usage,
}

/// What the process has used: switches of the kernel's, and time.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    voluntary: i64,
    involuntary: i64,
    user_ns: i64,
    system_ns: i64,
}

impl Usage {
    pub fn now() -> Usage {
        // SAFETY: zeroes are a valid rusage, and it is writable for the length of the call.
        let usage = unsafe {
            let mut usage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let ns = |time: libc::timeval| time.tv_sec * 1_000_000_000 + time.tv_usec * 1_000;
        Usage {
            voluntary: usage.ru_nvcsw,
            involuntary: usage.ru_nivcsw,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
        }
    }

    /// What was used since then.
    pub fn since(then: Usage) -> Usage {
        let now = Usage::now();
        Usage {
            voluntary: now.voluntary - then.voluntary,
            involuntary: now.involuntary - then.involuntary,
            user_ns: now.user_ns - then.user_ns,
            system_ns: now.system_ns - then.system_ns,
        }
    }
}

impl Account {
    fn line(&self, units: u64) -> String {
        let rounds: Vec<String> = self
            .rounds
            .iter()
            .map(|round| {
                format!(r#"{{"create_ns":{},"run_ns":{}}}"#, round.create_ns, round.run_ns)
            })
            .collect();
        let made: u64 = self.rounds.iter().map(|round| round.made).sum();
        let Usage { voluntary, involuntary, user_ns, system_ns } = self.usage;
        let mut line = format!(
            r#"{{"sample":{{"units":{units},"switches_asked":{},"switches_made":{made},"rounds":[{}],"voluntary":{voluntary},"involuntary":{involuntary},"user_ns":{user_ns},"system_ns":{system_ns}"#,
            self.asked,
            rounds.join(","),
        );
        if let Some((rounds, ns)) = self.warmup {
            line += &format!(r#","warmup":{{"rounds":{rounds},"ns":{ns}}}"#);
        }
        let entries = |map: &BTreeMap<&str, u64>| {
            map.iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect::<Vec<_>>()
        };
        for entry in entries(&self.more) {
            line += &format!(",{entry}");
        }
        if !self.figures.is_empty() {
            line += &format!(r#","figures":{{{}}}"#, entries(&self.figures).join(","));
        }
        line + "}}"
    }
}

/// What the sample runs on: a runtime of tokio's, or may, which has one for the process.
fn take_gated(orders: &Orders, runtime: Option<&Runtime>) -> Result<Account, String> {
    let (units, switches) = (orders.number("units", 1)?, orders.number("switches", 1)?);
    let (rounds, warmup) = (orders.number("rounds", 1)?, orders.number("warmup", 0)?);
    let run = |units: u64, all_alive: &mut dyn FnMut()| match runtime {
        Some(runtime) => gated::run_tasks(runtime, units, switches, all_alive),
        None => gated::run_may(units, switches, all_alive),
    };
    let mut account = Account { asked: units * switches * rounds, ..Account::default() };
    let mut warming = 0;
    for _ in 0..warmup {
        let round = run(units.min(WARMUP_UNITS), &mut || ());
        warming += round.create_ns + round.run_ns;
    }
    account.warmup = (warmup > 0).then_some((warmup, warming));
    orders.phase("base");
    let before = Usage::now();
    for index in 0..rounds {
        account.rounds.push(run(units, &mut || {
            if index == 0 {
                orders.phase("alive");
            }
        }));
        if index == 0 {
            orders.phase("done");
        }
    }
    account.usage = Usage::since(before);
    Ok(account)
}

fn take(orders: &Orders) -> Result<String, String> {
    let unit = orders.word("unit");
    let account = match (orders.word("workload"), unit) {
        ("feed", "task" | "may") => feed::take(orders),
        ("fetch", "task" | "may" | "sequential") => fetch::take(orders),
        ("serve", "task" | "may") => serve::take(orders),
        (_, "task") => {
            let runtime = Runtime::new().map_err(|error| error.to_string())?;
            take_gated(orders, Some(&runtime))
        }
        (_, "may") => take_gated(orders, None),
        (_, other) => Err(format!("there is no unit '{other}'; the units are task and may")),
    }?;
    Ok(account.line(orders.number("units", 1)?))
}

/// Runs the program of may's: as a coroutine, with so many threads for it.
fn as_coroutine<T: Send + 'static>(threads: usize, run: impl FnOnce() -> T + Send + 'static) -> T {
    may::config().set_workers(threads);
    // A coroutine that another thread wakes waits until those its worker has woken are done, and
    // two that yield wake only each other. So what wakes them first is a coroutine, too.
    let builder = may::coroutine::Builder::new().stack_size(STACK_WORDS);
    may::go!(builder, run).expect("a coroutine").join().expect("no panic")
}

/// How many threads run coroutines.
pub fn threads_for(orders: &Orders) -> usize {
    let workers = orders.number("workers", 2).unwrap_or(2).max(1) as usize;
    match (orders.word("workload"), orders.word("how")) {
        ("feed", "hybrid") => workers,
        ("feed", _) => 1,
        // One for each core this process may use, as tokio has them.
        _ => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
    }
}

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1);
    let orders = Orders(
        arguments
            .filter_map(|argument| {
                let (key, value) = argument.split_once('=')?;
                Some((key.to_owned(), value.to_owned()))
            })
            .collect(),
    );
    let answer = match orders.word("unit") {
        // A server's main thread waits for the lab, which would keep a coroutine's thread.
        "may" if orders.word("workload") != "serve" => as_coroutine(threads_for(&orders), move || take(&orders)),
        _ => take(&orders),
    };
    match answer {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            let message = message.replace('\\', "\\\\").replace('"', "\\\"");
            println!(r#"{{"failure":{{"message":"{message}","advice":null}}}}"#);
            ExitCode::FAILURE
        }
    }
}
