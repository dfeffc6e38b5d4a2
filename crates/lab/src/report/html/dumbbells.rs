//! One figure of every runtime: a row for each, its fiber and its thread joined by a line, which is as
//! long as one is a multiple of the other.

use std::cmp::{Ordering, Reverse};
use std::collections::HashSet;

use maud::{Markup, html};

use super::bars::{direction, powers};
use super::markup::{figure, grid, legend, percent};
use super::scale::{Scale, tick};
use super::sources;
use super::strips::{self, Strip};
use crate::metric::Quantity;
use crate::number::{MARK, times};
use crate::record::Measurement;
use crate::report::crowds::are_comparable;
use crate::report::table::{Align, FEW_SAMPLES, Table};
use crate::report::tables::NOTHING;
use crate::report::view::Seat;

/// What a runtime has.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    /// `ruby 3.3.8`.
    pub(super) label: String,
    /// The runtime's name alone, to be filtered by.
    pub(super) runtime: String,
    /// The machine, where there are several.
    pub(super) place: String,
    /// Its coroutine, fiber and thread.
    pub(super) seats: [Option<&'a Measurement>; 3],
    /// The same work without any of them, one part after the other.
    pub(super) alone: Option<&'a Measurement>,
}

/// What has a dot, in the order of the legend: the class that gives its colour, its name, and its size. The
/// seats come first. Larger dots lie below smaller ones, so that all are seen where values are alike.
const KINDS: [(&str, &str, usize); 4] = [
    ("coroutine", "Coroutine", 8),
    ("fiber", "Fiber", 6),
    ("thread", "Thread", 6),
    ("alone", "One after the other", 8),
];

/// The height of a row with its label, and of the axis.
const ROW: usize = 40;
const AXIS: usize = 24;

/// The most rows that are drawn: a page with those of hundreds of machines would be too large for a
/// browser. The table has all.
const MOST: usize = 100;

impl Row<'_> {
    fn at(&self, seat: Seat) -> Option<&Measurement> {
        self.seats[seat as usize]
    }

    /// How many times better the lighter unit does than the thread.
    pub(super) fn ratio(&self, quantity: Quantity) -> Option<f64> {
        let (light, thread) = self.compared()?;
        let ratio = thread.median / light.median;
        let ratio = if quantity.more_is_better() { ratio.recip() } else { ratio };
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// The lighter unit and the thread, where their crowds can be compared.
    pub(super) fn compared(&self) -> Option<(&Measurement, &Measurement)> {
        let light = self.at(Seat::Fiber).or(self.at(Seat::Coroutine))?;
        let both = (light, self.at(Seat::Thread)?);
        are_comparable(both.0, both.1).then_some(both)
    }

    /// Whether the ratio rests on a few samples.
    fn is_rough(&self) -> bool {
        self.compared().is_some_and(|(one, other)| one.is_rough() || other.is_rough())
    }

    /// The ratio as it is written, with the mark where it rests on a few samples.
    pub(super) fn shown_ratio(&self, quantity: Quantity) -> String {
        let mark = if self.is_rough() { MARK.to_string() } else { String::new() };
        self.ratio(quantity).map_or_else(|| NOTHING.into(), |ratio| times(ratio) + &mark)
    }

    pub(super) fn known(&self) -> impl Iterator<Item = (Seat, &Measurement)> {
        Seat::ALL.into_iter().filter_map(|seat| Some((seat, self.at(seat)?)))
    }

    /// What it has of each of [`KINDS`].
    fn all(&self) -> [Option<&Measurement>; 4] {
        let [coroutine, fiber, thread] = self.seats;
        [coroutine, fiber, thread, self.alone]
    }

    /// Its dots, each with its place in [`KINDS`].
    fn dots(&self) -> impl Iterator<Item = (usize, &Measurement)> {
        self.all().into_iter().enumerate().filter_map(|(kind, m)| Some((kind, m?)))
    }

    /// The same in the order of painting.
    fn painted(&self) -> Vec<(usize, &Measurement)> {
        let mut dots: Vec<_> = self.dots().collect();
        dots.sort_by_key(|(kind, _)| Reverse(KINDS[*kind].2));
        dots
    }
}

/// The order of rows: the largest ratio first, those of a few samples after the others, and last those
/// without a ratio. The script has the same order.
pub(super) fn by_ratio(quantity: Quantity, a: &Row<'_>, b: &Row<'_>) -> Ordering {
    let ratio = |row: &Row<'_>| row.ratio(quantity).unwrap_or(0.0);
    let rank = |row: &Row<'_>| (row.ratio(quantity).is_none(), row.is_rough());
    let by_ratio = rank(a).cmp(&rank(b)).then_with(|| ratio(b).total_cmp(&ratio(a)));
    by_ratio.then_with(|| a.label.cmp(&b.label))
}

