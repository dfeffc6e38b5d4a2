//! Bars with intervals: one metric of many units.

use std::fmt::Write;

use super::markup::{escape, figure};
use super::scale::{Scale, tick};
use crate::record::{Measurement, more_is_better, value_unit};
use crate::report::number;
use crate::report::table::{Align, Table};
use crate::report::tables::NOTHING;

/// One bar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar<'a> {
    pub(super) label: &'a str,
    /// The class that gives its colour.
    pub(super) class: &'static str,
    pub(super) m: &'a Measurement,
}

/// The height of a bar with its label, and of the axis.
const ROW: usize = 42;
const AXIS: usize = 24;

/// A chart of these bars, with its table. Positions across are shares of the width, so that it
/// fits any screen with letters of the same size.
pub(super) fn chart(title: &str, sizes: &str, metric: &str, bars: &[Bar<'_>]) -> String {
    let ends = |bar: &Bar<'_>| [Some(bar.m.median), bar.m.ci_low, bar.m.ci_high];
    let values: Vec<f64> = bars.iter().flat_map(ends).flatten().collect();
    let scale = Scale::of(value_unit(metric), values.into_iter());
    let height = bars.len() * ROW + AXIS;
    let percent = |value: f64| 100.0 * scale.at(value);
    let mut svg = format!(
        "<svg height=\"{height}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&spoken(title, bars))
    );
    let floor = height - AXIS;
    for value in scale.ticks() {
        let x = percent(value);
        let anchor = if x < 4.0 {
            "start"
        } else if x > 93.0 {
            "end"
        } else {
            "middle"
        };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"{floor}\"/>\
             <text class=\"tick\" x=\"{x:.2}%\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            height - 6,
            escape(&tick(metric, value)),
        );
    }
    svg.push('\n');
    for (at, bar) in bars.iter().enumerate() {
        let top = at * ROW;
        let x = percent(bar.m.median);
        let _ = write!(
            svg,
            "<g class=\"{}\"><text x=\"0\" y=\"{}\">{}</text>\
             <text class=\"value\" x=\"100%\" y=\"{1}\" text-anchor=\"end\">{}</text>",
            bar.class,
            top + 15,
            escape(bar.label),
            escape(&number::value(metric, bar.m.median)),
        );
        let middle = top + 28;
        let _ = if scale.is_logarithmic() {
            // A bar's length would tell nothing where the axis does not begin at zero.
            write!(
                svg,
                "<line class=\"stem\" x1=\"0\" x2=\"{x:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>\
                 <circle class=\"dot\" cx=\"{x:.2}%\" cy=\"{middle}\" r=\"6\"/>"
            )
        } else {
            write!(
                svg,
                "<rect class=\"bar\" x=\"0\" width=\"{x:.2}%\" y=\"{}\" height=\"14\" rx=\"2\"/>",
                middle - 7
            )
        };
        if let (Some(low), Some(high)) = (bar.m.ci_low, bar.m.ci_high) {
            let (low, high) = (percent(low), percent(high));
            let _ = write!(
                svg,
                "<line class=\"reach\" x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"{middle}\" y2=\"{middle}\"/>"
            );
            for end in [low, high] {
                let _ = write!(
                    svg,
                    "<line class=\"reach\" x1=\"{end:.2}%\" x2=\"{end:.2}%\" y1=\"{}\" y2=\"{}\"/>",
                    middle - 5,
                    middle + 5
                );
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>");
    let mut remark = remark(metric, scale, bars);
    if !sizes.is_empty() {
        remark = format!("{sizes}. {remark}");
    }
    figure(title, &remark, &svg, &behind(bars))
}

/// How the chart is to be read.
fn remark(metric: &str, scale: Scale, bars: &[Bar<'_>]) -> String {
    let mut parts = vec![if more_is_better(metric) { "More is better" } else { "Less is better" }];
    if scale.is_logarithmic() {
        parts.push("the scale goes by powers of ten");
    }
    if bars.iter().any(|bar| bar.m.ci_low.is_some()) {
        parts.push("the line with ends is the 95% interval of the median");
    }
    format!("{}.", parts.join("; "))
}

/// What a screen reader says in place of the picture.
fn spoken(title: &str, bars: &[Bar<'_>]) -> String {
    let figures: Vec<String> = bars
        .iter()
        .map(|bar| format!("{} {}", bar.label, number::value(&bar.m.metric, bar.m.median)))
        .collect();
    format!("{title}: {}", figures.join(", "))
}

fn behind(bars: &[Bar<'_>]) -> Table {
    let mut table = Table::new("")
        .column("Unit", Align::Left)
        .column("Median", Align::Right)
        .column("From", Align::Right)
        .column("To", Align::Right)
        .column("Samples", Align::Right);
    for bar in bars {
        let bound = |end: Option<f64>| {
            end.map_or_else(|| NOTHING.into(), |end| number::value(&bar.m.metric, end))
        };
        let samples = bar.m.samples.len();
        table.rows.push(vec![
            bar.label.to_owned(),
            number::value(&bar.m.metric, bar.m.median),
            bound(bar.m.ci_low),
            bound(bar.m.ci_high),
            if samples == 0 { NOTHING.into() } else { samples.to_string() },
        ]);
    }
    table.without_empty()
}
