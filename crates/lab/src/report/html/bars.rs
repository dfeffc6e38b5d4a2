//! Bars with intervals: one metric of many units.

use carefree_workloads::named::distinct;
use maud::{Markup, html};

use super::markup::{figure, grid, joined, legend, percent};
use super::scale::{Scale, tick};
use super::sources;
use super::strips::{self, Strip};
use crate::metric::Quantity;
use crate::record::Measurement;
use crate::report::table::FEW_SAMPLES;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar<'a> {
    pub(super) label: String,
    /// In a chart of several runtimes, which one can be left out, its name.
    pub(super) runtime: Option<&'a str>,
    /// The class that gives its colour, and what that colour stands for.
    pub(super) class: &'static str,
    pub(super) kind: &'static str,
    pub(super) m: &'a Measurement,
}

/// The height of a bar with its label, and of the axis.
const ROW: usize = 42;
const AXIS: usize = 24;
/// The size of the dot at the end of a bar.
const DOT: usize = 6;

/// A chart of these bars, with its table. Positions across are shares of the width, so that it
/// fits any screen with letters of the same size.
pub(super) fn chart(title: &str, sizes: &str, quantity: Quantity, bars: &[Bar<'_>]) -> Markup {
    let ends = |bar: &Bar<'_>| [Some(bar.m.median), bar.m.ci_low, bar.m.ci_high];
    let values: Vec<f64> = bars.iter().flat_map(ends).flatten().collect();
    let scale = Scale::of(quantity, values.into_iter());
    let height = bars.len() * ROW + AXIS;
    let ticks = scale.ticks().into_iter();
    let ticks = ticks.map(|value| (scale.at(value), tick(quantity, value), "grid"));
    let mut kinds = distinct(bars.iter().map(|bar| (bar.class, bar.kind, DOT)));
    kinds.sort_by_key(|(_, kind, _)| *kind);
    let svg = html! {
        (legend(&kinds))
        // The script looks for rows there.
        svg class=[bars.iter().any(|bar| bar.runtime.is_some()).then_some("dumbbells")]
            height=(height) style={ "--rows:" (bars.len()) } role="img" aria-label=(spoken(title, bars)) {
            (grid(ticks, height - AXIS, height - 6))
            @for (at, bar) in bars.iter().enumerate() {
                g class=[bar.runtime.map(|_| "row")] data-runtime=[bar.runtime]
                    data-name=[bar.runtime.map(|_| &bar.label)] data-best=[bar.runtime.map(|_| at)]
                    transform={ "translate(0 " (at * ROW) ")" } { (row(scale, bar)) }
            }
        }
    };
    let mut remark = remark(quantity, scale, bars);
    if !sizes.is_empty() {
        remark = format!("{sizes}. {remark}");
    }
    let mut all = Vec::new();
    for Bar { label, class, m, .. } in bars {
        all.push(Strip { label: label.clone(), class, m });
    }
    let more = html! {
        (strips::strips(title, quantity, &all))
        (sources::links(bars.iter().map(|bar| bar.m)))
    };
    let named = bars.iter().any(|bar| bar.runtime.is_some());
    let runtimes = joined(bars.iter().map(|bar| &*bar.m.subject.runtime));
    figure(title, (!named).then_some(&*runtimes), &remark, &svg, &more, &strips::table(&all))
}

fn row(scale: Scale, bar: &Bar<'_>) -> Markup {
    const MIDDLE: usize = 28;
    let at = |value| percent(scale.at(value));
    let x = at(bar.m.median);
    html! {
        g class=(bar.class) {
            text x="0" y="15" { (bar.label) }
            text class="value" x="100%" y="15" text-anchor="end" { (bar.m.shown()) }
            @if scale.is_logarithmic() {
                // A bar's length would tell nothing where the axis does not begin at zero.
                line class="stem" x1="0" x2=(x) y1=(MIDDLE) y2=(MIDDLE) {}
                circle class="dot" cx=(x) cy=(MIDDLE) r=(DOT) {}
            } @else {
                rect class="bar" x="0" width=(x) y=(MIDDLE - 7) height="14" rx="2" {}
            }
            // Of a few samples it would be these themselves.
            @if let (Some(low), Some(high), false) = (bar.m.ci_low, bar.m.ci_high, bar.m.is_rough()) {
                line class="reach" x1=(at(low)) x2=(at(high)) y1=(MIDDLE) y2=(MIDDLE) {}
                @for end in [at(low), at(high)] {
                    line class="reach" x1=(end) x2=(end) y1=(MIDDLE - 5) y2=(MIDDLE + 5) {}
                }
            }
        }
        "\n"
    }
}

/// How the chart is to be read.
fn remark(quantity: Quantity, scale: Scale, bars: &[Bar<'_>]) -> String {
    let mut parts = vec![direction(quantity)];
    parts.extend(powers(scale));
    if bars.iter().any(|bar| bar.m.ci_low.is_some() && !bar.m.is_rough()) {
        parts.push("the line with ends is the 95% interval of the median");
    }
    let few = bars.iter().any(|bar| bar.m.is_rough());
    let few = if few { format!(" {FEW_SAMPLES}") } else { String::new() };
    format!("{}.{few}", parts.join("; "))
}

/// How a scale goes that does not begin at zero.
pub(super) fn powers(scale: Scale) -> Option<&'static str> {
    scale.is_logarithmic().then_some(match scale.is_binary() {
        true => "the scale goes by powers of two",
        false => "the scale goes by powers of ten",
    })
}

/// Which way is better.
pub(super) fn direction(quantity: Quantity) -> &'static str {
    if quantity.more_is_better() { "More is better" } else { "Less is better" }
}

/// What a screen reader says in place of the picture.
fn spoken(title: &str, bars: &[Bar<'_>]) -> String {
    let figures: Vec<String> =
        bars.iter().map(|bar| format!("{} {}", bar.label, bar.m.shown())).collect();
    format!("{title}: {}", figures.join(", "))
}
