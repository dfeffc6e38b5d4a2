//! The names of units in `fetch`, which tell whether connections are kept.

use carefree_workloads::fetch::SEQUENTIAL;

/// One GET after the other over one connection.
pub(crate) const SEQUENTIAL_KEPT: &str = "keep-alive";
/// Appended to a unit's name where connections are kept.
pub(crate) const KEPT: &str = "+keep-alive";

/// What a program calls the unit that a kind of samples names with its way.
pub(crate) fn asked_unit(unit: &str) -> &str {
    match unit {
        SEQUENTIAL_KEPT => SEQUENTIAL,
        other => other.strip_suffix(KEPT).unwrap_or(other),
    }
}
