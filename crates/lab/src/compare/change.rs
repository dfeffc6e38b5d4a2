//! How two figures differ, and whether chance may have done it.

use crate::metric::Quantity;
use crate::number;
use crate::record::{Measurement, fingerprint};
use crate::stats::{Random, mann_whitney, ratio};

/// Below this chance, the Mann-Whitney test calls a difference one.
const CHANCE: f64 = 0.05;

/// How a new figure stands to an old one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The new median by the old one.
    pub ratio: f64,
    /// The ratio's 95% interval, where both sides have samples.
    pub interval: Option<(f64, f64)>,
    /// The chance that the Mann-Whitney test gives to samples as far apart from one distribution.
    pub p: Option<f64>,
    /// What this comes to.
    pub verdict: Verdict,
}

/// What a change comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Better than chance explains.
    Better,
    /// Worse than chance explains.
    Worse,
    /// The samples do not show a difference.
    NoneShown,
    /// One side has no samples, as published figures have none: nothing tells chance from change.
    Untested,
}

/// Whether these numbers of samples could show a difference at all: of all ways to deal them to the
/// two sides, the two most extreme must be rare enough. Three and three can be dealt in 20 ways.
pub(super) fn could_tell(old: usize, new: usize) -> bool {
    // Ways to choose the old ones among all, up to where it is enough.
    let (all, fewer) = (old + new, old.min(new));
    if fewer < 2 {
        return false;
    }
    let mut ways = 1.0;
    for taken in 0..fewer {
        ways *= (all - taken) as f64 / (taken + 1) as f64;
    }
    2.0 / ways < CHANCE
}

impl Verdict {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoneShown => "no difference shown",
            Verdict::Untested => "untested",
        }
    }
}

