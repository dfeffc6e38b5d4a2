//! What a meal of feeding is: how people are fed, whether there are yields, and how much it is.

use std::collections::BTreeSet;

use super::table::NOTHING;
use crate::number::grouped;
use crate::record::{Measurement, Value};

/// How people are fed: `threads`, `fibers`, `hybrid` or `processes`; the unit where it is not told.
pub(super) fn how(m: &Measurement) -> String {
    match m.subject.parameters.get("how") {
        Some(how) => how.to_string(),
        None => m.subject.unit.clone(),
    }
}

/// The unit that feeds, and how: `goroutine`, `fiber, hybrid`.
pub(super) fn way(m: &Measurement) -> String {
    match how(m).as_str() {
        "hybrid" => format!("{}, hybrid", m.subject.unit),
        "processes" => format!("{}, processes", m.subject.unit),
        _ => m.subject.unit.clone(),
    }
}

/// What the ways are called that are neither fibers nor threads alone, of those that these meals have.
pub(super) fn explained<'a>(meals: impl Iterator<Item = &'a Measurement>) -> Option<String> {
    let ways: BTreeSet<String> = meals.map(how).collect();
    let known = [
        ("hybrid", "Hybrid: fibers over a few threads."),
        ("processes", "Processes: fibers over a few processes."),
    ];
    let told = known.into_iter().filter(|(way, _)| ways.contains(*way));
    let told: Vec<&str> = told.map(|(_, sentence)| sentence).collect();
    (!told.is_empty()).then(|| told.join(" "))
}

/// `yes`, `no`, or nothing where it is not told.
pub(super) fn yields(m: &Measurement) -> &'static str {
    match m.subject.parameters.get("yields") {
        Some(Value::Flag(true)) => "yes",
        Some(_) => "no",
        None => NOTHING,
    }
}

/// A parameter of a meal.
pub(super) fn meal(m: &Measurement, name: &str) -> u64 {
    m.subject.parameters.number(name).unwrap_or(0)
}

/// `1 bite`, `1,024 bites`.
pub(super) fn bites(count: u64) -> String {
    match count {
        1 => "1 bite".to_owned(),
        count => format!("{} bites", grouped(count as f64, 0)),
    }
}

/// `1 Bite`, `1,024 Bites`: above a column.
pub(super) fn bites_above(count: u64) -> String {
    bites(count).replace('b', "B")
}

/// `1 person`, `1,024 people`.
pub(super) fn people(count: u64) -> String {
    match count {
        1 => "1 person".to_owned(),
        count => format!("{} people", grouped(count as f64, 0)),
    }
}
