//! Medians and their uncertainty; whether two sets of samples differ; which samples stand out; and
//! when there are enough of them.

mod difference;
mod outliers;
mod random;

pub use difference::{Difference, mann_whitney};
pub use outliers::outliers;
pub use random::Random;

/// The middle value, or the mean of the two middle ones.
///
/// # Panics
/// When there are no values, or one of them is not a number.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    of_sorted(&sorted)
}

/// The values below which these shares of all lie, of 0 (the least) to 1 (the most); between two values,
/// in proportion.
///
/// # Panics
/// As [`median`]; and where a share is less than 0 or more than 1.
pub fn percentiles<const N: usize>(values: &[f64], shares: [f64; N]) -> [f64; N] {
    assert!(!values.is_empty(), "nothing has no percentiles");
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    shares.map(|share| {
        let place = share * (sorted.len() - 1) as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    })
}

fn sort(values: &mut [f64]) {
    values.sort_by(|a, b| a.partial_cmp(b).expect("measurements are numbers"));
}

fn of_sorted(sorted: &[f64]) -> f64 {
    assert!(!sorted.is_empty(), "nothing has no median");
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { sorted[middle - 1].midpoint(sorted[middle]) }
}

/// A median and the interval that holds the true one with 95% confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median of the samples.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// How often the samples are drawn anew. The ends of the interval then stand to about three
/// digits, finer than ten or twenty samples can tell.
const RESAMPLES: usize = 10_000;

/// The median of `values` and its 95% interval by the percentile bootstrap: draw as many values
/// anew with replacement, take the median, do so ten thousand times, and cut 2.5% off each end.
/// It asks nothing of the distribution, which here is skewed: a sample is disturbed only upwards.
///
/// # Panics
/// When there are no values, or one of them is not a number.
pub fn estimate(values: &[f64], random: &mut Random) -> Estimate {
    bootstrap(values, RESAMPLES, random)
}

fn bootstrap(values: &[f64], resamples: usize, random: &mut Random) -> Estimate {
    let mut draw = Draw::new(values);
    let median = of_sorted(&draw.sorted);
    interval(median, (0..resamples).map(|_| draw.median(random)).collect())
}

/// How many times the median of `old` the median of `new` is, and that ratio's 95% interval: both
/// sets are drawn anew, each from itself, and their medians divided. `None` where the median of
/// `old`, or of one of its draws, is zero: then nothing is a multiple of it.
///
/// # Panics
/// When one of them has no values, or a value is not a number.
pub fn ratio(old: &[f64], new: &[f64], random: &mut Random) -> Option<Estimate> {
    ratio_of(old, new, RESAMPLES, random)
}

fn ratio_of(old: &[f64], new: &[f64], draws: usize, random: &mut Random) -> Option<Estimate> {
    let (mut old, mut new) = (Draw::new(old), Draw::new(new));
    let median = of_sorted(&new.sorted) / of_sorted(&old.sorted);
    let ratios: Vec<f64> = (0..draws).map(|_| new.median(random) / old.median(random)).collect();
    let divided = median.is_finite() && ratios.iter().all(|ratio| ratio.is_finite());
    divided.then(|| interval(median, ratios))
}

/// Values to draw from, with replacement.
struct Draw {
    sorted: Vec<f64>,
    drawn: Vec<f64>,
}

impl Draw {
    fn new(values: &[f64]) -> Draw {
        let mut sorted = values.to_vec();
        sort(&mut sorted);
        let drawn = vec![0.0; sorted.len()];
        Draw { sorted, drawn }
    }

    /// The median of as many values drawn anew.
    fn median(&mut self, random: &mut Random) -> f64 {
        for slot in &mut self.drawn {
            *slot = self.sorted[random.below(self.sorted.len())];
        }
        sort(&mut self.drawn);
        of_sorted(&self.drawn)
    }
}

