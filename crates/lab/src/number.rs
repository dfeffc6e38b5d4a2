//! Numbers as people read them.

/// `1234567.891` with one digit: `1,234,567.9`.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    let (sign, plain) = plain.split_at(usize::from(plain.starts_with('-')));
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let mut text = sign.to_owned();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if fraction.is_empty() { text } else { text + "." + fraction }
}

/// `1 sample`, `3 samples`: things whose plural takes an s.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Nanoseconds as microseconds.
pub(crate) fn micros(ns: f64, digits: usize) -> String {
    grouped(ns / 1e3, digits)
}

/// Nanoseconds as microseconds, with the three digits that tell how far off a figure may be.
pub(crate) fn rough_micros(ns: f64) -> String {
    let value = ns / 1e3;
    if value <= 0.0 {
        return "0".into();
    }
    let place = value.log10().floor() as i32;
    let step = 10f64.powi(place - 2);
    grouped((value / step).round() * step, usize::try_from(2 - place).unwrap_or(0))
}

/// How many times: `310x`, `13x`, `4.5x`, as many digits as mean something.
pub(crate) fn times(ratio: f64) -> String {
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
    if factor < 1.995 { format!("{factor:.2}x") } else { times(factor) }
}

/// A ratio in a table: one digit, as the published tables have it.
pub(crate) fn ratio(value: f64) -> String {
    format!("{}x", grouped(value, 1))
}

/// Three digits with the unit that suits them: `26.1 ns`, `4.41 µs`, `56.2 ms`.
pub(crate) fn duration(ns: f64) -> String {
    scaled(ns, 1e3, ["ns", "µs", "ms", "s"])
}

/// `4.41 KiB`.
pub(crate) fn size(bytes: f64) -> String {
    match bytes < 1024.0 {
        true => format!("{bytes:.0} B"),
        false => scaled(bytes, 1024.0, ["B", "KiB", "MiB", "GiB"]),
    }
}

/// A value in the first of these units, of which each is `step` of the one before.
fn scaled(mut value: f64, step: f64, units: [&str; 4]) -> String {
    let mut at = 0;
    while value >= step && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    format!("{} {}", three_digits(value), units[at])
}

/// A value with the three digits that count.
pub fn three_digits(value: f64) -> String {
    match value {
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
    fn rough_ones_have_three_digits() {
        assert_eq!(rough_micros(28.94), "0.0289");
        assert_eq!(rough_micros(5_678.0), "5.68");
        assert_eq!(rough_micros(158_362.0), "158");
        assert_eq!(rough_micros(25_299_661.0), "25,300");
        assert_eq!(rough_micros(0.0), "0");
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
