//! Our own program for the protocol of `docs/targets.md`: coroutines, fibers and threads of Rust,
//! measured by the `carefree` program itself.

use std::io::{self, BufRead, Write};

use crate::sample::{Account, Answer, Failure, Round, Warmup};
use crate::sys::{self, Who};
use crate::unit::Unit;

/// Units of a warm-up round, at most.
const WARMUP_UNITS: u64 = 100;

/// The orders a program gets as `key=value`.
struct Orders {
    unit: Unit,
    units: u64,
    switches: u64,
    rounds: u64,
    warmup: u64,
    phases: bool,
}

impl Orders {
    fn parse(arguments: &[String]) -> Result<Orders, Failure> {
        let no = |message: String| Failure { message, advice: None };
        let value = |key: &str| {
            arguments.iter().find_map(|argument| argument.strip_prefix(key)?.strip_prefix('='))
        };
        let number = |key: &str, default: u64| match value(key) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| no(format!("{key} takes a number, not '{text}'")))
            }
        };
        let unit = value("unit").ok_or_else(|| no("the orders name no unit".into()))?;
        Ok(Orders {
            unit: unit.parse().map_err(no)?,
            units: number("units", 1)?,
            switches: number("switches", 1)?,
            rounds: number("rounds", 1)?,
            warmup: number("warmup", 0)?,
            phases: number("phases", 0)? > 0,
        })
    }
}

/// Takes a sample in this process, which is thereby used up, and returns the line to print last.
pub fn take(arguments: &[String]) -> Answer {
    match Orders::parse(arguments).and_then(|orders| attempt(&orders)) {
        Ok(account) => Answer::Sample(Box::new(account)),
        Err(failure) => Answer::Failure(failure),
    }
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