/// Cuts 2.5% off each end of what the draws came to.
fn interval(median: f64, mut drawn: Vec<f64>) -> Estimate {
    sort(&mut drawn);
    let cut = drawn.len() / 40;
    // With very few samples the cut can fall on the far side of the median itself.
    Estimate { median, low: drawn[cut].min(median), high: drawn[drawn.len() - 1 - cut].max(median) }
}

/// With fewer samples than this the interval is mostly their range, and three that happen to be
/// alike would pass for precise: a run takes as many of everything that is not slow, and tells of
/// what has fewer.
pub const FEWEST: u32 = 5;

/// Whether more samples are not needed: there are [`FEWEST`] or more, and neither end of the median's
/// 95% interval is further from it than `precision`, as a share of the median. 0.02 asks for 2%.
///
/// A run that stops by this sometimes stops early by luck: its interval is a little narrower than
/// that of a number of samples fixed beforehand.
///
/// # Panics
/// When a value is not a number.
pub fn enough(values: &[f64], precision: f64, random: &mut Random) -> bool {
    if values.len() < FEWEST as usize {
        return false;
    }
    // To decide takes fewer digits than to report.
    let found = bootstrap(values, 2_000, random);
    let reach = (found.high - found.median).max(found.median - found.low);
    reach <= precision * found.median.abs()
}

