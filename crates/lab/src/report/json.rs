//! A record as JSON, one figure a line, so that a person can read it and `diff` can compare it.

use serde::Serialize;

use crate::record::Record;

pub(super) fn render(record: &Record) -> String {
    // Taken apart by name, so that a new part of a record cannot be left out.
    let Record { schema, environment, run, warnings, failures, results, trials } = record;
    let parts = [
        ("schema", compact(schema)),
        ("environment", compact(environment)),
        ("run", compact(run)),
        ("warnings", lines(warnings)),
        ("failures", lines(failures)),
        ("results", lines(results)),
        ("trials", lines(trials)),
    ];
    let parts = parts.map(|(key, value)| format!("  \"{key}\": {value}"));
    format!("{{\n{}\n}}\n", parts.join(",\n"))
}

fn compact(part: &impl Serialize) -> String {
    // Plain data with string keys always has a JSON form.
    serde_json::to_string(part).expect("a record is plain data")
}

fn lines<T: Serialize>(items: &[T]) -> String {
    if items.is_empty() {
        return "[]".into();
    }
    let items: Vec<String> = items.iter().map(|item| format!("    {}", compact(item))).collect();
    format!("[\n{}\n  ]", items.join(",\n"))
}