/// The chart of these rows, in the order of [`by_ratio`], with its table. The axis has room for the
/// values of `reach` as well, so that charts can be compared.
pub(super) fn chart(
    title: &str,
    quantity: Quantity,
    mut rows: Vec<Row<'_>>,
    reach: &[f64],
) -> Markup {
    rows.sort_by(|a, b| by_ratio(quantity, a, b));
    let ends = |m: &Measurement| [Some(m.median), m.ci_low, m.ci_high];
    let values: Vec<f64> =
        rows.iter().flat_map(Row::dots).flat_map(|(_, m)| ends(m)).flatten().collect();
    let scale = Scale::of_ratios(quantity, values.iter().chain(reach).copied());
    let drawn_rows = &rows[..rows.len().min(MOST)];
    let floor = drawn_rows.len() * ROW;
    let ticks = scale.ticks().into_iter();
    let ticks = ticks.map(|value| (scale.at(value), tick(quantity, value), "grid"));
    let taken = |kind: &usize| rows.iter().any(|row| row.all()[*kind].is_some());
    let shown: Vec<usize> = (0..KINDS.len()).filter(taken).collect();
    let kinds: Vec<_> = shown.iter().map(|kind| KINDS[*kind]).collect();
    let drawing = html! {
        (legend(&kinds))
        svg class="dumbbells" height=(floor + AXIS) style={ "--rows:" (drawn_rows.len()) } role="img"
            aria-label=(spoken(title, quantity, drawn_rows)) {
            (grid(ticks, floor, floor + AXIS - 6))
            @for (at, row) in drawn_rows.iter().enumerate() { (drawn(scale, quantity, at, row)) }
        }
    };
    let mut parts = vec![direction(quantity)];
    parts.push("a line is as long as the ratio of its ends, which is at the right");
    parts.extend(powers(scale));
    if rows.iter().flat_map(Row::dots).any(|(_, m)| m.ci_low.is_some() && !m.is_rough()) {
        parts.push("the lines with ends are 95% intervals of the medians");
    }
    let few = rows.iter().flat_map(Row::dots).any(|(_, m)| m.is_rough());
    let few = if few {
        format!(" {FEW_SAMPLES} Their ratios come after the others.")
    } else {
        String::new()
    };
    let left = match rows.len() - drawn_rows.len() {
        0 => String::new(),
        left => format!(" {left} more rows are in the table."),
    };
    let remark = format!("{}.{few}{left}", parts.join("; "));
    // A thread may stand in several rows.
    let mut strips: Vec<Strip<'_>> = Vec::new();
    let mut known = HashSet::new();
    for row in &rows {
        for (kind, m) in row.dots().filter(|(_, m)| known.insert(std::ptr::from_ref(*m))) {
            let s = &m.subject;
            let place = if row.place.is_empty() { "" } else { ", " };
            let label = format!("{} {} {}{place}{}", s.runtime, s.version, s.unit, row.place);
            strips.push(Strip { label, class: KINDS[kind].0, m });
        }
    }
    let more = html! {
        (strips::samples(title, quantity, &strips))
        (sources::links(rows.iter().flat_map(Row::dots).map(|(_, m)| m)))
    };
    figure(title, None, &remark, &drawing, &more, &behind(quantity, &shown, &rows))
}

fn drawn(scale: Scale, quantity: Quantity, at: usize, row: &Row<'_>) -> Markup {
    const MIDDLE: usize = 27;
    let place = |value| percent(scale.at(value));
    let number = |seat| row.at(seat).map_or_else(String::new, |m| m.median.to_string());
    let ratio = row.ratio(quantity);
    html! {
        g class="row" transform={ "translate(0 " (at * ROW) ")" } data-name=(row.label)
            data-runtime=(row.runtime) data-ratio=[ratio] data-few=[row.is_rough().then_some("")] data-fiber=(number(Seat::Fiber))
            data-thread=(number(Seat::Thread)) {
            text x="0" y="14" { (row.label) }
            text class="value" x="100%" y="14" text-anchor="end" {
                (row.shown_ratio(quantity))
            }
            // Its length is the ratio: none where there is no ratio.
            @if let (Some((light, thread)), Some(_)) = (row.compared(), ratio) {
                line class="handle" x1=(place(light.median)) x2=(place(thread.median)) y1=(MIDDLE)
                    y2=(MIDDLE) {}
            }
            @for (kind, m) in row.painted() {
                g class=(KINDS[kind].0) {
                    // Of a few samples it would be these themselves.
                    @if let (Some(low), Some(high), false) = (m.ci_low, m.ci_high, m.is_rough()) {
                        line class="reach" x1=(place(low)) x2=(place(high)) y1=(MIDDLE) y2=(MIDDLE) {}
                        @for end in [place(low), place(high)] {
                            line class="reach" x1=(end) x2=(end) y1=(MIDDLE - 5) y2=(MIDDLE + 5) {}
                        }
                    }
                    circle class="dot" cx=(place(m.median)) cy=(MIDDLE)
                        r=(KINDS[kind].2) {
                        title { (row.label) ", " (m.subject.unit) ": " (m.shown()) }
                    }
                }
            }
        }
        "\n"
    }
}

