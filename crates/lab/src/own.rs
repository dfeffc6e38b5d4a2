//! Our own program for the protocol of `docs/targets.md`: coroutines, fibers and threads of Rust,
//! measured by the `carefree` program itself.

use std::io::{self, BufRead, Write};

use carefree::TlsMode;

use crate::feed;
use crate::fetch;
use crate::sample::{Account, Answer, Failure, Round, Warmup};
use crate::sys::{self, Who};
use crate::unit::Unit;

/// Units of a warm-up round, at most.
const WARMUP_UNITS: u64 = 100;

/// The orders a program gets, as `key=value`.
#[derive(Clone, Copy)]
pub(crate) struct Words<'a>(&'a [String]);

impl<'a> Words<'a> {
    pub(crate) fn get(self, key: &str) -> Option<&'a str> {
        self.0.iter().find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
    }

    /// What must be there.
    pub(crate) fn need(self, key: &str) -> Result<&'a str, Failure> {
        self.get(key).ok_or_else(|| Failure::new(format!("the orders name no {key}")))
    }

    pub(crate) fn number(self, key: &str, default: u64) -> Result<u64, Failure> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Failure::new(format!("{key} takes a number, not '{text}'"))),
        }
    }

    pub(crate) fn flag(self, key: &str) -> Result<bool, Failure> {
        Ok(self.number(key, 0)? > 0)
    }

    /// Stops at a phase, if that was ordered, until the lab has looked.
    pub(crate) fn phase(self, name: &str) -> Result<(), Failure> {
        if self.flag("phases")? {
            stop(name);
        }
        Ok(())
    }
}

/// The orders of the gated workloads.
struct Orders {
    unit: Unit,
    units: u64,
    switches: u64,
    rounds: u64,
    warmup: u64,
    phases: bool,
}

impl Orders {
    fn parse(words: Words<'_>) -> Result<Orders, Failure> {
        Ok(Orders {
            unit: words.need("unit")?.parse().map_err(Failure::new)?,
            units: words.number("units", 1)?,
            switches: words.number("switches", 1)?,
            rounds: words.number("rounds", 1)?,
            warmup: words.number("warmup", 0)?,
            phases: words.flag("phases")?,
        })
    }
}

/// Takes a sample in this process, which is thereby used up, and returns the line to print last.
pub fn take(arguments: &[String]) -> Answer {
    let words = Words(arguments);
    if let Err(failure) = refuse_threads(words) {
        return Answer::Failure(failure);
    }
    let account = match words.get("workload") {
        Some("feed") => feed::own::take(words),
        Some("fetch") => fetch::own::take(words),
        _ => Orders::parse(words).and_then(|orders| attempt(&orders)),
    };
    match account {
        Ok(account) => Answer::Sample(Box::new(account)),
        Err(failure) => Answer::Failure(failure),
    }
}

/// What is measured as a fiber must be one.
fn refuse_threads(words: Words<'_>) -> Result<(), Failure> {
    let asked = words.get("unit").is_some_and(|unit| unit.parse() == Ok(Unit::Fiber));
    if !asked || carefree::platform().tls != TlsMode::Threads {
        return Ok(());
    }
    Err(Failure {
        message: format!(
            "threads stand for fibers here, and are not measured as such: {}",
            carefree::platform().tls_reason
        ),
        advice: Some("`carefree doctor` says what fibers need".into()),
    })
}

fn attempt(orders: &Orders) -> Result<Account, Failure> {
    let &Orders { unit, units, switches, rounds, .. } = orders;
    let warmup = warm_up(orders)?;
    let phase = |name: &str| {
        if orders.phases {
            stop(name);
        }
    };
    phase("base");
    let before = sys::usage(Who::Process);
    let mut times = Vec::with_capacity(usize::try_from(rounds).unwrap_or(0));
    let mut made = 0;
    for round in 0..rounds {
        let mut all_alive = || {
            if round == 0 {
                phase("alive");
            }
        };
        let run = unit.run(units, switches, &mut all_alive)?;
        times.push(run.times);
        made += run.switches_made;
        if round == 0 {
            phase("done");
        }
    }
    let after = sys::usage(Who::Process);
    Ok(Account {
        units,
        switches_asked: units * switches * rounds,
        switches_made: made,
        rounds: times,
        voluntary: Some(after.switches.voluntary - before.switches.voluntary),
        involuntary: Some(after.switches.involuntary - before.switches.involuntary),
        user_ns: Some(after.user_ns - before.user_ns),
        system_ns: Some(after.system_ns - before.system_ns),
        warmup,
        ..Account::default()
    })
}

fn warm_up(orders: &Orders) -> Result<Option<Warmup>, Failure> {
    if orders.warmup == 0 {
        return Ok(None);
    }
    let mut ns = 0;
    for _ in 0..orders.warmup {
        let units = orders.units.min(WARMUP_UNITS);
        let Round { create_ns, run_ns } =
            orders.unit.run(units, orders.switches, &mut || ())?.times;
        ns += create_ns + run_ns;
    }
    Ok(Some(Warmup { rounds: orders.warmup, ns }))
}

/// Stops until the lab has looked. A lab that is gone has nothing to look at: then go on.
fn stop(phase: &str) {
    let mut out = io::stdout().lock();
    let told = writeln!(out, r#"{{"phase":"{phase}"}}"#).and_then(|()| out.flush());
    drop(out);
    if told.is_ok() {
        let _ = io::stdin().lock().read_line(&mut String::new());
    }
}
