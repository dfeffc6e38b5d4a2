//! One figure of one subject, from all its samples.

use std::collections::BTreeMap;

use carefree_workloads::role::Role;
use serde::{Deserialize, Serialize};

use super::machine::fingerprint;
use super::{Reading, Subject};
use crate::metric::Quantity;
use crate::stats::{self, Random};

/// One figure of one subject.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it is about.
    #[serde(flatten)]
    pub subject: Subject,
    /// Which side of the comparison the unit stands on, as in [`Reading::role`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

impl Measurement {
    /// What its values count.
    pub fn quantity(&self) -> Quantity {
        Quantity::of(&self.metric)
    }

    /// A value of this metric, with its unit.
    pub(crate) fn show(&self, value: f64) -> String {
        self.quantity().show(value)
    }

    /// The median, with its unit.
    pub(crate) fn shown(&self) -> String {
        self.show(self.median)
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
