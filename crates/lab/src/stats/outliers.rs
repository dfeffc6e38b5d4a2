//! Samples that stand out from the others.

use super::median;

/// From here on a sample stands out: the customary bound of Iglewicz and Hoaglin (1993), in
/// standard deviations.
const FAR: f64 = 3.5;

/// Which of `values`, by their place, are further from the median than chance would put them, were
/// they normally distributed. They are to be shown, not left out: a pause of the garbage collector
/// is part of what a runtime is like, and the median does not mind it.
///
/// The deviation is the median absolute one, which outliers themselves do not enlarge; where more
/// than half of the values are the same and it is zero, the mean absolute one.
///
/// # Panics
/// When a value is not a number.
pub fn outliers(values: &[f64]) -> Vec<usize> {
    // Of three values, one is always far from the other two.
    if values.len() < 4 {
        return Vec::new();
    }
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    // 1.4826 and 1.2533 make the standard deviation of these two, for normal distributions.
    let by_median = 1.4826 * median(&distances);
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    let deviation = if by_median > 0.0 { by_median } else { 1.2533 * mean };
    let far = |at: &usize| deviation > 0.0 && distances[*at] > FAR * deviation;
    (0..values.len()).filter(far).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_out_is_found_at_both_ends() {
        // Median 10.5, median absolute deviation 0.5: beyond 10.5 +- 2.59 is far.
        let values = [10.0, 11.0, 10.5, 10.0, 11.0, 10.5, 13.2, 10.2, 7.0];
        assert_eq!(outliers(&values), [6, 8]);
    }

    #[test]
    fn values_that_are_nearly_all_the_same_have_outliers_too() {
        let mut values = vec![5.0; 12];
        assert_eq!(outliers(&values), Vec::<usize>::new());
        values[4] = 100.0;
        assert_eq!(outliers(&values), [4]);
    }

    #[test]
    fn few_values_have_none() {
        assert_eq!(outliers(&[1.0, 1.0, 1000.0]), Vec::<usize>::new());
    }
}
