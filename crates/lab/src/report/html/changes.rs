//! The pages of a comparison and of a history.

use std::fmt::Write;

use super::markup::{self, escape, figure};
use super::{environment, list, page, past, subtitle};
use crate::compare::{Change, Comparison, Pair, Verdict};
use crate::record::{Record, more_is_better};
use crate::report::table::{Align, Table};

/// The page of a comparison: `cautions` before all, then what it comes to in `sentences`, the
/// figures that changed as a picture, and all of them in `table`.
pub(crate) fn comparison(
    comparison: &Comparison,
    cautions: &[String],
    sentences: Vec<String>,
    table: &Table,
) -> String {
    let cautions: String =
        cautions.iter().map(|c| format!("<li><strong>{}</strong></li>\n", escape(c))).collect();
    let cautions = match cautions.is_empty() {
        true => cautions,
        false => format!("<ul class=\"doubts\">\n{cautions}</ul>\n"),
    };
    let [old, new] = &comparison.sides;
    let sections = vec![
        ("summary", "In plain words", cautions + &list(sentences.into_iter())),
        ("charts", "What changed most", ratios(&comparison.pairs)),
        ("figures", "Every figure", sortable(table)),
        ("old", "The old side", environment(old)),
        ("new", "The new side", environment(new)),
    ];
    let sides = format!("{} → {}", subtitle(old), subtitle(new));
    let both = if subtitle(old) == subtitle(new) { subtitle(old) } else { sides };
    page("Old and New", &both, sections)
}

/// The page of a history: what `said` of it, its charts, and every point in `table`.
pub(crate) fn history(records: &[Record], said: Vec<String>, table: &Table) -> String {
    let sections = vec![
        ("summary", "In plain words", list(said.into_iter())),
        ("charts", "Charts", past::charts(records)),
        ("figures", "Every figure", sortable(table)),
        ("environment", "Where it was measured", environment(records)),
    ];
    page("What changed, and when", &subtitle(records), sections)
}

fn sortable(table: &Table) -> String {
    match table.rows.is_empty() {
        true => String::new(),
        false => markup::table(table, &table.title) + &markup::notes(&table.notes),
    }
}

/// So many changes fit a picture that somebody looks at; the table has them all.
const MOST: usize = 40;
/// The height of a row with its label and its words, and of the axis.
const ROW: usize = 58;
const AXIS: usize = 24;

/// The figures that changed beyond doubt, largest change first: the ratio with its interval, and a
/// line where nothing has changed. Rates, which are times turned upside down, are left out.
fn ratios(pairs: &[Pair]) -> String {
    let told = |pair: &&Pair| {
        matches!(pair.change.verdict, Verdict::Better | Verdict::Worse)
            && !more_is_better(&pair.new.metric)
            && pair.change.ratio > 0.0
            && pair.change.ratio.is_finite()
    };
    let mut shown: Vec<&Pair> = pairs.iter().filter(told).collect();
    shown.sort_by(|a, b| b.change.factor().total_cmp(&a.change.factor()));
    let more = shown.len().saturating_sub(MOST);
    shown.truncate(MOST);
    if shown.is_empty() {
        return String::new();
    }
    let axis = Axis::of(shown.iter().map(|pair| &pair.change));
    let floor = shown.len() * ROW;
    let height = floor + AXIS;
    let spoken: Vec<String> =
        shown.iter().map(|pair| format!("{}: {}", name(pair), words(pair))).collect();
    let mut svg = format!(
        "<svg class=\"ratios\" height=\"{height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&spoken.join("; "))
    );
    for value in axis.ticks() {
        let x = axis.at(value);
        let anchor = match x {
            x if x < 4.0 => "start",
            x if x > 93.0 => "end",
            _ => "middle",
        };
        let class = if value == 1.0 { "reach" } else { "grid" };
        let _ = write!(
            svg,
            "<line class=\"{class}\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{floor}\"/>\
             <text class=\"tick\" x=\"{x:.2}%\" y=\"{}\" text-anchor=\"{anchor}\">{value}x</text>",
            height - 6,
        );
    }
    svg.push('\n');
    for (at, pair) in shown.iter().enumerate() {
        let (top, change) = (at * ROW, &pair.change);
        let (middle, x) = (top + 45, axis.at(change.ratio));
        // The hues of threads and coroutines, which tell apart for every eye.
        let class = if change.verdict == Verdict::Worse { "thread" } else { "coroutine" };
        let _ = write!(
            svg,
            "<g class=\"{class}\"><text x=\"0\" y=\"{}\">{}</text>\
             <text class=\"value\" x=\"0\" y=\"{}\">{}</text>",
            top + 15,
            escape(&name(pair)),
            top + 32,
            escape(&words(pair)),
        );
        if let Some((low, high)) = change.interval {
            let _ = write!(
                svg,
                "<line class=\"reach\" x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>",
                axis.at(low),
                axis.at(high),
            );
        }
        let _ = writeln!(svg, "<circle class=\"dot\" cx=\"{x:.2}%\" cy=\"{middle}\" r=\"6\"/></g>");
    }
    svg.push_str("</svg>");
    let mut remark =
        "The new median by the old one, and its 95% interval; the line at 1x is where \
                      nothing has changed."
            .to_owned();
    if more > 0 {
        remark += &format!(" {more} smaller changes are in the table below.");
    }
    let chart = figure("New by old", &remark, &svg, &behind(&shown));
    format!("<div class=\"charts\">\n{chart}</div>\n")
}

