//! The main figures as one picture, for a page that shows pictures and no page of ours: a row for
//! each runtime, a column for each figure, in which the lighter unit and the thread are joined by a line
//! that is as long as one is a multiple of the other.

use maud::{Markup, PreEscaped, html};

use super::dumbbells::{Row, by_ratio};
use super::markup::class;
use super::panels::row;
use super::scale::{Scale, tick};
use super::{STYLE, subtitle};
use crate::metric::{FIGURES, Figure, Quantity};
use crate::record::Record;
use crate::report::table::FEW_SAMPLES;
use crate::report::tables::NOTHING;
use crate::report::view::{Crew, Seat, View};

/// Measures of the picture: a column's plot and the ratio behind it, and a letter of a label.
const PLOT: usize = 215;
const RATIO: usize = 62;
const COLUMN: usize = PLOT + RATIO + 22;
const LETTER: f64 = 6.9;
const ROW: usize = 24;
const HEAD: usize = 92;
const FOOT: usize = 64;
const EDGE: usize = 20;

/// The picture; one line that says so where a record has nothing to draw.
pub(in crate::report) fn render(records: &[Record]) -> String {
    let view = View::new(records);
    let crews = view.crews();
    let column = |figure: &'static Figure| {
        let rows: Vec<Row<'_>> = crews.iter().map(|crew| row(&view, crew, figure)).collect();
        rows.iter().any(|row| row.known().next().is_some()).then_some((figure, rows))
    };
    let shown = FIGURES.iter().filter(|figure| !figure.column.is_empty());
    let mut columns: Vec<(&Figure, Vec<Row<'_>>)> = shown.filter_map(column).collect();
    let Some((first, leading)) = columns.first() else {
        let nothing = "There is nothing to draw: no alloc, switch or parked.";
        return frame(640, 80, "Nothing to draw", &text("", (EDGE, 45), nothing));
    };
    // Rows that any column has, by the ratios of the first.
    let names: Vec<_> = columns.iter().map(|(figure, _)| figure.name()).collect();
    let mut order: Vec<usize> =
        (0..crews.len()).filter(|&at| crews[at].says(&view, &names)).collect();
    order.sort_by(|&a, &b| by_ratio(first.metric.quantity, &leading[a], &leading[b]));
    let sorted = first.column.to_lowercase();
    for (_, rows) in &mut columns {
        *rows = order.iter().map(|&at| rows[at].clone()).collect();
    }
    let labels: Vec<String> = order.iter().map(|&at| label(&crews[at])).collect();
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let left = EDGE + (longest as f64 * LETTER) as usize + 20;
    let floor = HEAD + order.len() * ROW;
    let (width, height) = (left + columns.len() * COLUMN + EDGE, floor + FOOT);
    let known = || columns.iter().flat_map(|(_, rows)| rows).flat_map(Row::known);
    let seats = Seat::ALL.into_iter().filter(|seat| known().any(|(known, _)| known == *seat));
    let remark = format!(
        "Less is better. A line is as long as the ratio of its ends, which is at its right; scales go \
         by powers. Sorted by {sorted}."
    );
    let few = match known().any(|(_, m)| m.is_rough()) {
        true => format!(" {FEW_SAMPLES}"),
        false => String::new(),
    };
    let intervals = "Lines through dots are 95% intervals of the median.";
    let drawing = html! {
        (text("title", (EDGE, 36), "What fibers and threads cost"))
        (legend(width, &seats.collect::<Vec<_>>()))
        @for (at, label) in labels.iter().enumerate() {
            (text("", (EDGE, HEAD + at * ROW + 16), label))
        }
        @for (number, (figure, rows)) in columns.iter().enumerate() {
            @let left = left + number * COLUMN;
            (text("value", (left, 66), figure.column))
            (plot(left, floor, figure.metric.quantity, rows))
        }
        (text("tick", (EDGE, floor + 38), &remark))
        (text("tick", (EDGE, floor + 54), &format!("{intervals}{few} {}.", subtitle(records))))
    };
    frame(width, height, "Fibers and threads", &drawing)
}

/// A crew's name on one line: `ruby 3.1.2 (task)`.
fn label(crew: &Crew<'_>) -> String {
    crew.label.replace("\n(", " (").replace('\n', ", ")
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
fn legend(width: usize, seats: &[Seat]) -> Markup {
    html! {
        @for (at, seat) in seats.iter().enumerate() {
            @let x = width - EDGE - 110 * (seats.len() - at);
            g class=(class(*seat)) {
                circle class="dot" cx=(x) cy="31" r="6" {}
                (text("", (x + 12, 36), seat.title()))
            }
        }
    }
}

/// One column: the scale, and for each row its dots, their intervals, and the line and the ratio between
/// them.
fn plot(left: usize, floor: usize, quantity: Quantity, rows: &[Row<'_>]) -> Markup {
    let known = rows.iter().flat_map(Row::known);
    let values: Vec<f64> =
        known.flat_map(|(_, m)| [Some(m.median), m.ci_low, m.ci_high]).flatten().collect();
    let scale = Scale::of_ratios(quantity, values.into_iter());
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
        @for (at, row) in rows.iter().enumerate() {
            @let y = HEAD + at * ROW + 11;
            @if let (Some((light, thread)), Some(_)) = (row.compared(), row.ratio(quantity)) {
                line class="handle" x1=(across(light.median)) x2=(across(thread.median)) y1=(y) y2=(y) {}
            }
            @for (seat, m) in row.known() {
                g class=(class(seat)) {
                    circle class="dot" cx=(across(m.median)) cy=(y) r="5" {
                        title { (m.subject.unit) ": " (m.shown()) }
                    }
                    @if let (Some(low), Some(high), false) = (m.ci_low, m.ci_high, m.is_rough()) {
                        line class="reach" x1=(across(low)) x2=(across(high)) y1=(y) y2=(y) {}
                    }
                }
            }
            @let ratio = row.shown_ratio(quantity);
            text class=(if ratio == NOTHING { "tick" } else { "value" }) x=(left + PLOT + RATIO)
                y=(y + 5) text-anchor="end" { (ratio) }
            "\n"
        }
    }
}
