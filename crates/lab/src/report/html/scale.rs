//! Where a value stands on an axis.

use crate::metric::Quantity;

/// An axis from a low to a high value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Whether round values are powers of two, as of bytes.
    binary: bool,
}

/// From this ratio of the largest to the smallest value on, small ones would vanish beside large
/// ones on an even scale.
const WIDE: f64 = 30.0;

impl Scale {
    /// Whether round values are powers of two.
    pub(super) fn is_binary(self) -> bool {
        self.binary
    }

    /// A scale for these values: even and from zero, or by powers of ten where they are far apart.
    pub(super) fn of(quantity: Quantity, values: impl Iterator<Item = f64> + Clone) -> Scale {
        Scale::fitting(quantity, values, false)
    }

    /// A scale on which equal ratios are equally far apart, however close the values are.
    pub(super) fn of_ratios(
        quantity: Quantity,
        values: impl Iterator<Item = f64> + Clone,
    ) -> Scale {
        Scale::fitting(quantity, values, true)
    }

    fn fitting(
        quantity: Quantity,
        values: impl Iterator<Item = f64> + Clone,
        powers: bool,
    ) -> Scale {
        let binary = quantity == Quantity::Bytes;
        let high = values.clone().fold(0.0, f64::max);
        let low = values.filter(|&value| value > 0.0).fold(f64::INFINITY, f64::min);
        if high <= 0.0 || !low.is_finite() {
            return Scale { low: 0.0, high: 1.0, logarithmic: false, binary };
        }
        if high / low >= WIDE || powers {
            // Between two powers of two, values close together would be one dot.
            if binary && high / low < 2.0 {
                let room = (high / low).sqrt().max(1.02);
                return Scale { binary, ..Scale::logarithmic(low / room, high * room) };
            }
            // Some room below, so that the smallest value is not at the very edge.
            let low = match binary {
                true => 2f64.powf((low.log2() - 0.5).floor()),
                // Far apart, whole powers of ten; else the values' own ends with some room.
                false if high / low < WIDE => low / 1.25,
                false => 10f64.powf((low.log10() - 0.15).floor()),
            };
            Scale { binary, ..Scale::logarithmic(low, high * 1.15) }
        } else {
            Scale { low: 0.0, high: high * 1.04, logarithmic: false, binary }
        }
    }

    /// An axis on which equal ratios are equally far apart.
    pub(super) fn logarithmic(low: f64, high: f64) -> Scale {
        Scale { low, high, logarithmic: true, binary: false }
    }

    /// Whether `value` is on the axis.
    pub(super) fn holds(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    pub(super) fn is_logarithmic(self) -> bool {
        self.logarithmic
    }

    /// The place of `value`, from 0 to 1.
    pub(super) fn at(self, value: f64) -> f64 {
        let place = if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            value / self.high
        };
        place.clamp(0.0, 1.0)
    }

    /// Round values along the axis.
    pub(super) fn ticks(self) -> Vec<f64> {
        if self.logarithmic && self.binary {
            // Every second, fourth or so power of two, of those that are round: 1 KiB, 16 KiB.
            let (low, high) = (self.low.log2(), self.high.log2());
            let step = ((high - low) / 5.0).ceil().max(1.0);
            let first = (low / step).ceil() * step;
            let tick = |at: i32| 2f64.powf(first + f64::from(at) * step);
            let powers: Vec<f64> = (0..).map(tick).take_while(|&tick| tick <= self.high).collect();
            return match powers.len() {
                2.. => powers,
                _ => self.even(self.low, (self.high - self.low) / 4.0),
            };
        }
        if self.logarithmic {
            let decades = (self.high / self.low).log10();
            if decades < 2.0 {
                let first = self.low.log10().floor() as i32;
                let within = |steps: &[f64]| -> Vec<f64> {
                    let powers = (first..first + 4).map(|power| 10f64.powi(power));
                    let all = powers.flat_map(|power| steps.iter().map(move |step| step * power));
                    all.filter(|tick| self.holds(*tick)).collect()
                };
                let few = within(&[1.0, 2.0, 5.0]);
                let more = within(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]);
                return match (few.len(), more.len()) {
                    (3.., _) => few,
                    (_, 2..) => more,
                    _ => self.even(self.low, (self.high - self.low) / 3.0),
                };
            }
            // No more than five labels, or they meet on a phone.
            let step = (decades / 5.0).ceil().max(1.0);
            let tick = |at| self.low * 10f64.powf(f64::from(at) * step);
            return (0..).map(tick).take_while(|&tick| tick <= self.high).collect();
        }
        self.even(0.0, self.high / 4.0)
    }

    /// Round values from `low` on, about so far apart.
    fn even(self, low: f64, rough: f64) -> Vec<f64> {
        let step = if self.binary {
            2f64.powf(rough.log2().ceil())
        } else {
            let power = 10f64.powf(rough.log10().floor());
            let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
            steps.into_iter().find(|&step| step >= rough).unwrap_or(rough)
        };
        let first = (low / step).ceil();
        let ticks = (0..).map(|at| (first + f64::from(at)) * step);
        ticks.take_while(|&tick| tick <= self.high).collect()
    }
}

