//! What else the machine does while samples are taken.

use std::cell::Cell;
use std::fs;

use carefree_workloads::sys::{UsageWho, usage};
use serde::{Deserialize, Serialize};

/// What else the machine did while samples were taken, as shares of all its cores' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Other programs, and the kernel on their behalf.
    pub others: f64,
    /// Time that the host of a virtual machine gave to others.
    pub steal: f64,
}

/// Measures [`Load`] between two moments.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    start: Option<Jiffies>,
    own_ns: u64,
    /// What samples took that are no children of ours, by their own account: those in containers.
    told_ns: Cell<u64>,
}

/// The first line of /proc/stat, in hundredths of a second over all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Jiffies {
    busy: u64,
    steal: u64,
    total: u64,
}

/// The clock of /proc/stat on every Linux architecture.
const JIFFY_NS: u64 = 10_000_000;

impl LoadMeter {
    pub(crate) fn start() -> LoadMeter {
        LoadMeter { start: jiffies(), own_ns: own_ns(), told_ns: Cell::new(0) }
    }

    /// Counts what a sample in a container took as ours: the engine waits for that process, so it is
    /// not among our children.
    pub(crate) fn add(&self, ns: u64) {
        self.told_ns.set(self.told_ns.get() + ns);
    }

    fn ours(&self) -> u64 {
        own_ns() - self.own_ns + self.told_ns.get()
    }

    pub(crate) fn finish(&self) -> Load {
        match (self.start, jiffies()) {
            (Some(start), Some(end)) => load(start, end, self.ours()),
            _ => Load::default(),
        }
    }
}

/// Processor time of this process and of the samples it has waited for.
fn own_ns() -> u64 {
    let (own, samples) = (usage(UsageWho::RUSAGE_SELF), usage(UsageWho::RUSAGE_CHILDREN));
    own.user_ns + own.system_ns + samples.user_ns + samples.system_ns
}

fn jiffies() -> Option<Jiffies> {
    parse_stat(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_stat(stat: &str) -> Option<Jiffies> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, nice, system, idle, waiting) = (next()?, next()?, next()?, next()?, next()?);
    let (irq, softirq, steal) = (next()?, next()?, next().unwrap_or(0));
    let busy = user + nice + system + irq + softirq;
    Some(Jiffies { busy, steal, total: busy + idle + waiting + steal })
}

fn load(start: Jiffies, end: Jiffies, own_ns: u64) -> Load {
    let total = end.total.saturating_sub(start.total);
    // Under half a second the clock of /proc/stat is too coarse to tell anything.
    if total < 50 {
        return Load::default();
    }
    let share = |jiffies: u64| jiffies as f64 / total as f64;
    let busy = end.busy.saturating_sub(start.busy);
    Load {
        others: share(busy.saturating_sub(own_ns / JIFFY_NS)),
        steal: share(end.steal.saturating_sub(start.steal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sample_in_a_container_took_is_not_the_load_of_others() {
        let meter = LoadMeter::start();
        let before = meter.ours();
        meter.add(3_000_000_000);
        assert!(meter.ours() >= before + 3_000_000_000, "{meter:?}");
    }

    #[test]
    fn the_load_of_others_is_what_is_busy_and_not_ours() {
        let stat = "cpu  100 10 50 1000 20 5 5 30 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let start = parse_stat(stat).expect("a line");
        assert_eq!(start, Jiffies { busy: 170, steal: 30, total: 1220 });
        let end = Jiffies { busy: 270, steal: 40, total: 1420 };
        // 60 of the 100 busy hundredths were ours.
        let found = load(start, end, 600_000_000);
        assert!(
            (found.others - 0.2).abs() < 1e-9 && (found.steal - 0.05).abs() < 1e-9,
            "{found:?}"
        );
        let short = Jiffies { busy: 180, steal: 30, total: 1240 };
        assert_eq!(load(start, short, 0), Load::default(), "too short to tell");
    }
}