impl Change {
    /// Compares one figure. The draws are the same for the same samples, so that a comparison
    /// done again says the same.
    pub fn new(old: &Measurement, new: &Measurement) -> Change {
        let plain = new.median / old.median;
        let untested = Change { ratio: plain, interval: None, p: None, verdict: Verdict::Untested };
        match old.samples.len().min(new.samples.len()) {
            0 => return untested,
            // One sample says nothing of how far chance moves the next.
            1 => return Change { verdict: Verdict::NoneShown, ..untested },
            _ => {}
        }
        let name = format!("{} {}", old.subject, old.metric);
        let seed = u64::from_str_radix(&fingerprint(name.as_bytes()), 16).unwrap_or(0);
        let p = mann_whitney(&old.samples, &new.samples).map(|found| found.p);
        let found = ratio(&old.samples, &new.samples, &mut Random::new(seed));
        let interval = found.map(|ratio| (ratio.low, ratio.high));
        let apart = interval.is_some_and(|(low, high)| high < 1.0 || 1.0 < low);
        let verdict = if !apart || p.is_none_or(|p| p >= CHANCE) {
            Verdict::NoneShown
        } else if (plain > 1.0) == new.quantity().more_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        };
        Change { interval, p, verdict, ..untested }
    }

    /// The same verdict, without the interval where it is not needed: of thousands of figures, the draws
    /// take minutes.
    pub(crate) fn judged(old: &Measurement, new: &Measurement) -> Change {
        let ends = |m: &Measurement| {
            let (low, high) = (f64::INFINITY, 0.0_f64);
            m.samples.iter().fold((low, high), |(low, high), &v| (v.min(low), v.max(high)))
        };
        let p = mann_whitney(&old.samples, &new.samples).map(|found| found.p);
        let ((old_low, old_high), (new_low, new_high)) = (ends(old), ends(new));
        let many = old.samples.len().min(new.samples.len()) > 1;
        // Whatever is drawn of samples that do not overlap, its medians' ratio is on the same side of 1.
        let apart = old_low.min(new_low) > 0.0 && (old_high < new_low || new_high < old_low);
        let change =
            |verdict| Change { ratio: new.median / old.median, interval: None, p, verdict };
        match p {
            _ if !many => Change::new(old, new),
            Some(p) if p < CHANCE && apart => {
                match (new.median > old.median) == new.quantity().more_is_better() {
                    true => change(Verdict::Better),
                    false => change(Verdict::Worse),
                }
            }
            Some(p) if p < CHANCE => Change::new(old, new),
            _ => change(Verdict::NoneShown),
        }
    }

    /// How many times the one is the other, at least 1, whichever way.
    pub fn factor(&self) -> f64 {
        if self.ratio < 1.0 { self.ratio.recip() } else { self.ratio }
    }

    /// What a table shows of it: the words where a difference was shown, in brackets where nothing
    /// tells it from chance.
    pub(crate) fn cell(&self, metric: &str) -> String {
        match self.verdict {
            Verdict::Better | Verdict::Worse => self.words(metric),
            Verdict::NoneShown => self.verdict.name().to_owned(),
            Verdict::Untested => format!("({})", self.words(metric)),
        }
    }

    /// `3.6x slower`, `1.40x less`: what a new value of `metric` is to the old one.
    pub fn words(&self, metric: &str) -> String {
        if self.ratio.is_nan() || self.factor() < 1.005 {
            return "unchanged".into();
        }
        if !self.factor().is_finite() {
            // One of the two is nothing at all.
            return if self.ratio > 1.0 { "more than nothing" } else { "nothing any more" }.into();
        }
        let [larger, smaller] = Quantity::of(metric).comparatives();
        let word = if self.ratio > 1.0 { larger } else { smaller };
        format!("{} {word}", number::factor(self.factor()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::median;

    fn figure(metric: &str, samples: &[f64]) -> Measurement {
        Measurement {
            metric: metric.into(),
            median: median(samples),
            samples: samples.to_vec(),
            ..Measurement::default()
        }
    }

    const BEFORE: [f64; 7] = [100.0, 103.0, 98.0, 101.0, 99.0, 102.0, 97.0];

    fn change(metric: &str, factor: f64) -> Change {
        let after: Vec<f64> = BEFORE.iter().map(|value| value * factor).collect();
        Change::new(&figure(metric, &BEFORE), &figure(metric, &after))
    }

    #[test]
    fn a_difference_beyond_the_noise_is_shown_and_named() {
        let slower = change("time_per_unit", 3.6);
        assert_eq!(slower.verdict, Verdict::Worse);
        assert_eq!(slower.words("time_per_unit"), "3.6x slower");
        let (low, high) = slower.interval.expect("samples");
        assert!(low < 3.6 && 3.6 < high && low > 3.3 && high < 3.9, "{slower:?}");
        let faster = change("time_per_unit", 0.5);
        assert_eq!((faster.verdict, faster.factor()), (Verdict::Better, 2.0));
        assert_eq!(faster.words("time_per_unit"), "2.0x faster");
        // Of rates, more is better.
        let fewer = change("switches_per_second", 0.5);
        assert_eq!(fewer.verdict, Verdict::Worse);
        assert_eq!(fewer.words("switches_per_second"), "2.0x slower");
        assert_eq!(change("memory_per_unit", 1.001).words("memory_per_unit"), "unchanged");
        assert_eq!(change("memory_per_unit", 1.5).words("memory_per_unit"), "1.50x more");
    }

    #[test]
    fn a_difference_within_the_noise_is_not_shown() {
        assert_eq!(change("time_per_unit", 1.005).verdict, Verdict::NoneShown);
        assert_eq!(change("time_per_unit", 1.0).verdict, Verdict::NoneShown);
        // Three samples a side cannot show anything to the test: 2 ways in 20 are as far apart.
        let few = Change::new(
            &figure("time_per_unit", &BEFORE[..3]),
            &figure("time_per_unit", &[300.0, 301.0, 302.0]),
        );
        assert_eq!(few.verdict, Verdict::NoneShown);
        assert!(!could_tell(3, 3) && !could_tell(1, 99) && !could_tell(3, 4));
        assert!(could_tell(4, 4) && could_tell(3, 5) && could_tell(11, 11));
    }

    #[test]
    fn a_single_sample_shows_no_difference() {
        let one = figure("time_per_unit", &[100.0]);
        for many in [&[900.0][..], &[900.0, 901.0], &BEFORE.map(|value| 9.0 * value)] {
            let many = figure("time_per_unit", many);
            for change in [Change::new(&one, &many), Change::new(&many, &one)] {
                assert_eq!((change.verdict, change.interval), (Verdict::NoneShown, None));
            }
        }
    }

    #[test]
    fn a_verdict_without_the_interval_is_the_same() {
        let mut random = Random::new(1);
        let mut verdicts = std::collections::BTreeSet::new();
        for metric in ["time_per_unit", "switches_per_second"] {
            for round in 0..60_usize {
                let mut side = |factor: f64| {
                    let draw = |_| factor * (1.0 + random.below(100) as f64 / 300.0);
                    figure(metric, &(0..3 + round % 7).map(draw).collect::<Vec<_>>())
                };
                let (old, new) = (side(1.0), side(0.6 + 0.2 * (round % 5) as f64));
                let (whole, quick) = (Change::new(&old, &new), Change::judged(&old, &new));
                assert_eq!(
                    (quick.verdict, quick.ratio),
                    (whole.verdict, whole.ratio),
                    "{old:?} {new:?}"
                );
                verdicts.insert(whole.verdict.name());
            }
        }
        assert_eq!(verdicts.len(), 3, "{verdicts:?}");
        let (nothing, some) =
            (figure("time_per_unit", &[0.0; 7]), figure("time_per_unit", &BEFORE));
        assert_eq!(Change::judged(&nothing, &some).verdict, Verdict::NoneShown);
    }

    #[test]
    fn nothing_is_no_multiple_and_has_words_all_the_same() {
        let nothing = figure("objects_retained", &[0.0; 7]);
        let (none, some) =
            (figure("objects_retained", &[0.0; 7]), figure("objects_retained", &BEFORE));
        let words = |old, new| Change::new(old, new).words("objects_retained");
        assert_eq!(words(&nothing, &none), "unchanged");
        assert_eq!(words(&nothing, &some), "more than nothing");
        assert_eq!(words(&some, &nothing), "nothing any more");
        assert_eq!(Change::new(&nothing, &some).verdict, Verdict::NoneShown);
    }

    #[test]
    fn figures_without_samples_are_compared_and_not_judged() {
        let mut published = figure("time_per_unit", &[18.1]);
        published.samples.clear();
        let change = Change::new(&published, &figure("time_per_unit", &BEFORE));
        assert_eq!((change.verdict, change.interval, change.p), (Verdict::Untested, None, None));
    }
}
