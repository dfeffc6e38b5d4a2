//! The samples behind a chart: each of them a dot, with the middle half of them as a bar.

use maud::{Markup, html};

use super::markup::{self, grid, percent};
use super::scale::{Scale, tick};
use crate::metric::Quantity;
use crate::number::FEW;
use crate::record::Measurement;
use crate::report::table::Table;
use crate::stats;

/// One unit's samples.
#[derive(Clone, Debug)]
pub(super) struct Strip<'a> {
    pub(super) label: String,
    /// The class that gives its colour.
    pub(super) class: &'static str,
    pub(super) m: &'a Measurement,
}

/// The height of a strip with its label, and of the axis.
const ROW: usize = 40;
const AXIS: usize = 24;

/// The most units whose samples are shown, as no reader looks through more.
const MOST: usize = 60;

/// The samples of these units, each a dot, and their percentiles; of many units a line that says where
/// they are.
pub(super) fn samples(title: &str, quantity: Quantity, all: &[Strip<'_>]) -> Markup {
    html! {
        @if all.len() > MOST {
            p class="soft" {
                "The samples of " (all.len()) " units would be too many here. A report on fewer \
                 runtimes, versions or machines draws them; its CSV has their percentiles."
            }
        } @else {
            (strips(title, quantity, all))
            (markup::table(&table(all), title))
        }
    }
}

/// The samples behind curves, of which each is a group with a name: on one scale if they are not too
/// many for that, else each group by itself. Nothing where none has samples, as published ones.
pub(super) fn of_curves(
    title: &str,
    quantity: Quantity,
    groups: &[(String, Vec<Strip<'_>>)],
) -> Markup {
    let all: Vec<Strip<'_>> = groups.iter().flat_map(|(_, strips)| strips.clone()).collect();
    if all.iter().all(|strip| strip.m.samples.is_empty()) {
        return html! {};
    }
    if all.len() <= MOST || groups.iter().any(|(_, strips)| strips.len() > MOST) {
        return samples(title, quantity, &all);
    }
    html! {
        p class="soft" { (READING) }
        @for (name, strips) in groups {
            h4 { (name) }
            (plot(&format!("{title}, {name}"), quantity, strips))
        }
        (markup::table(&table(&all), title))
    }
}

/// How strips are read.
pub(super) const READING: &str =
    "Every sample is a dot; the bar is the middle half of them, and the upright line their median.";

/// The samples of these units on one scale, and how they are read; nothing where there are too few to
/// be spread.
pub(super) fn strips(title: &str, quantity: Quantity, all: &[Strip<'_>]) -> Markup {
    let plot = plot(title, quantity, all);
    html! { @if !plot.0.is_empty() { p class="soft" { (READING) } (plot) } }
}

/// The samples of these units on one scale.
pub(super) fn plot(title: &str, quantity: Quantity, all: &[Strip<'_>]) -> Markup {
    if all.iter().all(|strip| strip.m.samples.len() < FEW) {
        return html! {};
    }
    let all: Vec<&Strip<'_>> = all.iter().filter(|strip| !strip.m.samples.is_empty()).collect();
    let values: Vec<f64> = all.iter().flat_map(|strip| strip.m.samples.iter().copied()).collect();
    let scale = Scale::of_ratios(quantity, values.into_iter());
    let floor = all.len() * ROW;
    let ticks = scale.ticks().into_iter();
    let ticks = ticks.map(|value| (scale.at(value), tick(quantity, value), "grid"));
    html! {
        svg height=(floor + AXIS) role="img" aria-label={ "Samples of: " (title) } {
            (grid(ticks, floor, floor + AXIS - 6))
            @for (at, strip) in all.iter().enumerate() { (row(scale, at * ROW, strip)) }
        }
    }
}

fn row(scale: Scale, top: usize, strip: &Strip<'_>) -> Markup {
    let at = |value| percent(scale.at(value));
    // One or two samples have no middle half.
    let middle = (strip.m.samples.len() >= FEW)
        .then(|| stats::percentiles(&strip.m.samples, [0.25, 0.5, 0.75]));
    // A dot is a line of no length with round ends; those of one value stand one below the other.
    let dot = |(number, value): (usize, &f64)| {
        format!("M{:.0} {}h0", 1000.0 * scale.at(*value), 6 + 4 * (number % 3))
    };
    let dots: String = strip.m.samples.iter().enumerate().map(dot).collect();
    let y = top + 27;
    html! {
        g class=(strip.class) {
            text x="0" y=(top + 14) { (strip.label) }
            @if let Some([low, _, high]) = middle {
                line class="middle" x1=(at(low)) x2=(at(high)) y1=(y) y2=(y) {}
            }
            svg x="0" y=(top + 17) height="20" viewBox="0 0 1000 20" preserveAspectRatio="none" {
                path class="samples" d=(dots) {}
            }
            @if let Some([_, middle, _]) = middle {
                line class="reach" x1=(at(middle)) x2=(at(middle)) y1=(y - 9) y2=(y + 9) {}
            }
        }
        "\n"
    }
}

/// The percentiles of the table.
const SHARES: [f64; 7] = [0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0];

/// Where the samples lie, a row for each unit.
pub(super) fn table(all: &[Strip<'_>]) -> Table {
    let mut table = Table::new("")
        .left(["Unit"])
        .right(["Least", "5%", "25%", "Median", "75%", "95%", "Most", "From", "To", "Samples"]);
    for Strip { label, m, .. } in all {
        let bound = |end: Option<f64>| {
            end.filter(|_| !m.is_rough()).map_or_else(|| "–".to_owned(), |end| m.show(end))
        };
        let mut row = vec![label.clone()];
        match m.samples.len() {
            0..FEW => row.extend(["–", "–", "–", &m.shown(), "–", "–", "–"].map(str::to_owned)),
            _ => row.extend(stats::percentiles(&m.samples, SHARES).map(|value| m.show(value))),
        }
        row.extend([bound(m.ci_low), bound(m.ci_high), m.samples.len().to_string()]);
        table.rows.push(row);
    }
    let mut table = table.without_empty().with_marks_explained();
    table.notes.push(
        "5% of the samples lie below the value under 5%, and so on; between two samples, in \
         proportion. From and to: the 95% interval of the median."
            .into(),
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_samples_are_dots_without_a_middle_half() {
        let figures = [vec![1.0, 2.0, 4.0], vec![3.0]]
            .map(|samples| Measurement { samples, ..Measurement::default() });
        let strips: Vec<Strip<'_>> =
            figures.iter().map(|m| Strip { label: "unit".into(), class: "fiber", m }).collect();
        let count = |strips: &[Strip<'_>], what: &str| {
            plot("Time", Quantity::Nanoseconds, strips).into_string().matches(what).count()
        };
        assert_eq!(count(&strips, "class=\"samples\""), 2);
        assert_eq!(count(&strips, "class=\"middle\""), 1);
        assert_eq!(count(&strips[1..], "svg"), 0, "nothing is spread there");
    }
}
