//! Which samples to take, and in which order.

use crate::sample::Trial;
use crate::stats::Random;
use crate::sys;
use crate::unit::Unit;
use crate::workload::{Size, Workload};

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The workloads, each once.
    pub workloads: Vec<Workload>,
    /// The units, each once.
    pub units: Vec<Unit>,
    /// Samples to take of each unit and workload.
    pub samples: u32,
    /// How large the workloads are.
    pub size: Size,
    /// How many units each sample has alive, in place of the workload's own number.
    pub crowd: Option<u64>,
    /// Whether every workload stays on one core, and not `switch` alone.
    pub pin: bool,
    /// Fixes the order of the samples and the draws of the bootstrap.
    pub seed: u64,
}

impl Plan {
    /// The samples in the order in which to take them. Each unit and workload has its turn, in
    /// random order, before any has its second: a disturbance that lasts strikes all of them and
    /// not one alone, and whenever the run is broken off, all have about as many samples.
    pub fn trials(&self) -> Vec<Trial> {
        let cores = sys::allowed_cores();
        self.trials_on(&cores)
    }

    fn trials_on(&self, cores: &[usize]) -> Vec<Trial> {
        let mut random = Random::new(self.seed);
        let mut trials = Vec::new();
        for _ in 0..self.samples {
            let from = trials.len();
            for &workload in &self.workloads {
                let pinned = self.pin || workload.is_pinned();
                // The last core: interrupts and whatever else is to be done tend to the first.
                let pin = if pinned { cores.last().copied() } else { None };
                let used = if pin.is_some() { 1 } else { cores.len().max(1) };
                let mut parameters = workload.parameters(self.size, used);
                if let Some(crowd) = self.crowd {
                    parameters.units = crowd;
                }
                trials.extend(self.units.iter().map(|&unit| Trial {
                    unit,
                    workload,
                    parameters,
                    pin,
                    cgroup: None,
                }));
            }
            random.shuffle(&mut trials[from..]);
        }
        trials
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn plan() -> Plan {
        Plan {
            workloads: Workload::ALL.to_vec(),
            units: Unit::ALL.to_vec(),
            samples: 6,
            size: Size::Full,
            crowd: None,
            pin: false,
            seed: 1,
        }
    }

    #[test]
    fn every_round_has_each_unit_and_workload_once_in_an_order_of_its_own() {
        let trials = plan().trials_on(&[0, 1]);
        let kinds = Workload::ALL.len() * Unit::ALL.len();
        assert_eq!(trials.len(), 6 * kinds);
        let rounds: Vec<Vec<_>> = trials
            .chunks(kinds)
            .map(|round| round.iter().map(|trial| (trial.workload, trial.unit)).collect())
            .collect();
        for round in &rounds {
            let mut counts = BTreeMap::new();
            round.iter().for_each(|kind| *counts.entry(kind).or_insert(0) += 1);
            assert!(counts.len() == kinds && counts.values().all(|&count| count == 1));
        }
        assert!(rounds.windows(2).any(|pair| pair[0] != pair[1]), "the order never changed");
    }

    #[test]
    fn the_seed_fixes_the_order() {
        let other = Plan { seed: 2, ..plan() };
        assert_eq!(plan().trials_on(&[0]), plan().trials_on(&[0]));
        assert_ne!(plan().trials_on(&[0]), other.trials_on(&[0]));
    }

    #[test]
    fn switch_stays_on_one_core_and_the_others_do_when_asked() {
        let cores = |pin| {
            let trials = Plan { pin, ..plan() }.trials_on(&[2, 5]);
            trials
                .into_iter()
                .map(|trial| (trial.workload, (trial.pin, trial.parameters.cores)))
                .collect::<BTreeMap<_, _>>()
        };
        let free = cores(false);
        assert_eq!(free[&Workload::Switch], (Some(5), 1));
        assert_eq!(free[&Workload::Alloc], (None, 2));
        assert!(cores(true).values().all(|&place| place == (Some(5), 1)));
    }

    #[test]
    fn a_crowd_of_ones_own_takes_the_place_of_the_workloads() {
        let trials = Plan { crowd: Some(77), ..plan() }.trials_on(&[0]);
        assert!(trials.iter().all(|trial| trial.parameters.units == 77));
    }
}
