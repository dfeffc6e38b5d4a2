//! Medians, their uncertainty, and a source of chance that a seed fixes.

/// A stream of random numbers that is the same for the same seed, on every machine and in every
/// version: a recorded seed has to bring back the order of the samples (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the stream of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each with the same chance as nearly as makes no difference here:
    /// the bias is below `bound / 2^64`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "no number is below 0");
        // The high half of a 128-bit product: a multiplication in place of a remainder.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The middle value, or the mean of the two middle ones.
///
/// # Panics
/// When there are no values, or one of them is not a number.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    of_sorted(&sorted)
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
    let mut sorted = values.to_vec();
    sort(&mut sorted);
    let median = of_sorted(&sorted);
    let mut drawn = vec![0.0; sorted.len()];
    let mut medians: Vec<f64> = (0..resamples)
        .map(|_| {
            for slot in &mut drawn {
                *slot = sorted[random.below(sorted.len())];
            }
            sort(&mut drawn);
            of_sorted(&drawn)
        })
        .collect();
    sort(&mut medians);
    let cut = resamples / 40;
    // With very few samples the cut can fall on the far side of the median itself.
    Estimate {
        median,
        low: medians[cut].min(median),
        high: medians[resamples - 1 - cut].max(median),
    }
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
    fn shuffles_keep_every_item_and_depend_on_the_seed_alone() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..50).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..50));
    }
}
