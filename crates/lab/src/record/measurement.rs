//! One figure of one subject, from all its samples.

use std::collections::BTreeMap;

use carefree_workloads::role::Role;
use serde::{Deserialize, Serialize, Serializer};

use super::machine::fingerprint;
use super::{Reading, Subject};
use crate::metric::Quantity;
use crate::number;
use crate::stats::{self, Random};

/// One figure of one subject.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Measurement {
    /// What it is about.
    #[serde(flatten)]
    pub subject: Subject,
    /// Which side of the comparison the unit stands on, as in [`Reading::role`].
    #[serde(default)]
    pub role: Option<String>,
    /// Which figure of it this is.
    pub metric: String,
    /// The unit its values are in.
    pub value_unit: String,
    /// The median of the samples.
    pub median: f64,
    /// The lower end of the median's 95% interval; none for published figures that have none.
    pub ci_low: Option<f64>,
    /// The upper end of the median's 95% interval.
    pub ci_high: Option<f64>,
    /// The values themselves, in the order in which they were taken.
    pub samples: Vec<f64>,
}

/// A figure as it is written: with a mark that follows from its samples.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    subject: &'a Subject,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: &'a Option<String>,
    metric: &'a str,
    value_unit: &'a str,
    median: f64,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    few_samples: bool,
    samples: &'a [f64],
}

impl Serialize for Measurement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Measurement { subject, role, metric, value_unit, median, ci_low, ci_high, samples } =
            self;
        let (median, ci_low, ci_high) = (*median, *ci_low, *ci_high);
        let few_samples = self.is_rough();
        let written = Written {
            subject,
            role,
            metric,
            value_unit,
            median,
            ci_low,
            ci_high,
            few_samples,
            samples,
        };
        written.serialize(serializer)
    }
}

impl Measurement {
    /// What its values count.
    pub fn quantity(&self) -> Quantity {
        Quantity::of(&self.metric)
    }

    /// A value of this metric, with its unit and the digits that mean something, as tables have it: to
    /// the second one of how far off the median may be. Three where nothing tells that.
    pub(crate) fn show(&self, value: f64) -> String {
        let quantity = self.quantity();
        let reach = |(low, high): (f64, f64)| (high - self.median).max(self.median - low);
        match self.ci_low.zip(self.ci_high).map(reach) {
            // The ends of the interval have as many as the median.
            Some(reach) if reach > 0.0 && self.samples.len() >= number::FEW => {
                quantity.show_within(value, reach)
            }
            _ => quantity.show(value),
        }
    }

    /// The median, with its unit; of a few samples two digits of it, and the mark.
    pub(crate) fn shown(&self) -> String {
        match self.is_rough() {
            true => self.quantity().show_rough(self.median),
            false => self.show(self.median),
        }
    }

    /// Whether it rests on samples too few to tell how far off it is.
    pub(crate) fn is_rough(&self) -> bool {
        number::is_few(self.samples.len())
    }

    /// The median as a multiple of `unit`, with the digits that mean something and `most` after the
    /// point.
    pub(crate) fn in_units(&self, unit: f64, most: usize) -> String {
        let interval = self.ci_low.zip(self.ci_high);
        let interval = interval.map(|(low, high)| (low / unit, high / unit));
        number::precise(self.median / unit, interval, self.samples.len(), most)
    }

    /// The ends of the interval as multiples of `unit`, each with as many digits as the median; nothing of samples too
    /// few to tell how far off it is.
    pub(crate) fn ends_in_units(&self, unit: f64, most: usize) -> Option<[String; 2]> {
        let (low, high) = self.ci_low.zip(self.ci_high)?;
        let reach = (high - self.median).max(self.median - low) / unit;
        let end = |value: f64| {
            number::precise(
                value / unit,
                Some((value / unit - reach, value / unit)),
                self.samples.len(),
                most,
            )
        };
        (self.samples.len() >= number::FEW).then(|| [end(low), end(high)])
    }

    /// Which side of the comparison the unit stands on.
    pub fn role(&self) -> Role {
        Role::of(self.role.as_deref(), &self.subject.unit)
    }
}

/// The figures of all samples. `seed` fixes the draws of the bootstrap.
pub(super) fn of(samples: &[Reading], seed: u64) -> Vec<Measurement> {
    let mut values: BTreeMap<(&Subject, &str), Vec<f64>> = BTreeMap::new();
    let mut roles: BTreeMap<&Subject, &Option<String>> = BTreeMap::new();
    for sample in samples {
        roles.insert(&sample.subject, &sample.role);
        for (metric, &value) in &sample.figures {
            values.entry((&sample.subject, metric)).or_default().push(value);
        }
    }
    let figure = |((subject, metric), samples): ((&Subject, &str), Vec<f64>)| {
        // A stream of its own for each figure: what else is measured does not change it.
        let name = format!("{subject} {} {metric}", subject.parameters);
        let stream = u64::from_str_radix(&fingerprint(name.as_bytes()), 16).unwrap_or(0);
        let estimate = stats::estimate(&samples, &mut Random::new(seed ^ stream));
        Measurement {
            subject: subject.clone(),
            role: roles.get(subject).copied().cloned().flatten(),
            metric: metric.to_owned(),
            value_unit: Quantity::of(metric).unit().to_owned(),
            median: estimate.median,
            ci_low: Some(estimate.low),
            ci_high: Some(estimate.high),
            samples,
        }
    };
    values.into_iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_as_many_digits_in_words_as_in_tables() {
        let figure = |metric: &str, [low, median, high]: [f64; 3]| Measurement {
            metric: metric.into(),
            median,
            ci_low: Some(low),
            ci_high: Some(high),
            samples: vec![median; 7],
            ..Measurement::default()
        };
        let far = figure("time_per_unit", [5_030.0, 5_420.0, 6_770.0]);
        assert_eq!((far.shown(), far.in_units(1e3, 3)), ("5.4 µs".into(), "5.4".into()));
        assert_eq!([5_030.0, 6_770.0].map(|end| far.show(end)), ["5.0 µs", "6.8 µs"]);
        let near = figure("time_per_unit", [4_400.0, 4_405.1, 4_420.0]);
        assert_eq!((near.shown(), near.in_units(1e3, 3)), ("4.405 µs".into(), "4.405".into()));
        assert_eq!(near.ends_in_units(1e3, 3), Some(["4.400".into(), "4.420".into()]));
        assert_eq!(far.ends_in_units(1e3, 3), Some(["5.0".into(), "6.8".into()]));
        let round = figure("time", [161.0, 163.608, 180.2]);
        assert_eq!((round.shown(), round.in_units(1.0, 1)), ("164 ms".into(), "164".into()));
        let memory = figure("memory_per_unit", [900.0, 913.4, 920.0]);
        assert_eq!((memory.shown(), memory.in_units(1.0, 0)), ("913 B".into(), "913".into()));
        let rate = figure("units_per_second", [85_000.0, 88_621.2, 91_000.0]);
        assert_eq!(rate.shown(), "88,600/s");
        assert_eq!(figure("requests_per_second", [40.0, 45.3, 55.0]).shown(), "45.3/s");
        // All alike: nothing tells how far off it is.
        assert_eq!(figure("time_per_unit", [26.13; 3]).shown(), "26.1 ns");
    }
}
