//! Our own program for the protocol of `docs/targets.md`: coroutines, fibers and threads of Rust,
//! measured by the `carefree` program itself.

use std::io::{self, BufRead, Write};

use carefree::TlsMode;

use crate::answer::{Account, Answer, Failure, Round, Warmup};
use crate::feed;
use crate::fetch;
use crate::serve;
use crate::sys::{self, UsageWho};
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

    /// An order that must be there.
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

    /// The unit ordered, by its name.
    pub(crate) fn unit(self) -> Result<Unit, Failure> {
        self.need("unit")?.parse().map_err(Failure::new)
    }

    /// Stops at a phase, if that was ordered, until the lab has looked.
    pub(crate) fn phase(self, name: &str) -> Result<(), Failure> {
        if self.flag("phases")? {
            stop(name);
        }
        Ok(())
    }

    /// Makes the warm-up rounds that were ordered.
    pub(crate) fn warm_up(
        self,
        mut once: impl FnMut() -> Result<Round, Failure>,
    ) -> Result<Option<Warmup>, Failure> {
        let rounds = self.number("warmup", 0)?;
        let times = (0..rounds).map(|_| Ok(once()?.total_ns()));
        let ns = times.sum::<Result<u64, Failure>>()?;
        Ok((rounds > 0).then_some(Warmup { rounds, ns }))
    }
}

/// Takes a sample in this process, which is thereby used up, and returns the line to print last.
pub fn take(arguments: &[String]) -> Answer {
    let words = Words(arguments);
    let account = refuse_threads(words).and_then(|()| match words.get("workload") {
        Some("feed") => feed::own::take(words),
        Some("fetch") => fetch::own::take(words),
        Some("serve") => serve::own::take(words),
        _ => gated(words),
    });
    match account {
        Ok(account) => Answer::Sample(Box::new(account)),
        Err(failure) => Answer::Failure(failure),
    }
}

/// What is measured as a fiber must be one.
fn refuse_threads(words: Words<'_>) -> Result<(), Failure> {
    let platform = carefree::platform();
    if words.unit() != Ok(Unit::Fiber) || platform.tls != TlsMode::Threads {
        return Ok(());
    }
    Err(Failure {
        message: format!(
            "threads stand for fibers here, and are not measured as such: {}",
            platform.tls_reason
        ),
        advice: Some("`carefree doctor` says what fibers need".into()),
    })
}

/// The workloads in which all units wait for each other at a gate.
fn gated(words: Words<'_>) -> Result<Account, Failure> {
    let unit = words.unit()?;
    let (units, switches) = (words.number("units", 1)?, words.number("switches", 1)?);
    let (rounds, phases) = (words.number("rounds", 1)?, words.flag("phases")?);
    let warmup =
        words.warm_up(|| Ok(unit.run(units.min(WARMUP_UNITS), switches, &mut || ())?.times))?;
    let mut account = Account {
        units,
        switches_asked: units * switches * rounds,
        rounds: Vec::with_capacity(usize::try_from(rounds).unwrap_or(0)),
        warmup,
        ..Account::default()
    };
    words.phase("base")?;
    let before = sys::usage(UsageWho::RUSAGE_SELF);
    for round in 0..rounds {
        let stops = phases && round == 0;
        let mut all_alive = || {
            if stops {
                stop("alive")
            }
        };
        let run = unit.run(units, switches, &mut all_alive)?;
        account.rounds.push(run.times);
        account.switches_made += run.switches_made;
        if stops {
            stop("done");
        }
    }
    let used = sys::usage(UsageWho::RUSAGE_SELF) - before;
    account.voluntary = Some(used.voluntary);
    account.involuntary = Some(used.involuntary);
    account.user_ns = Some(used.user_ns);
    account.system_ns = Some(used.system_ns);
    Ok(account)
}

/// Stops until the lab has looked. Where the lab is gone, it goes on at once.
fn stop(phase: &str) {
    tell(&format!(r#"{{"phase":"{phase}"}}"#));
}

/// Prints a line, and waits until the lab answers it. Where the lab is gone, it goes on at once.
pub(crate) fn tell(line: &str) {
    let mut out = io::stdout().lock();
    let told = writeln!(out, "{line}").and_then(|()| out.flush());
    drop(out);
    if told.is_ok() {
        let _ = io::stdin().lock().read_line(&mut String::new());
    }
}
