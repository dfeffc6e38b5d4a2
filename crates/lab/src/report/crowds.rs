//! Crowds of different sizes: what a unit costs depends on how many there are.

use crate::number::grouped;
use crate::record::Measurement;

/// Crowds whose sizes are further apart than this are not compared.
const APART: f64 = 10.0;

/// What is said where they are.
pub(super) const FAR_APART: &str = "one crowd is more than ten times as large as the other.";

/// How many units were alive at once.
pub(super) fn units_of(measurement: &Measurement) -> f64 {
    measurement.subject.parameters.number("units").unwrap_or(0) as f64
}

/// Whether two units' figures are of crowds that can be compared.
pub(super) fn are_comparable(one: &Measurement, other: &Measurement) -> bool {
    let sizes = units_of(one).max(1.0) / units_of(other).max(1.0);
    sizes.max(sizes.recip()) <= APART
}

/// What is said of two crowds that are not of one size.
pub(super) fn sizes(one: &Measurement, other: &Measurement) -> Option<String> {
    let [one, other] = [one, other].map(|m| m.subject.parameters.number("units"));
    let (one, other) = one.zip(other).filter(|(one, other)| one != other)?;
    Some(format!("in crowds of {} and {}", grouped(one as f64, 0), grouped(other as f64, 0)))
}
