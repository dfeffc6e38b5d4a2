//! Which samples to take, and in which order.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use carefree_workloads::sys::{allowed_cores, pin_to};
use carefree_workloads::workload::Workload;

use crate::stats::Random;
use crate::sweep;
use crate::trial::Trial;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to take samples of, each once, in the order in which reports show them.
    pub kinds: Vec<Trial>,
    /// How many samples of each kind there are from earlier runs; none where this is shorter.
    pub had: Vec<u32>,
    /// Samples to take of each kind, at most, with those there are.
    pub samples: u32,
    /// Samples to take of each kind, whatever time they take; one of those that take longer than
    /// a hundredth of the budget, which would leave the others nothing.
    pub least: u32,
    /// How long all of it may take; where it is short, slow kinds get fewer samples.
    pub budget: Option<Duration>,
    /// How long one sample of `feed` may be expected to take; one that would take longer is left
    /// out. Nothing: none is.
    pub most: Option<Duration>,
    /// What samples of `feed` took that earlier runs have had.
    pub known: Vec<(Trial, Duration)>,
    /// Fixes the order of the samples and the draws of the bootstrap.
    pub seed: u64,
}

/// There are about a hundred kinds in a run of everything, and a few of them take most of the time.
const SLOW: f64 = 100.0;

impl Plan {
    /// So many samples of each kind, whatever time they take.
    pub fn new(kinds: Vec<Trial>, samples: u32, seed: u64) -> Plan {
        let (had, known) = (Vec::new(), Vec::new());
        let (budget, most) = (None, None);
        Plan { kinds, had, samples, least: samples, budget, most, known, seed }
    }

    /// The kinds, by number, in the order of round `round`. Each has its turn, in random order,
    /// before any has its second: a disturbance that lasts strikes all of them and not one alone,
    /// and whenever the run is broken off, all have about as many samples.
    pub fn order(&self, round: u32) -> Vec<usize> {
        // A stream for each round: which kinds were left out of one does not change the next.
        let mut random = Random::new(self.seed ^ (u64::from(round) << 32));
        let mut order: Vec<usize> = (0..self.kinds.len()).collect();
        random.shuffle(&mut order);
        if round == 0 {
            // Small meals tell how long large ones will take. (The sort keeps the order of equals.)
            order.sort_by_key(|&kind| sweep::bites(&self.kinds[kind]));
        }
        order
    }

    /// How many samples of each kind fit the budget, given how long one of each takes. All kinds
    /// get the same time, and what the quick ones have left over goes to the slow ones.
    pub fn shares(&self, costs: &[Duration]) -> Vec<u32> {
        let Some(budget) = self.budget else {
            return vec![self.samples; costs.len()];
        };
        let seconds: Vec<f64> = costs.iter().map(|cost| cost.as_secs_f64().max(1e-6)).collect();
        let fitting = |share: f64| {
            let fits = |cost: &f64| {
                // Far below 2^32 where it matters, and saturating where not.
                let count = (share / cost) as u32;
                let is_slow = *cost > budget.as_secs_f64() / SLOW;
                let least = if is_slow { self.least.min(1) } else { self.least };
                count.min(self.samples).max(least.min(self.samples))
            };
            seconds.iter().map(fits).collect::<Vec<u32>>()
        };
        let total = |counts: &[u32]| -> f64 {
            counts.iter().zip(&seconds).map(|(&count, cost)| f64::from(count) * cost).sum()
        };
        // The total grows with the share: halve the interval until it is as good as none.
        let (mut low, mut high) = (0.0, budget.as_secs_f64() * 2.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if total(&fitting(middle)) <= budget.as_secs_f64() {
                low = middle;
            } else {
                high = middle;
            }
        }
        fitting(low)
    }
}

/// The core a workload stays on, if it is to stay on one, and how many it then has.
pub fn place(workload: Workload, pin: bool) -> (Option<usize>, usize) {
    place_on(&allowed_cores(), workload, pin)
}

/// Keeps the calling thread, and every thread it starts from now on, on the core that pinned
/// workloads run on, and returns its number.
///
/// # Errors
/// When the kernel refuses.
pub fn pin_here() -> io::Result<usize> {
    let (core, _) = place_on(&allowed_cores(), Workload::Switch, true);
    let core = core.ok_or_else(|| io::Error::other("this process may run on no core"))?;
    pin_to(core)?;
    Ok(core)
}

/// Has a command run on one core.
pub fn pin_command(command: &mut Command, core: usize) {
    // SAFETY: between fork and exec one system call is made, with memory of its own: nothing is
    // allocated, no lock is taken.
    unsafe { command.pre_exec(move || pin_to(core)) };
}

