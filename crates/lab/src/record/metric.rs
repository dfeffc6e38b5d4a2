//! What is known of a metric by its name.

/// The metrics that reports know, in their order, with the unit of their values.
const KNOWN: [(&str, &str); 17] = [
    ("time_per_unit", "ns"),
    ("first_time_per_unit", "ns"),
    ("last_time_per_unit", "ns"),
    ("time_per_switch", "ns"),
    ("switches_per_second", "switches/s"),
    ("time", "ms"),
    ("units_per_second", "units/s"),
    ("requests_per_second", "requests/s"),
    ("iterations_per_second", "i/s"),
    ("memory_per_unit", "bytes"),
    ("whole_memory_per_unit", "bytes"),
    ("bytes_allocated", "bytes"),
    ("objects_allocated", "objects"),
    ("bytes_retained", "bytes"),
    ("objects_retained", "objects"),
    ("bytes_traced_at_most", "bytes"),
    ("peak_memory", "bytes"),
];

/// The unit that values of `metric` are in; nothing for a metric nobody has told us of.
pub fn value_unit(metric: &str) -> &'static str {
    KNOWN.iter().find(|(name, _)| *name == metric).map_or("", |(_, unit)| unit)
}

/// Whether more of it is better: so it is with rates, and with nothing else that we measure.
pub fn more_is_better(metric: &str) -> bool {
    metric.ends_with("_per_second")
}

/// Where reports put it among the others.
pub(crate) fn rank(metric: &str) -> usize {
    KNOWN.iter().position(|(name, _)| *name == metric).unwrap_or(KNOWN.len())
}
