//! The pages of a comparison and of a history.

use maud::{Markup, html};

use super::markup::{self, figure, grid, list, percent};
use super::scale::Scale;
use super::strips::{self, Strip};
use super::{environment, page, past, subtitle};
use crate::compare::{Change, Comparison, Pair, UNTESTED, Verdict};
use crate::metric;
use crate::record::Record;
use crate::report::table::Table;

/// The page of a comparison: first `cautions`, then its outcome in `sentences`, a picture of the
/// figures that changed, and all figures in `table`.
pub(crate) fn comparison(
    comparison: &Comparison,
    cautions: &[String],
    sentences: &[String],
    table: &Table,
) -> String {
    let summary = html! {
        @if !cautions.is_empty() {
            ul class="doubts" { @for caution in cautions { li { strong { (caution) } } } }
        }
        (list(None, sentences))
    };
    let [old, new] = &comparison.sides;
    let sections = vec![
        ("summary", "In plain words", summary),
        ("charts", "What changed most", ratios(&comparison.told())),
        ("changes", "Every figure", sortable(table)),
        ("old", "The old side", environment(old)),
        ("new", "The new side", environment(new)),
    ];
    let (before, after) = (subtitle(old), subtitle(new));
    let both = if before == after { after } else { format!("{before} → {after}") };
    page("Old and New", &both, &html! {}, sections)
}

/// The page of a history: what `said` of it, its charts, and every point in `table`.
pub(crate) fn history(records: &[Record], said: &[String], table: &Table) -> String {
    let sections = vec![
        ("summary", "In plain words", list(None, said)),
        ("charts", "Charts", past::charts(records)),
        ("figures", "Every figure", sortable(table)),
        ("environment", "Where it was measured", environment(records)),
    ];
    page("What changed, and when", &subtitle(records), &html! {}, sections)
}

fn sortable(table: &Table) -> Markup {
    html! { @if !table.rows.is_empty() { (markup::table(table, &table.title)) } }
}

/// The most changes that the picture shows; the table has them all.
const MOST: usize = 40;
/// The height of a row with its label and its words, and of the axis.
const ROW: usize = 58;
/// A label with more letters than a line of a phone has is broken, and all rows are this much higher.
const LINE: usize = 40;
const MORE: usize = 17;
const AXIS: usize = 24;

/// The figures that changed beyond doubt, or a lot where nothing tells, largest change first: each ratio with its interval, and a
/// line at 1. Rates are left out, for they have no room on an axis where more is worse.
fn ratios(pairs: &[&Pair]) -> Markup {
    let told = |pair: &&Pair| {
        let is_shown = match pair.change.verdict {
            Verdict::Better | Verdict::Worse => true,
            // Published figures have no samples: what changed a lot is shown, and marked.
            Verdict::Untested => pair.change.factor() >= UNTESTED,
            Verdict::NoneShown => false,
        };
        is_shown
            && !pair.new.quantity().more_is_better()
            && pair.change.ratio > 0.0
            && pair.change.ratio.is_finite()
    };
    let mut shown: Vec<&Pair> = pairs.iter().copied().filter(told).collect();
    shown.sort_by(|a, b| b.change.factor().total_cmp(&a.change.factor()));
    let more = shown.len().saturating_sub(MOST);
    shown.truncate(MOST);
    if shown.is_empty() {
        return html! {};
    }
    let axis = axis(shown.iter().map(|pair| &pair.change));
    let labels: Vec<[String; 2]> = shown.iter().map(|pair| lines(&name(pair))).collect();
    let room = if labels.iter().any(|[_, rest]| !rest.is_empty()) { MORE } else { 0 };
    let height = ROW + room;
    let floor = shown.len() * height;
    let ticks = ticks(axis).into_iter().map(|value| {
        let class = if value == 1.0 { "reach" } else { "grid" };
        (axis.at(value), format!("{value}x"), class)
    });
    let spoken: Vec<String> =
        shown.iter().map(|pair| format!("{}: {}", name(pair), words(pair))).collect();
    let svg = html! {
        svg class="ratios" height=(floor + AXIS) role="img" aria-label=(spoken.join("; ")) {
            (grid(ticks, floor, floor + AXIS - 6))
            @for ((at, pair), label) in shown.iter().enumerate().zip(&labels) {
                (row(axis, at * height, pair, label))
            }
        }
    };
    let mut remark =
        "The new median by the old one, and its 95% interval; the line at 1x is where \
                      nothing has changed."
            .to_owned();
    if shown.iter().any(|pair| pair.change.verdict == Verdict::Untested) {
        remark += " Rings are of figures without samples: nothing tells their change from chance.";
    }
    if more > 0 {
        remark += &format!(" {more} smaller changes are in the table below.");
    }
    let behind_it = behind(&shown);
    html! { div class="charts" { (figure("New by old", None, &remark, &svg, &samples(&shown), &behind_it)) } }
}

/// The samples of both sides of each figure, on a scale of its own.
fn samples(shown: &[&Pair]) -> Markup {
    let plots: Vec<(String, Markup)> = shown
        .iter()
        .map(|pair| {
            let class = if pair.change.ratio > 1.0 { "thread" } else { "coroutine" };
            let strip = |label: &str, class, m| Strip { label: label.into(), class, m };
            let sides = [strip("old", "open", &pair.old), strip("new", class, &pair.new)];
            (name(pair), strips::plot(&name(pair), pair.new.quantity(), &sides))
        })
        .filter(|(_, plot)| !plot.0.is_empty())
        .collect();
    html! {
        @if !plots.is_empty() { p class="soft" { (strips::READING) } }
        @for (name, plot) in &plots { h4 { (name) } (plot) }
    }
}