/// A tick as short as can be: `50 µs`, `0`.
pub(super) fn tick(quantity: Quantity, value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text = quantity.show(value);
    let (digits, unit) = text.split_once(' ').unwrap_or((&text, ""));
    // Rates have their unit at the digits, and thousands set apart.
    if let Some(count) = digits.strip_suffix("/s") {
        return short(count.replace(',', "").parse().unwrap_or(value));
    }
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    };
    format!("{digits} {unit}").trim_end().to_owned()
}

/// `2 M`, `500 k`.
fn short(count: f64) -> String {
    let (value, unit) = match count {
        c if c >= 1e9 => (c / 1e9, " G"),
        c if c >= 1e6 => (c / 1e6, " M"),
        c if c >= 1e3 => (c / 1e3, " k"),
        c => (c, ""),
    };
    let text = format!("{value:.1}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_close_together_are_shown_from_zero() {
        let scale = Scale::of(Quantity::Nanoseconds, [3.0, 10.0].into_iter());
        assert!(!scale.is_logarithmic());
        assert_eq!(scale.at(0.0), 0.0);
        assert!(scale.at(10.0) > 0.9 && scale.at(10.0) < 1.0);
        assert_eq!(scale.ticks(), [0.0, 5.0, 10.0]);
        let bytes = Scale::of(Quantity::Bytes, [4_300.0, 44_000.0].into_iter());
        assert_eq!(bytes.ticks(), [0.0, 16_384.0, 32_768.0]);
    }

    #[test]
    fn values_far_apart_are_shown_by_powers_of_ten() {
        let scale = Scale::of(Quantity::Nanoseconds, [26.0, 56_000.0].into_iter());
        assert!(scale.is_logarithmic());
        assert_eq!(scale.ticks(), [10.0, 100.0, 1_000.0, 10_000.0]);
        assert!(scale.at(26.0) > 0.0 && scale.at(56_000.0) < 1.0);
        let wide = Scale::of(Quantity::Nanoseconds, [1.0, 1e12].into_iter());
        assert!(wide.ticks().len() <= 6, "{:?}", wide.ticks());
        // Nothing measured is nothing to fall over.
        assert_eq!(Scale::of(Quantity::Nanoseconds, [0.0].into_iter()).at(0.0), 0.0);
    }

    #[test]
    fn ratios_have_a_scale_of_their_own_however_small_they_are() {
        let scale = Scale::of_ratios(Quantity::Nanoseconds, [30.0, 70.0].into_iter());
        assert!(scale.is_logarithmic());
        assert_eq!(scale.ticks(), [30.0, 40.0, 50.0, 60.0, 80.0]);
        let close = Scale::of_ratios(Quantity::Nanoseconds, [71.0, 72.0].into_iter());
        assert!((2..6).contains(&close.ticks().len()), "{:?}", close.ticks());
        let scale = Scale::of_ratios(Quantity::Nanoseconds, [3.0, 70.0].into_iter());
        assert_eq!(scale.ticks(), [5.0, 10.0, 20.0, 50.0]);
        let twice = |from: f64| scale.at(2.0 * from) - scale.at(from);
        assert!((twice(5.0) - twice(20.0)).abs() < 1e-9);
    }

    #[test]
    fn bytes_close_together_are_told_apart() {
        for (low, high) in [(13_195.0, 13_382.0), (18_799.0, 20_450.0), (4_096.0, 4_096.0)] {
            let scale = Scale::of_ratios(Quantity::Bytes, [low, high].into_iter());
            assert!(low == high || scale.at(high) - scale.at(low) > 0.2, "{low} {high}");
            assert!((2..7).contains(&scale.ticks().len()), "{:?}", scale.ticks());
        }
    }

    #[test]
    fn bytes_have_round_powers_of_two() {
        for (low, high) in [(446.0, 7.66 * 1_048_576.0), (2_000.0, 70_000.0), (1.0, 1e12)] {
            let scale = Scale::of(Quantity::Bytes, [low, high].into_iter());
            let ticks = scale.ticks();
            assert!((2..=6).contains(&ticks.len()), "{ticks:?}");
            for value in ticks {
                assert_eq!(value.log2().fract(), 0.0, "{value}");
                let name = tick(Quantity::Bytes, value);
                let digits = name.split(' ').next().unwrap_or_default();
                assert!(digits.parse::<u32>().is_ok_and(u32::is_power_of_two), "{name}");
            }
        }
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick(Quantity::Nanoseconds, 50_000.0), "50 µs");
        assert_eq!(tick(Quantity::Nanoseconds, 2_500.0), "2.5 µs");
        assert_eq!(tick(Quantity::Rate("units/s"), 2_000_000.0), "2 M");
        assert_eq!(tick(Quantity::Bytes, 4_096.0), "4 KiB");
        assert_eq!(tick(Quantity::Milliseconds, 0.0), "0");
    }
}