/// What a screen reader says in place of the picture.
fn spoken(title: &str, quantity: Quantity, rows: &[Row<'_>]) -> String {
    let row = |row: &Row<'_>| {
        let units = row.dots().map(|(_, m)| format!("{} {}", m.subject.unit, m.shown()));
        let units = units.collect::<Vec<_>>().join(", ");
        match row.ratio(quantity) {
            Some(_) => format!("{} {} ({units})", row.label, row.shown_ratio(quantity)),
            None => format!("{} {units}", row.label),
        }
    };
    format!("{title}: {}", rows.iter().map(row).collect::<Vec<_>>().join("; "))
}

fn behind(quantity: Quantity, kinds: &[usize], rows: &[Row<'_>]) -> Table {
    let mut table = Table::new("").left(["Runtime"]);
    for kind in kinds {
        table.add(KINDS[*kind].1, Align::Right);
        table.add("95% Interval", Align::Right);
    }
    table.add("Ratio", Align::Right);
    for row in rows {
        let mut cells = vec![row.label.clone()];
        for kind in kinds {
            let m = row.all()[*kind];
            let ends = m.filter(|m| !m.is_rough());
            let ends = ends.and_then(|m| Some((m, m.ci_low?, m.ci_high?)));
            cells.push(m.map_or_else(|| NOTHING.into(), Measurement::shown));
            cells.push(ends.map_or_else(
                || NOTHING.into(),
                |(m, low, high)| format!("{}–{}", m.show(low), m.show(high)),
            ));
        }
        cells.push(row.shown_ratio(quantity));
        table.rows.push(cells);
    }
    table.without_empty().with_marks_explained()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m(unit: &str, median: f64) -> Measurement {
        let mut m =
            Measurement { median, metric: "time_per_unit".into(), ..Measurement::default() };
        m.subject.unit = unit.into();
        m
    }

    #[test]
    fn ratios_of_few_samples_come_after_the_others() {
        let mut figures = [m("fiber", 10.0), m("thread", 100.0), m("thread", 3_000.0)];
        figures[2].samples = vec![3_000.0];
        let row = |label: &str, thread: Option<usize>| Row {
            label: label.into(),
            runtime: label.into(),
            place: String::new(),
            seats: [None, Some(&figures[0]), thread.map(|at| &figures[at])],
            alone: None,
        };
        let rows = vec![row("alone", None), row("few", Some(2)), row("ten", Some(1))];
        let html = chart("Time", Quantity::Nanoseconds, rows, &[]).into_string();
        let place = |text: &str| html.find(&format!("data-name=\"{text}\"")).expect("a row");
        assert!(html.contains(">300x*<"), "{html}");
        assert!(place("ten") < place("few") && place("few") < place("alone"), "{html}");
    }

    #[test]
    fn a_line_joins_only_what_has_a_ratio() {
        let mut figures = [m("fiber", 10.0), m("thread", 100.0), m("fiber", 20.0)];
        let crowds = [10_000_u64, 16, 10_000];
        for (figure, units) in figures.iter_mut().zip(crowds) {
            figure.subject.parameters.set("units", units);
        }
        let row = |light, thread| Row {
            label: "node".into(),
            runtime: "node".into(),
            place: String::new(),
            seats: [None, Some(light), Some(thread)],
            alone: None,
        };
        let drawn = |row| chart("Time", Quantity::Nanoseconds, vec![row], &[]).into_string();
        let apart = drawn(row(&figures[0], &figures[1]));
        assert!(apart.contains(">–<") && !apart.contains("class=\"handle\""), "{apart}");
        assert!(drawn(row(&figures[0], &figures[2])).contains("class=\"handle\""));
    }

    #[test]
    fn the_largest_ratio_comes_first_and_rows_without_one_last() {
        let figures = [m("fiber", 10.0), m("thread", 100.0), m("thread", 3_000.0)];
        let row = |label: &str, light: Option<usize>, thread: Option<usize>| Row {
            label: label.into(),
            runtime: label.into(),
            place: String::new(),
            seats: [None, light.map(|at| &figures[at]), thread.map(|at| &figures[at])],
            alone: None,
        };
        let rows = vec![
            row("alone", Some(0), None),
            row("ten", Some(0), Some(1)),
            row("many", Some(0), Some(2)),
        ];
        let html = chart("Time", Quantity::Nanoseconds, rows, &[]).into_string();
        let place = |text: &str| html.find(&format!("data-name=\"{text}\"")).expect("a row");
        assert!(place("many") < place("ten") && place("ten") < place("alone"), "{html}");
        assert!(html.contains(">300x<") && html.contains(">10x<"), "{html}");
        assert!(html.contains("many 300x (fiber 10.0 ns, thread 3.00 µs)"), "{html}");
    }
}
