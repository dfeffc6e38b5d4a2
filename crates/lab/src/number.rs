//! Numbers as people read them.

/// What stands for a value that is no number.
const NONE: &str = "–";
/// From here on digits before the point would be made up, and push all else off the page.
const HUGE: f64 = 1e15;

/// `1234567.891` with one digit: `1,234,567.9`.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value.abs() >= HUGE {
        return format!("{value:.2e}");
    }
    let plain = format!("{value:.digits$}");
    let (sign, plain) = plain.split_at(usize::from(plain.starts_with('-')));
    let (units, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let text = sign.to_owned() + &in_threes(units);
    if fraction.is_empty() { text } else { text + "." + fraction }
}

/// `1,234,567`.
pub fn whole(count: u64) -> String {
    in_threes(&count.to_string())
}

/// Digits with a comma between thousands.
fn in_threes(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 sample`, `1,955 samples`: things whose plural takes an s.
pub fn counted(count: usize, thing: &str) -> String {
    format!("{} {thing}{}", whole(count as u64), if count == 1 { "" } else { "s" })
}

/// With fewer samples than this, nothing tells how far off a figure may be.
pub(crate) const FEW: usize = 3;

/// Stands behind figures of fewer samples.
pub(crate) const MARK: char = '*';

/// Whether a figure rests on so few samples. (Published ones tell of none, and stand.)
pub(crate) fn is_few(samples: usize) -> bool {
    (1..FEW).contains(&samples)
}

/// A value with the digits that mean something: to the second one of how far the ends of its interval are from it. Of a
/// few samples it has two, and the mark; of none, as published, `most` after the point. After the point no figure has
/// more than `most` but the first three of its digits.
pub(crate) fn precise(
    value: f64,
    interval: Option<(f64, f64)>,
    samples: usize,
    most: usize,
) -> String {
    if samples == 0 {
        return grouped(value, most);
    }
    let most = most.max(usize::try_from(2 - place_of(value)).unwrap_or(0));
    if is_few(samples) {
        return format!("{}{MARK}", to_place(value, place_of(value) - 1, most));
    }
    match interval.map_or(0.0, |(low, high)| (high - value).max(value - low)) {
        reach if reach > 0.0 => within(value, reach, most),
        _ => grouped(value, most),
    }
}

/// A value with digits to the second one of how far off it may be, and `most` after the point.
pub(crate) fn within(value: f64, reach: f64, most: usize) -> String {
    // However far off, two digits of the value itself.
    to_place(value, (place_of(reach) - 1).min(place_of(value) - 1), most)
}

/// The power of ten of a value's first digit.
fn place_of(value: f64) -> i32 {
    if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 }
}

/// A value rounded to a power of ten, or to `most` digits after the point.
fn to_place(value: f64, place: i32, most: usize) -> String {
    if place < 0 {
        return grouped(value, usize::try_from(-place).unwrap_or(0).min(most));
    }
    let step = 10f64.powi(place);
    grouped((value / step).round() * step, 0)
}

/// How many times: `310x`, `13x`, `4.5x`, as many digits as mean something.
pub(crate) fn times(ratio: f64) -> String {
    if !ratio.is_finite() {
        return NONE.to_owned();
    }
    if ratio >= 99.5 {
        // Two digits; the third is noise.
        let step = 10f64.powf(ratio.log10().floor() - 1.0);
        format!("{}x", grouped((ratio / step).round() * step, 0))
    } else if ratio >= 9.95 {
        format!("{ratio:.0}x")
    } else {
        format!("{ratio:.1}x")
    }
}

/// How many times, for factors that may be close to one: `3.6x`, `1.65x`.
pub(crate) fn factor(factor: f64) -> String {
    if factor.is_finite() && factor < 1.995 { format!("{factor:.2}x") } else { times(factor) }
}

/// A ratio in a table: one digit, as the published tables have it.
pub(crate) fn ratio(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    format!("{}x", grouped(value, 1))
}

/// Three digits with the unit that suits them: `26.1 ns`, `4.41 µs`, `56.2 ms`.
pub(crate) fn duration(ns: f64) -> String {
    scaled(ns, 1e3, ["ns", "µs", "ms", "s"], three_digits)
}

/// `4.41 KiB`.
pub(crate) fn size(bytes: f64) -> String {
    match bytes < 1024.0 {
        true => format!("{bytes:.0} B"),
        false => scaled(bytes, 1024.0, ["B", "KiB", "MiB", "GiB"], three_digits),
    }
}

/// Two digits with the unit that suits them: `2.4 ms`.
pub(crate) fn rough_duration(ns: f64) -> String {
    scaled(ns, 1e3, ["ns", "µs", "ms", "s"], two_digits)
}

/// `7.3 MiB`.
pub(crate) fn rough_size(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["B", "KiB", "MiB", "GiB"], two_digits)
}

/// A value with the first two digits.
pub(crate) fn two_digits(value: f64) -> String {
    to_place(value, place_of(value) - 1, 3)
}

/// The unit that suits a duration, with the digits that mean something: `5.4 µs`.
pub(crate) fn duration_within(ns: f64, reach: f64) -> String {
    let (by, unit) = suited(ns, 1e3, ["ns", "µs", "ms", "s"]);
    format!("{} {unit}", within(ns / by, reach / by, 3))
}

/// `4.405 KiB`.
pub(crate) fn size_within(bytes: f64, reach: f64) -> String {
    let (by, unit) = suited(bytes, 1024.0, ["B", "KiB", "MiB", "GiB"]);
    format!("{} {unit}", within(bytes / by, reach / by, if by == 1.0 { 0 } else { 3 }))
}

/// A value in the first of these units, of which each is `step` of the one before.
fn scaled(value: f64, step: f64, units: [&str; 4], digits: fn(f64) -> String) -> String {
    let (by, unit) = suited(value, step, units);
    format!("{} {unit}", digits(value / by))
}

/// The unit for a value, and how much that is.
fn suited(value: f64, step: f64, units: [&str; 4]) -> (f64, &str) {
    let (mut by, mut at) = (1.0, 0);
    while value / by >= step && at + 1 < units.len() {
        by *= step;
        at += 1;
    }
    (by, units[at])
}

/// A value with the three digits that count.
pub fn three_digits(value: f64) -> String {
    match value {
        v if !v.is_finite() => NONE.to_owned(),
        v if v < 0.995 => format!("{v:.3}"),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => grouped(v, 0),
    }
}

/// A rate without its unit: whole, or three digits of a small one.
pub(crate) fn rate(value: f64) -> String {
    if value < 99.95 { three_digits(value) } else { grouped(value, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0.0, 0), "0");
        assert_eq!(grouped(999.0, 0), "999");
        assert_eq!(grouped(1000.0, 0), "1,000");
        assert_eq!(grouped(9_490_705.4, 0), "9,490,705");
        assert_eq!(grouped(-1_234.56, 1), "-1,234.6");
        assert_eq!(grouped(999.96, 1), "1,000.0");
        assert_eq!(whole(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "sample"), "1 sample");
        assert_eq!(counted(1_955, "sample"), "1,955 samples");
    }

    #[test]
    fn what_is_no_number_is_not_shown_as_one() {
        for none in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for text in [times(none), ratio(none), factor(none), grouped(none, 3), rate(none)] {
                assert_eq!(text, "–");
            }
            assert!(!duration(none).contains(|c: char| c.is_ascii_digit()), "{}", duration(none));
        }
        for text in [grouped(1e300, 3), duration(1e300), size(1e300), times(1e300), rate(1e300)] {
            assert!(text.chars().count() < 20, "{text}");
        }
        assert_eq!(grouped(1e300, 0), "1.00e300");
    }

    #[test]
    fn ratios_have_the_digits_that_mean_something() {
        assert_eq!(times(1.04), "1.0x");
        assert_eq!(times(4.46), "4.5x");
        assert_eq!(times(9.97), "10x");
        assert_eq!(times(64.6), "65x");
        assert_eq!(times(99.7), "100x");
        assert_eq!(times(312.4), "310x");
        assert_eq!(times(12_345.0), "12,000x");
        assert_eq!(ratio(18.74), "18.7x");
    }

    #[test]
    fn digits_follow_precision() {
        let of = |value: f64, reach: f64, most| {
            precise(value, Some((value - reach, value + reach / 2.0)), 11, most)
        };
        assert_eq!(of(10.291, 2.07, 3), "10.3");
        assert_eq!(of(163.608, 16.6, 3), "164");
        assert_eq!(of(4.642, 0.04, 3), "4.642", "never more than asked for");
        assert_eq!(of(26_626.271, 4_074.0, 3), "26,600");
        assert_eq!(of(4_405.1, 93.0, 0), "4,405");
        assert_eq!(of(0.033_3, 0.004_6, 4), "0.0333");
        assert_eq!(of(0.004_232_8, 0.000_114_3, 4), "0.00423", "three digits, however small");
        assert_eq!(of(5.4, 90.0, 3), "5.4", "two digits of what is very far off");
        // One sample says nothing of how far off it is.
        assert_eq!(precise(2_380.706, Some((2_380.706, 2_380.706)), 1, 3), "2,400*");
        assert_eq!(precise(0.581_2, None, 2, 4), "0.58*");
        // All alike, and published.
        assert_eq!(precise(4_139.5, Some((4_139.5, 4_139.5)), 11, 1), "4,139.5");
        assert_eq!(precise(2_380.706, None, 0, 3), "2,380.706");
        assert_eq!(precise(0.0, Some((0.0, 0.0)), 1, 3), "0.0*");
        assert_eq!(rough_duration(2_380_706.0), "2.4 ms");
        assert_eq!(rough_size(8_611_072.0), "8.2 MiB");
        assert_eq!(two_digits(88_621.2), "89,000");
    }

    #[test]
    fn durations_and_sizes_take_the_unit_that_suits_them() {
        assert_eq!(duration(1.5), "1.50 ns");
        assert_eq!(duration(26.13), "26.1 ns");
        assert_eq!(duration(4_405.0), "4.41 µs");
        assert_eq!(duration(193_000_000.0), "193 ms");
        assert_eq!(size(512.0), "512 B");
        assert_eq!(size(4_500.0), "4.39 KiB");
        assert_eq!(size(24_684_092.0 * 1024.0), "23.5 GiB");
        assert_eq!(rate(88_621.2), "88,621");
        assert_eq!(rate(0.173), "0.173");
    }
}
