//! The main figures as one picture, for a page that shows pictures and no page of ours: a row for
//! each unit, a column for each figure.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::markup::escape;
use super::panels::{class, label};
use super::scale::{Scale, tick};
use super::{STYLE, subtitle};
use crate::record::{Measurement, Record, value_unit};
use crate::report::number;
use crate::report::view::{Seat, View, Who};

/// What the columns show, from left to right.
const COLUMNS: [(&str, &str, &str); 3] = [
    ("alloc", "time_per_unit", "Time of a unit, to its end"),
    ("switch", "time_per_switch", "Time of a switch"),
    ("parked", "whole_memory_per_unit", "Memory of a unit"),
];

/// Measures of the picture: the labels' column, a column's plot and the figure behind it.
const LABELS: usize = 240;
const PLOT: usize = 190;
const VALUE: usize = 80;
const COLUMN: usize = PLOT + VALUE + 20;
const ROW: usize = 24;
const HEAD: usize = 92;
const FOOT: usize = 64;
const EDGE: usize = 20;

/// The picture; one line that says so where a record has nothing to draw.
pub(in crate::report) fn render(records: &[Record]) -> String {
    let view = View::new(records);
    let mut seen = BTreeSet::new();
    let mut units: Vec<(Who<'_>, Seat)> = Vec::new();
    for crew in view.crews() {
        for seat in Seat::ALL {
            units.extend(crew.at(seat).filter(|who| seen.insert(*who)).map(|who| (who, seat)));
        }
    }
    let found =
        |who: Who<'_>, (workload, metric, _): &(&str, &str, &str)| view.find(who, workload, metric);
    units.retain(|(who, _)| COLUMNS.iter().any(|column| found(*who, column).is_some()));
    let columns = COLUMNS.iter().filter(|c| units.iter().any(|(who, _)| found(*who, c).is_some()));
    let columns: Vec<_> = columns.collect();
    if columns.is_empty() {
        return frame(640, 80, "Nothing to draw", |svg| {
            text(svg, "", (EDGE, 45), "There is nothing to draw: no alloc, switch or parked.");
        });
    }
    let floor = HEAD + units.len() * ROW;
    let (width, height) = (EDGE + LABELS + columns.len() * COLUMN + EDGE, floor + FOOT);
    frame(width, height, "Fibers and threads", |svg| {
        text(svg, "title", (EDGE, 36), "What fibers and threads cost");
        legend(svg, width, &units);
        for (at, (who, seat)) in units.iter().enumerate() {
            let place = (EDGE, HEAD + at * ROW + 16);
            let _ = write!(svg, "<g class=\"{}\">", class(*seat));
            text(svg, "", place, &label(&view, *who));
            svg.push_str("</g>\n");
        }
        for (number, column) in columns.iter().enumerate() {
            let left = EDGE + LABELS + number * COLUMN;
            text(svg, "value", (left, 66), column.2);
            let rows: Vec<(usize, Seat, &Measurement)> = units
                .iter()
                .enumerate()
                .filter_map(|(at, (who, seat))| Some((at, *seat, found(*who, column)?)))
                .collect();
            plot(svg, left, floor, column.1, &rows);
        }
        let remark = "Less is better. Scales that do not begin at zero go by powers of ten. Lines \
                      through dots are 95% intervals of the median.";
        text(svg, "tick", (EDGE, floor + 38), remark);
        text(svg, "tick", (EDGE, floor + 54), &subtitle(records));
    })
}

fn frame(width: usize, height: usize, title: &str, fill: impl FnOnce(&mut String)) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<style>\n\
         {STYLE}svg {{ color: var(--ink); font-family: system-ui, sans-serif; }}\n\
         svg .title {{ font-size: 19px; font-weight: 600; }}\n</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" style=\"fill: var(--card)\"/>\n"
    );
    fill(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

fn text(svg: &mut String, class: &str, (x, y): (usize, usize), text: &str) {
    let text = escape(text);
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
}

/// Which colour is which, at the upper right.
fn legend(svg: &mut String, width: usize, units: &[(Who<'_>, Seat)]) {
    let seats = Seat::ALL.into_iter().filter(|seat| units.iter().any(|(_, known)| known == seat));
    for (at, seat) in seats.enumerate() {
        let x = width - EDGE - 110 * (Seat::ALL.len() - at);
        let _ = write!(
            svg,
            "<g class=\"{}\"><circle class=\"dot\" cx=\"{x}\" cy=\"31\" r=\"6\"/>",
            class(seat)
        );
        text(svg, "", (x + 12, 36), seat.title());
        svg.push_str("</g>\n");
    }
}

/// One column: the scale, and for each row its dot, interval and figure.
fn plot(
    svg: &mut String,
    left: usize,
    floor: usize,
    metric: &str,
    rows: &[(usize, Seat, &Measurement)],
) {
    let ends = |m: &Measurement| [Some(m.median), m.ci_low, m.ci_high];
    let values: Vec<f64> = rows.iter().flat_map(|(.., m)| ends(m)).flatten().collect();
    let scale = Scale::of(value_unit(metric), values.into_iter());
    let across = |value: f64| left as f64 + PLOT as f64 * scale.at(value);
    let ticks = scale.ticks();
    // More than four labels meet here: every other one, and not that of the edge.
    let named = |at: usize| ticks.len() <= 4 || at % 2 == 1;
    for (at, &value) in ticks.iter().enumerate() {
        let x = across(value);
        let name = if named(at) { escape(&tick(metric, value)) } else { String::new() };
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{floor}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEAD - 10,
            floor + 16,
            name
        );
    }
    for (at, seat, m) in rows {
        let y = HEAD + at * ROW + 11;
        let x = across(m.median);
        let _ = write!(
            svg,
            "<g class=\"{}\"><line class=\"stem\" x1=\"{left}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
             <circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y}\" r=\"5\"/>",
            class(*seat)
        );
        if let (Some(low), Some(high)) = (m.ci_low, m.ci_high) {
            let (low, high) = (across(low), across(high));
            let _ = write!(
                svg,
                "<line class=\"reach\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{y}\" y2=\"{y}\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"value\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></g>",
            left + PLOT + VALUE,
            y + 5,
            escape(&number::value(metric, m.median))
        );
    }
}