/// `ruby fiber alloc, time per unit`.
fn name(pair: &Pair) -> String {
    let s = &pair.new.subject;
    format!("{} {} {}, {}", s.runtime, s.unit, s.workload, pair.new.metric.replace('_', " "))
}

fn words(pair: &Pair) -> String {
    pair.change.words(&pair.new.metric)
}

fn behind(shown: &[&Pair]) -> Table {
    let mut table = Table::new("")
        .column("Figure", Align::Left)
        .column("Change", Align::Left)
        .column("Ratio", Align::Right)
        .column("From", Align::Right)
        .column("To", Align::Right);
    for pair in shown {
        let two = |value: f64| format!("{value:.2}");
        let (low, high) = pair.change.interval.unzip();
        let bound = |end: Option<f64>| end.map_or_else(|| "–".into(), two);
        let ratio = two(pair.change.ratio);
        table.rows.push(vec![name(pair), words(pair), ratio, bound(low), bound(high)]);
    }
    table
}

/// An axis of ratios: twice as much is as far to the right as half of it is to the left.
#[derive(Clone, Copy, Debug)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of<'a>(changes: impl Iterator<Item = &'a Change>) -> Axis {
        let (mut low, mut high) = (1.0_f64, 1.0_f64);
        for change in changes {
            let (from, to) = change.interval.unwrap_or((change.ratio, change.ratio));
            low = low.min(change.ratio).min(from.max(change.ratio / 100.0));
            high = high.max(change.ratio).max(to.min(change.ratio * 100.0));
        }
        // Some room, so that nothing stands on the edge.
        let room = (high / low).powf(0.04).max(1.005);
        Axis { low: low / room, high: high * room }
    }

    /// The place of a ratio, percent of the width.
    fn at(self, ratio: f64) -> f64 {
        let place = (ratio.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln();
        100.0 * place.clamp(0.0, 1.0)
    }

    /// Round ratios along it, 1 among them: of the coarsest steps that there are three of.
    fn ticks(self) -> Vec<f64> {
        const STEPS: [&[f64]; 7] = [
            &[1e-6, 1e-3, 1.0, 1e3, 1e6],
            &[0.01, 0.1, 1.0, 10.0, 100.0],
            &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0],
            &[0.25, 0.5, 1.0, 2.0, 4.0],
            &[0.5, 0.7, 1.0, 1.4, 2.0],
            &[0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4],
            &[0.9, 0.95, 1.0, 1.05, 1.1],
        ];
        let fits = |ticks: &&[f64]| -> Vec<f64> {
            ticks.iter().copied().filter(|tick| (self.low..=self.high).contains(tick)).collect()
        };
        let all: Vec<Vec<f64>> = STEPS.iter().map(fits).collect();
        let enough = all.iter().find(|ticks| ticks.len() >= 3);
        enough.or(all.iter().max_by_key(|ticks| ticks.len())).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(ratio: f64, low: f64, high: f64) -> Change {
        Change { ratio, interval: Some((low, high)), p: Some(0.001), verdict: Verdict::Worse }
    }

    #[test]
    fn an_axis_has_one_on_it_and_few_round_ticks() {
        for (ratio, low, high) in [
            (1.06, 1.05, 1.07),
            (0.5, 0.45, 0.6),
            (3.6, 3.3, 3.9),
            (250.0, 10.0, 900.0),
            (1e-5, 1e-6, 1e-4),
        ] {
            let axis = Axis::of([change(ratio, low, high)].iter());
            let ticks = axis.ticks();
            assert!(ticks.contains(&1.0) && ticks.len() <= 7, "{ratio}: {ticks:?}");
            assert!(axis.at(low) <= axis.at(ratio) && axis.at(ratio) <= axis.at(high), "{axis:?}");
            assert!(axis.at(1.0) > 0.0 && axis.at(1.0) < 100.0, "{axis:?}");
        }
        assert_eq!(Axis { low: 0.12, high: 8.2 }.ticks(), [0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(Axis { low: 0.98, high: 3.9 }.ticks(), [1.0, 1.4, 2.0]);
        let axis = Axis { low: 0.25, high: 4.0 };
        assert!((axis.at(2.0) + axis.at(0.5) - 100.0).abs() < 1e-9, "half is as far as twice");
    }
}
