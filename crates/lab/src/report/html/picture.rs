//! The main figures as one picture, for a page that shows pictures and no page of ours: a row for
//! each unit, a column for each figure.

use maud::{Markup, PreEscaped, html};

use super::markup::class;
use super::panels::label;
use super::scale::{Scale, tick};
use super::{STYLE, subtitle};
use crate::metric::{FIGURES, Figure, Quantity};
use crate::record::{Measurement, Record};
use crate::report::view::{Seat, View, Who};

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
    let mut units = view.units();
    let found = |who: Who<'_>, figure: &Figure| view.find(who, figure.name());
    let mut columns: Vec<&Figure> = FIGURES.iter().filter(|f| !f.column.is_empty()).collect();
    units.retain(|(who, _)| columns.iter().any(|column| found(*who, column).is_some()));
    columns.retain(|column| units.iter().any(|(who, _)| found(*who, column).is_some()));
    if columns.is_empty() {
        let nothing = "There is nothing to draw: no alloc, switch or parked.";
        return frame(640, 80, "Nothing to draw", &text("", (EDGE, 45), nothing));
    }
    let floor = HEAD + units.len() * ROW;
    let (width, height) = (EDGE + LABELS + columns.len() * COLUMN + EDGE, floor + FOOT);
    let rows = || units.iter().flat_map(|(who, _)| columns.iter().map(|c| found(*who, c)));
    let few = match rows().flatten().any(|m| m.is_rough()) {
        true => " Marked *: of fewer than three samples.",
        false => "",
    };
    let remark = "Less is better. Scales that do not begin at zero go by powers. Lines \
                  through dots are 95% intervals of the median.";
    let remark = format!("{remark}{few}");
    let drawing = html! {
        (text("title", (EDGE, 36), "What fibers and threads cost"))
        (legend(width, &units))
        @for (at, (who, seat)) in units.iter().enumerate() {
            g class=(class(*seat)) {
                (text("", (EDGE, HEAD + at * ROW + 16), &label(&view, *who)))
            }
        }
        @for (number, column) in columns.iter().enumerate() {
            @let left = EDGE + LABELS + number * COLUMN;
            @let rows = units.iter().enumerate().filter_map(|(at, (who, seat))| {
                Some((at, *seat, found(*who, column)?))
            });
            (text("value", (left, 66), column.column))
            (plot(left, floor, column.metric.quantity, &rows.collect::<Vec<_>>()))
        }
        (text("tick", (EDGE, floor + 38), &remark))
        (text("tick", (EDGE, floor + 54), &subtitle(records)))
    };
    frame(width, height, "Fibers and threads", &drawing)
}

fn frame(width: usize, height: usize, title: &str, drawing: &Markup) -> String {
    let own = "svg { color: var(--ink); font-family: system-ui, sans-serif; }\n\
               svg .title { font-size: 19px; font-weight: 600; }\n";
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (width) " " (height) }
            width=(width) height=(height) role="img" aria-label=(title) {
            style { (PreEscaped(STYLE)) (PreEscaped(own)) }
            rect width=(width) height=(height) rx="8" style="fill: var(--card)" {}
            (drawing)
        }
        "\n"
    };
    picture.into_string()
}

fn text(class: &str, (x, y): (usize, usize), text: &str) -> Markup {
    html! { text class=(class) x=(x) y=(y) { (text) } "\n" }
}

/// Which colour is which, at the upper right.
fn legend(width: usize, units: &[(Who<'_>, Seat)]) -> Markup {
    let seats = Seat::ALL.into_iter().filter(|seat| units.iter().any(|(_, known)| known == seat));
    html! {
        @for (at, seat) in seats.enumerate() {
            @let x = width - EDGE - 110 * (Seat::ALL.len() - at);
            g class=(class(seat)) {
                circle class="dot" cx=(x) cy="31" r="6" {}
                (text("", (x + 12, 36), seat.title()))
            }
        }
    }
}

/// One column: the scale, and for each row its dot, interval and figure.
fn plot(
    left: usize,
    floor: usize,
    quantity: Quantity,
    rows: &[(usize, Seat, &Measurement)],
) -> Markup {
    let ends = |m: &Measurement| [Some(m.median), m.ci_low, m.ci_high];
    let values: Vec<f64> = rows.iter().flat_map(|(.., m)| ends(m)).flatten().collect();
    let scale = Scale::of(quantity, values.into_iter());
    let across = |value: f64| format!("{:.1}", left as f64 + PLOT as f64 * scale.at(value));
    let ticks = scale.ticks();
    // More than four labels meet here: every other one, and not that of the edge.
    let named = |at: usize| ticks.len() <= 4 || at % 2 == 1;
    html! {
        @for (at, &value) in ticks.iter().enumerate() {
            @let x = across(value);
            line class="grid" x1=(x) x2=(x) y1=(HEAD - 10) y2=(floor) {}
            text class="tick" x=(x) y=(floor + 16) text-anchor="middle" {
                @if named(at) { (tick(quantity, value)) }
            }
        }
        @for (at, seat, m) in rows {
            @let (x, y) = (across(m.median), HEAD + at * ROW + 11);
            g class=(class(*seat)) {
                line class="stem" x1=(left) x2=(x) y1=(y) y2=(y) {}
                circle class="dot" cx=(x) cy=(y) r="5" {}
                @if let (Some(low), Some(high), false) = (m.ci_low, m.ci_high, m.is_rough()) {
                    line class="reach" x1=(across(low)) x2=(across(high)) y1=(y) y2=(y) {}
                }
                text class="value" x=(left + PLOT + VALUE) y=(y + 5) text-anchor="end" {
                    (m.shown())
                }
            }
            "\n"
        }
    }
}