fn place_on(cores: &[usize], workload: Workload, pin: bool) -> (Option<usize>, usize) {
    // The last core: interrupts and other work tend to be on the first.
    let core = if pin || workload.is_pinned() { cores.last().copied() } else { None };
    (core, if core.is_some() { 1 } else { cores.len().max(1) })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stats::FEWEST;
    use carefree_workloads::role::Role;
    use carefree_workloads::unit::Unit;
    use carefree_workloads::workload::Size;

    pub(crate) fn kind(unit: Unit, workload: Workload) -> Trial {
        Trial {
            runtime: unit.runtime().into(),
            version: unit.version().into(),
            unit: unit.name().into(),
            role: unit.role(),
            kernel: unit.role() == Role::Thread,
            program: String::new(),
            source: String::new(),
            workload,
            parameters: workload.parameters(Size::Quick, 2),
            warmup: 0,
            pin: None,
        }
    }

    pub(crate) fn plan(samples: u32) -> Plan {
        let kinds = Workload::ALL
            .into_iter()
            .flat_map(|workload| Unit::ALL.map(|unit| kind(unit, workload)))
            .collect();
        Plan { least: 1, ..Plan::new(kinds, samples, 1) }
    }

    #[test]
    fn every_round_has_each_kind_once_in_an_order_of_its_own() {
        let plan = plan(6);
        let rounds: Vec<Vec<usize>> = (0..6).map(|round| plan.order(round)).collect();
        for round in &rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..plan.kinds.len()).collect::<Vec<_>>());
        }
        assert!(rounds.windows(2).any(|pair| pair[0] != pair[1]), "the order never changed");
    }

    #[test]
    fn the_seed_fixes_the_order() {
        let other = Plan { seed: 2, ..plan(1) };
        assert_eq!(plan(1).order(3), plan(1).order(3));
        assert_ne!(plan(1).order(3), other.order(3));
    }

    #[test]
    fn switch_stays_on_one_core_and_the_others_do_when_asked() {
        let cores = [2, 5];
        assert_eq!(place_on(&cores, Workload::Switch, false), (Some(5), 1));
        assert_eq!(place_on(&cores, Workload::Alloc, false), (None, 2));
        for workload in Workload::ALL {
            assert_eq!(place_on(&cores, workload, true), (Some(5), 1));
        }
    }

    #[test]
    fn a_pinned_thread_has_one_core() {
        let pinned = std::thread::spawn(|| {
            let core = pin_here().expect("allowed");
            assert_eq!(allowed_cores(), [core]);
            // Pinning again finds the only core left.
            assert_eq!(pin_here().expect("allowed"), core);
        });
        pinned.join().expect("no panic");
    }

    #[test]
    fn a_short_budget_takes_samples_from_the_slow_kinds_first() {
        let seconds = |all: &[u64]| all.iter().map(|&s| Duration::from_secs(s)).collect::<Vec<_>>();
        let plan = Plan { budget: Some(Duration::from_secs(60)), samples: 10, least: 2, ..plan(1) };
        // 10 + 10 of the quick ones leave 40 s, in which two slow ones get 4 samples of 5 s each.
        assert_eq!(plan.shares(&seconds(&[1, 1, 5, 5])), [10, 10, 4, 4]);
        let none = Plan { budget: None, ..plan.clone() };
        assert_eq!(none.shares(&seconds(&[1, 100])), [10, 10]);
        // The least is taken even where the time is not there …
        assert_eq!(plan.shares(&[Duration::from_millis(500); 180]), [2; 180]);
        // … but for those that would leave the others nothing.
        assert_eq!(plan.shares(&seconds(&[100, 100])), [1, 1]);
        assert_eq!(plan.shares(&seconds(&[40, 1, 1])), [1, 10, 10]);
    }

    /// What a sample of each kind took in record/readme, in tenths of a second: about a hundred of
    /// them, of which eight take longer than eleven seconds.
    #[test]
    fn a_run_of_everything_leaves_few_kinds_with_too_few_samples() {
        const SLOW: [u64; 27] = [
            718, 354, 238, 212, 185, 142, 121, 84, 80, 73, 62, 62, 62, 57, 48, 46, 43, 34, 34, 31,
            29, 29, 29, 28, 23, 21, 21,
        ];
        let mut costs = SLOW.to_vec();
        // The others, and each process's start.
        costs.extend([13; 20].into_iter().chain([6; 66]));
        let costs: Vec<Duration> =
            costs.into_iter().map(|t| Duration::from_millis(t * 100)).collect();
        let budget = Duration::from_secs(19 * 60);
        let plan = Plan { budget: Some(budget), samples: 11, least: FEWEST, ..plan(1) };
        let shares = plan.shares(&costs);
        let all: f64 =
            shares.iter().zip(&costs).map(|(&n, cost)| f64::from(n) * cost.as_secs_f64()).sum();
        assert!(all <= 1.02 * budget.as_secs_f64(), "{all} s");
        let few = shares.iter().filter(|&&share| share < FEWEST).count();
        assert!(few <= 8, "{shares:?}");
        assert!(shares.iter().all(|&share| share >= 1), "{shares:?}");
    }
}