/// The spread of `values` around their median, relative to it: the median absolute deviation,
/// scaled to the standard deviation it would be if the values were normally distributed. One wild
/// sample does not move it.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    // 1.4826 = 1 / the third quartile of the standard normal distribution.
    let deviation = 1.4826 * median(&deviations);
    if middle == 0.0 { 0.0 } else { deviation / middle.abs() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_part_the_samples() {
        const SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
        assert_eq!(percentiles(&[5.0, 1.0, 4.0, 2.0, 3.0], SHARES), [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(percentiles(&[1.0, 2.0], SHARES), [1.0, 1.25, 1.5, 1.75, 2.0]);
        assert_eq!(percentiles(&[7.0], SHARES), [7.0; 5]);
        let hundred: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(percentiles(&hundred, [0.05, 0.95]), [5.0, 95.0]);
    }

    #[test]
    fn medians_of_odd_even_and_unsorted_values() {
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn an_interval_holds_its_median_and_stays_within_the_samples() {
        for samples in [&[7.0][..], &[1.0, 2.0], &[1.0, 2.0, 100.0], &[5.0; 12]] {
            let found = estimate(samples, &mut Random::new(1));
            assert!(found.low <= found.median && found.median <= found.high, "{found:?}");
            assert!(samples.contains(&found.low) || samples.len() == 2, "{found:?}");
            assert!(found.high <= samples.iter().copied().fold(f64::MIN, f64::max));
        }
    }

    #[test]
    fn an_interval_is_the_same_for_the_same_seed() {
        let samples: Vec<f64> = (0..9).map(|i| f64::from(i * i)).collect();
        let first = estimate(&samples, &mut Random::new(42));
        assert_eq!(first, estimate(&samples, &mut Random::new(42)));
    }

    /// The interval of the median of nine values, worked out exactly: it ends at the value of rank
    /// r where the chance that at least five of nine draws fall at or below rank r passes 2.5%.
    #[test]
    fn nine_values_give_the_interval_that_binomials_give() {
        let choose = |k: u64| (1..=k).fold(1.0, |c, i| c * (10 - i) as f64 / i as f64);
        let at_or_below = |rank: u64| -> f64 {
            let p = rank as f64 / 9.0;
            (5..=9u64).map(|k| choose(k) * p.powi(k as i32) * (1.0 - p).powi(9 - k as i32)).sum()
        };
        let low = (1..=9).find(|&rank| at_or_below(rank) > 0.025).expect("a rank") as f64;
        let samples: Vec<f64> = (1..=9).map(f64::from).collect();
        let found = estimate(&samples, &mut Random::new(3));
        assert_eq!((found.low, found.median, found.high), (low, 5.0, 10.0 - low));
    }

    /// Over many seeded experiments on a skewed distribution, the interval has to hold the true
    /// median about as often as it says. The percentile bootstrap of a median is a little short at
    /// ten samples, so the bounds are loose downwards.
    #[test]
    fn intervals_cover_the_true_median_as_often_as_they_claim() {
        let mut random = Random::new(7);
        let experiments = 400;
        let held = (0..experiments)
            .filter(|_| {
                // Exponential, whose median is ln 2.
                let samples: Vec<f64> = (0..15)
                    .map(|_| {
                        let uniform = (random.below(1 << 30) as f64 + 0.5) / (1u64 << 30) as f64;
                        -uniform.ln()
                    })
                    .collect();
                let found = bootstrap(&samples, 1_000, &mut random);
                found.low <= std::f64::consts::LN_2 && std::f64::consts::LN_2 <= found.high
            })
            .count();
        let share = held as f64 / f64::from(experiments);
        assert!((0.90..=0.985).contains(&share), "{share}");
    }

    #[test]
    fn spread_is_relative_and_shrugs_off_one_wild_sample() {
        let calm = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0];
        let wild = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 5000.0];
        assert!(spread(&calm) < 0.02);
        assert!(spread(&wild) < 0.02);
        let scaled: Vec<f64> = calm.iter().map(|value| value * 1000.0).collect();
        assert!((spread(&calm) - spread(&scaled)).abs() < 1e-12);
        assert!(spread(&[1.0, 2.0, 3.0, 4.0]) > 0.3);
    }

    #[test]
    fn a_ratio_is_that_of_the_medians_and_lies_in_its_interval() {
        let old = [10.0, 11.0, 9.0, 10.0, 10.5, 9.5, 10.0];
        let new: Vec<f64> = old.iter().map(|value| value * 3.0).collect();
        let found = ratio(&old, &new, &mut Random::new(5)).expect("a ratio");
        assert!((found.median - 3.0).abs() < 1e-12, "{found:?}");
        // Medians of draws lie between 9.5 and 10.5 nearly always, so the ratio's ends do between
        // 3 * 9.5 / 10.5 and 3 * 10.5 / 9.5.
        assert!(found.low >= 3.0 * 9.0 / 10.5 && found.low < 3.0, "{found:?}");
        assert!(found.high <= 3.0 * 10.5 / 9.0 && found.high > 3.0, "{found:?}");
        assert_eq!(ratio(&[0.0; 5], &new, &mut Random::new(5)), None);
        assert_eq!(ratio(&[0.0, 0.0, 1.0, 1.0, 1.0], &new, &mut Random::new(5)), None);
    }

    /// Two sets from one distribution: the interval has to hold 1 about as often as it says.
    #[test]
    fn intervals_of_ratios_cover_no_change_as_often_as_they_claim() {
        let mut random = Random::new(11);
        let draw = |random: &mut Random| -> Vec<f64> {
            (0..15).map(|_| 100.0 + random.below(1_000) as f64 / 100.0).collect()
        };
        let experiments = 100;
        let held = (0..experiments)
            .filter(|_| {
                let (old, new) = (draw(&mut random), draw(&mut random));
                let found = ratio_of(&old, &new, 1_000, &mut random).expect("no zeroes");
                found.low <= 1.0 && 1.0 <= found.high
            })
            .count();
        assert!((90..=100).contains(&held), "{held}");
    }

    #[test]
    fn samples_are_enough_when_there_are_five_and_their_interval_is_narrow() {
        let enough =
            |values: &[f64], precision| super::enough(values, precision, &mut Random::new(1));
        let close = [100.0, 101.0, 99.0, 100.0, 100.5, 99.5, 100.0, 100.2];
        assert!(enough(&close, 0.02));
        assert!(!enough(&close, 0.000_1));
        assert!(!enough(&close[..4], 0.5), "too few to tell");
        let wide = [50.0, 150.0, 100.0, 60.0, 140.0, 100.0];
        assert!(!enough(&wide, 0.02));
        assert!(enough(&[7.0; 5], 0.0), "all alike");
        assert!(!enough(&[], 0.5));
    }
}