/// A label in one line, or in two if it is long: broken before the workload, where it says what.
fn lines(label: &str) -> [String; 2] {
    let middle = label.rsplit_once(", ").map_or(label.len(), |(head, _)| head.len());
    match label[..middle].rfind(' ').filter(|_| label.chars().count() > LINE) {
        Some(at) => [label[..at].to_owned(), label[at + 1..].to_owned()],
        None => [label.to_owned(), String::new()],
    }
}

fn row(axis: Scale, top: usize, pair: &Pair, [first, rest]: &[String; 2]) -> Markup {
    let change = &pair.change;
    let words_at = top + 32 + if rest.is_empty() { 0 } else { MORE };
    let (middle, at) = (words_at + 13, |ratio| percent(axis.at(ratio)));
    // The hues of threads and coroutines, which colour-blind readers can tell apart. (Rates, of which
    // more is better, are not shown.)
    let class = if change.ratio > 1.0 { "thread" } else { "coroutine" };
    let is_untested = change.verdict == Verdict::Untested;
    html! {
        g class=(class) {
            text x="0" y=(top + 15) { (first) }
            @if !rest.is_empty() { text x="0" y=(top + 15 + MORE) { (rest) } }
            text class="value" x="0" y=(words_at) { (words(pair)) }
            @if let Some((low, high)) = change.interval {
                line class="reach" x1=(at(low)) x2=(at(high)) y1=(middle) y2=(middle) {}
            }
            circle class=(if is_untested { "untested" } else { "dot" }) cx=(at(change.ratio))
                cy=(middle) r="6" {}
        }
        "\n"
    }
}

/// `ruby fiber alloc, time per unit`.
fn name(pair: &Pair) -> String {
    let subject = pair.new.subject.spoken_since(&pair.old.subject);
    format!("{subject}, {}", metric::spoken(&pair.new.metric))
}

fn words(pair: &Pair) -> String {
    pair.change.words(&pair.new.metric)
}

fn behind(shown: &[&Pair]) -> Table {
    let mut table = Table::new("").left(["Figure", "Change"]).right(["Ratio", "From", "To"]);
    for pair in shown {
        let two = |value: f64| format!("{value:.2}");
        let (low, high) = pair.change.interval.unzip();
        let bound = |end: Option<f64>| end.map_or_else(|| "–".into(), two);
        let ratio = two(pair.change.ratio);
        table.rows.push(vec![name(pair), words(pair), ratio, bound(low), bound(high)]);
    }
    table
}

/// An axis of ratios, with 1 on it: twice as much is as far to the right as half of it is to the left.
fn axis<'a>(changes: impl Iterator<Item = &'a Change>) -> Scale {
    let (mut low, mut high) = (1.0_f64, 1.0_f64);
    for change in changes {
        let (from, to) = change.interval.unwrap_or((change.ratio, change.ratio));
        low = low.min(change.ratio).min(from.max(change.ratio / 100.0));
        high = high.max(change.ratio).max(to.min(change.ratio * 100.0));
    }
    // A margin, so that no mark lies on the edge.
    let room = (high / low).powf(0.04).max(1.005);
    Scale::logarithmic(low / room, high * room)
}

/// Round ratios along an axis, 1 among them: of the coarsest steps that there are three of.
fn ticks(axis: Scale) -> Vec<f64> {
    const STEPS: [&[f64]; 7] = [
        &[1e-6, 1e-3, 1.0, 1e3, 1e6],
        &[0.01, 0.1, 1.0, 10.0, 100.0],
        &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0],
        &[0.25, 0.5, 1.0, 2.0, 4.0],
        &[0.5, 0.7, 1.0, 1.4, 2.0],
        &[0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4],
        &[0.9, 0.95, 1.0, 1.05, 1.1],
    ];
    let fits = |ticks: &&[f64]| -> Vec<f64> {
        ticks.iter().copied().filter(|tick| axis.holds(*tick)).collect()
    };
    let all: Vec<Vec<f64>> = STEPS.iter().map(fits).collect();
    let enough = all.iter().find(|ticks| ticks.len() >= 3);
    enough.or(all.iter().max_by_key(|ticks| ticks.len())).cloned().unwrap_or_default()
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
            let axis = axis([change(ratio, low, high)].iter());
            let ticks = ticks(axis);
            assert!(ticks.contains(&1.0) && ticks.len() <= 7, "{ratio}: {ticks:?}");
            assert!(axis.at(low) <= axis.at(ratio) && axis.at(ratio) <= axis.at(high), "{axis:?}");
            assert!(axis.at(1.0) > 0.0 && axis.at(1.0) < 1.0, "{axis:?}");
        }
        assert_eq!(ticks(Scale::logarithmic(0.12, 8.2)), [0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(ticks(Scale::logarithmic(0.98, 3.9)), [1.0, 1.4, 2.0]);
        let axis = Scale::logarithmic(0.25, 4.0);
        assert!((axis.at(2.0) + axis.at(0.5) - 1.0).abs() < 1e-9, "half is as far as twice");
    }
}
