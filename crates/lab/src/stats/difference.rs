//! Whether two sets of samples differ by more than chance.

use super::sort;

/// What the Mann-Whitney test says of two sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The statistic: of all pairs of one value from each set, those in which the first set's is
    /// the larger, ties counted half.
    pub u: f64,
    /// How likely a statistic at least as far from the middle is, were both sets drawn from one
    /// distribution (two-sided).
    pub p: f64,
}

/// With no more values than this in both sets together, all ways to deal them are counted. That is
/// 138 billion at most, which a double holds exactly.
const EXACT: usize = 40;

/// The Mann-Whitney U test. It asks nothing of the distribution, and looks at the order of the
/// values alone.
///
/// Small sets are dealt in every possible way, ties as they are, so that the chance is exact;
/// beyond 40 values together it is that of the normal distribution, corrected for ties and for
/// continuity.
///
/// `None` when one of the sets is empty, or all values are the same: then there is nothing to tell
/// them apart by.
///
/// # Panics
/// When a value is not a number.
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<Difference> {
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let (ranks, ties) = ranks(first, second);
    if ties.len() == 1 {
        return None;
    }
    let (n, m) = (first.len() as f64, second.len() as f64);
    let sum: u64 = ranks[..first.len()].iter().sum();
    // Ranks are doubled; the smallest sum that n values can have is n (n + 1) / 2.
    let u = sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
    let p = if ranks.len() <= EXACT {
        exact(&ranks, first.len(), sum)
    } else {
        let total = n + m;
        let tied: f64 = ties.iter().map(|&t| (t as f64).powi(3) - t as f64).sum();
        let variance = n * m / 12.0 * (total + 1.0 - tied / (total * (total - 1.0)));
        let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
        libm::erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2)
    };
    Some(Difference { u, p: p.min(1.0) })
}

/// Twice the rank of every value among all, in the order given, those that are alike sharing the
/// mean of their ranks; and how many there are of each value.
fn ranks(first: &[f64], second: &[f64]) -> (Vec<u64>, Vec<usize>) {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let mut sorted = all.clone();
    sort(&mut sorted);
    let ties = sorted.chunk_by(|a, b| a == b).map(<[f64]>::len).collect();
    let doubled = |value: &f64| {
        let below = sorted.partition_point(|other| other < value);
        let through = sorted.partition_point(|other| other <= value);
        // The ranks from below + 1 to through, whose mean is half the sum of the ends.
        (below + 1 + through) as u64
    };
    (all.iter().map(doubled).collect(), ties)
}

/// Of all ways to choose `n` of the ranks, the share whose sum is at least as far from the middle
/// as `sum` is.
fn exact(ranks: &[u64], n: usize, sum: u64) -> f64 {
    let most: u64 = ranks.iter().sum();
    let size = usize::try_from(most).unwrap_or(usize::MAX) + 1;
    // ways[k][s]: how many ways there are to choose k of the ranks seen so far with sum s.
    let mut ways = vec![vec![0.0_f64; size]; n + 1];
    ways[0][0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        // Both are at most 81 here.
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        for k in (1..=n.min(seen + 1)).rev() {
            let (before, after) = ways.split_at_mut(k);
            for (count, to) in before[k - 1].iter().zip(&mut after[0][rank..]) {
                *to += count;
            }
        }
    }
    // The middle is n times the mean rank; compare in multiples of the number of ranks.
    let middle = n as u64 * most;
    let distance = |sum: u64| (sum * ranks.len() as u64).abs_diff(middle);
    let far = distance(sum);
    let all: f64 = ways[n].iter().sum();
    let as_far = (0..).zip(&ways[n]).filter(|(sum, _)| distance(*sum) >= far);
    as_far.map(|(_, count)| count).sum::<f64>() / all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<Difference>, u: f64, p: f64) {
        let found = found.expect("values that differ");
        assert!((found.u - u).abs() < 1e-9, "{found:?}");
        assert!((found.p - p).abs() < 1e-9 * p.max(1e-3), "{found:?}, not {p}");
    }

    /// The example of SciPy's documentation, and sets as far apart as they can be, of which there
    /// are 2 ways in 252 and 2 in 20.
    #[test]
    fn small_sets_have_exact_chances() {
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        close(mann_whitney(&males, &females), 17.0, 1.0 / 9.0);
        close(mann_whitney(&females, &males), 3.0, 1.0 / 9.0);
        close(
            mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]),
            0.0,
            2.0 / 252.0,
        );
        close(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.0, 0.1);
        close(mann_whitney(&[1.0, 3.0], &[2.0]), 1.0, 1.0);
    }

    /// Counted by hand over all 126 ways to deal nine values.
    #[test]
    fn ties_in_small_sets_are_dealt_as_they_are() {
        let (first, second) = ([1.0, 2.0, 2.0, 3.0], [2.0, 3.0, 3.0, 4.0, 5.0]);
        close(mann_whitney(&first, &second), 3.0, 14.0 / 126.0);
    }

    /// Figures of SciPy 1.x, `mannwhitneyu(x, y, method="asymptotic")`.
    #[test]
    fn large_sets_have_those_of_the_normal_distribution() {
        let first: Vec<f64> = (1..=30).map(f64::from).collect();
        let second: Vec<f64> = first.iter().map(|value| value * 1.1 + 3.25).collect();
        close(mann_whitney(&first, &second), 324.0, 0.063_532_650_734_807_4);
        let thrice = |values: &[f64]| values.repeat(3);
        let first = thrice(&[1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 5.0, 6.0, 7.0, 8.0]);
        let second = thrice(&[2.0, 3.0, 4.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 9.0, 9.0, 10.0]);
        close(mann_whitney(&first, &second), 355.5, 0.000_926_063_132_350_353_6);
    }

    #[test]
    fn nothing_can_be_said_of_nothing_or_of_values_all_alike() {
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[1.0], &[]), None);
        assert_eq!(mann_whitney(&[2.0; 10], &[2.0; 10]), None);
    }

    /// Where both methods apply, they agree about as well as they should.
    #[test]
    fn exact_and_normal_chances_meet() {
        let first: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 20)).collect();
        let second: Vec<f64> = (0..20).map(|i| f64::from(i * 3 % 20) + 3.5).collect();
        let small = mann_whitney(&first, &second).expect("they differ");
        let second: Vec<f64> = second.into_iter().chain([13.25]).collect();
        let large = mann_whitney(&first, &second).expect("they differ");
        assert!((small.p - large.p).abs() < 0.02, "{small:?} {large:?}");
    }
}
