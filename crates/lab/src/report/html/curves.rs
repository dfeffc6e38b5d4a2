//! Curves: one metric of a few units over people, nutrients or versions.

use maud::{Markup, html};

use super::bars::powers;
use super::markup::{figure, percent};
use super::scale::{Scale, tick};
use crate::metric::Quantity;
use crate::record::Measurement;
use crate::report::table::{Align, Table};
use crate::report::tables::NOTHING;

/// One curve.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    /// The class that gives its colour.
    pub(super) class: &'static str,
    /// Which of the curves of this colour it is: the first is a whole line, the others are broken,
    /// each in its way.
    pub(super) turn: usize,
    /// Its value at each place across, where there is one.
    pub(super) values: Vec<Option<Point>>,
}

/// A point of a curve: a value, its interval, and whether it is a step from the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) ends: Option<(f64, f64)>,
    /// What the step is, if there is one.
    pub(super) step: Option<Step>,
}

/// A change from the point before that is beyond doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Better,
    Worse,
}

impl Point {
    pub(super) fn of(m: &Measurement) -> Point {
        Point { value: m.median, ends: m.ci_low.zip(m.ci_high), step: None }
    }
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub(super) struct Chart<'a> {
    pub(super) title: String,
    /// Whose curves they are, as [`super::markup::joined`] has it.
    pub(super) runtimes: String,
    pub(super) remark: String,
    pub(super) quantity: Quantity,
    /// Values that the scale has room for beside its own, so that charts can be compared.
    pub(super) reach: Vec<f64>,
    /// What stands across.
    pub(super) across: &'a str,
    /// The names of the places across, from left to right, evenly spaced.
    pub(super) places: Vec<String>,
    pub(super) curves: Vec<Curve>,
    /// What else stands behind it than its table.
    pub(super) more: Markup,
}

/// Letters across, of all labels together and a gap after each, or they meet on a phone.
const LETTERS: usize = 44;
/// What stands across in a history.
pub(super) const VERSIONS: &str = "version";
/// With more curves than these, colours and dashes do not tell them apart: each has a number at its end.
const FEW: usize = 4;
/// With more than these, a chart takes the width of a sheet of paper.
const MANY: usize = 8;
/// The room that a number takes, as a share of the plot's height.
const NUMBER: f64 = 0.065;
/// Longer labels stand inside the plot at its ends, where they would reach past the page.
const LONG: usize = 6;

impl Step {
    fn class(self) -> &'static str {
        match self {
            Step::Better => "better",
            Step::Worse => "worse",
        }
    }
}

impl Curve {
    fn dashes(&self) -> &'static str {
        match self.turn {
            0 => "",
            1 => " dashed",
            2 => " dotted",
            _ => " mixed",
        }
    }

    /// Its line of the legend.
    fn key(&self, number: Option<usize>) -> Markup {
        html! {
            li {
                svg aria-hidden="true" class=(self.class) {
                    line class={ "curve" (self.dashes()) } x1="0" x2="100%" y1="50%" y2="50%" {}
                }
                @if let Some(number) = number { b aria-hidden="true" { (number) " " } }
                (self.name)
            }
        }
    }
}

impl Chart<'_> {
    /// The chart with its table.
    pub(super) fn html(&self) -> Markup {
        let points = self.curves.iter().flat_map(|c| c.values.iter().copied().flatten());
        let ends = |point: Point| {
            let (low, high) = point.ends.unwrap_or((point.value, point.value));
            [point.value, low, high]
        };
        let values: Vec<f64> = points.flat_map(ends).chain(self.reach.iter().copied()).collect();
        let scale = Scale::of(self.quantity, values.into_iter());
        let last = self.places.len().saturating_sub(1).max(1) as f64;
        let across = |at: usize| at as f64 / last;
        let down = |value: f64| 1.0 - scale.at(value);
        let points = |run: Vec<(usize, f64)>| {
            let point =
                |(at, value)| format!("{:.2},{:.2}", 100.0 * across(at), 100.0 * down(value));
            run.into_iter().map(point).collect::<Vec<_>>().join(" ")
        };
        let numbers = self.numbers(scale);
        let room = match numbers.len() {
            0 => "",
            count if count > MANY => " numbered crowded",
            _ => " numbered",
        };
        let plot = html! {
            div class={ (self.room()) (room) } style=[self.is_slanted().then(|| format!("--letters:{}", self.letters().0))] {
                svg role="img" aria-label=(self.spoken()) {
                    @for value in scale.ticks() {
                        @let y = percent(down(value));
                        line class="grid" x1="0" x2="100%" y1=(y) y2=(y) {}
                    }
                    // Stretched to the plot, lines and all but their width; the dots stay round in
                    // the outer picture.
                    svg viewBox="0 0 100 100" preserveAspectRatio="none" {
                        @for curve in &self.curves {
                            @for run in runs(&curve.values) {
                                polyline class={ "curve " (curve.class) (curve.dashes()) }
                                    points=(points(run)) {}
                            }
                        }
                    }
                    @for curve in &self.curves {
                        g class=(curve.class) {
                            @for (at, value) in curve.values.iter().enumerate() {
                                @if let Some(point) = value {
                                    @let x = percent(across(at));
                                    @if let Some((low, high)) = point.ends {
                                        line class="whisker" x1=(x) x2=(x) y1=(percent(down(low)))
                                            y2=(percent(down(high))) {}
                                    }
                                    @if let Some(step) = point.step {
                                        circle class={ "step " (step.class()) } cx=(x)
                                            cy=(percent(down(point.value))) r="9" {}
                                    }
                                    circle class="dot" cx=(x) cy=(percent(down(point.value)))
                                        r="4" {
                                        title {
                                            (curve.name) ", " (self.places[at]) ": "
                                            (self.quantity.show(point.value))
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
                @for value in scale.ticks() {
                    span class="y" aria-hidden="true"
                        style={ "bottom:" (percent(scale.at(value))) } {
                        (tick(self.quantity, value))
                    }
                }
                @for (number, end) in numbers.iter().enumerate() {
                    span class={ "end " (self.curves[end.curve].class) } aria-hidden="true"
                        style={ "left:" (percent(across(end.at))) ";top:" (percent(end.down)) } {
                        (number + 1)
                    }
                }
                @for (at, inside) in self.named() {
                    span class={ "x" (inside) } aria-hidden="true"
                        style={ "left:" (percent(across(at))) } { (self.places[at]) }
                }
            }
            p class="axis" { (self.across) }
            ul class="legend" {
                @if numbers.is_empty() {
                    @for curve in &self.curves { (curve.key(None)) }
                }
                @for (number, end) in numbers.iter().enumerate() {
                    (self.curves[end.curve].key(Some(number + 1)))
                }
            }
        };
        let mut remark = self.remark.clone();
        if let Some(powers) = powers(scale) {
            remark += &format!(" Upwards, {powers}.");
        }
        figure(&self.title, Some(&self.runtimes), remark.trim(), &plot, &self.more, &self.behind())
    }

    /// Where the curves' numbers stand, from the highest on, where there are many; none of two on each
    /// other.
    fn numbers(&self, scale: Scale) -> Vec<End> {
        if self.curves.len() <= FEW {
            return Vec::new();
        }
        let end = |(curve, of): (usize, &Curve)| {
            let at = of.values.iter().rposition(Option::is_some)?;
            let value = of.values[at]?.value;
            Some(End { curve, at, down: 1.0 - scale.at(value) })
        };
        let mut ends: Vec<End> = self.curves.iter().enumerate().filter_map(end).collect();
        // Those that end further left come later.
        ends.sort_by(|a, b| b.at.cmp(&a.at).then(a.down.total_cmp(&b.down)));
        for column in ends.chunk_by_mut(|a, b| a.at == b.at) {
            spread(column);
        }
        ends
    }

    /// The places whose names fit below the chart, each with the class for its position.
    fn named(&self) -> Vec<(usize, &'static str)> {
        let count = self.places.len();
        let (longest, all) = self.letters();
        // Versions have no order to be counted on: each has its name, on a slant where they would meet.
        if self.across == VERSIONS {
            let inside = if all > LETTERS || longest > LONG { " slant" } else { "" };
            return (0..count).map(|at| (at, inside)).collect();
        }
        let most = (LETTERS / (longest + 1)).clamp(2, 7);
        let every = count.div_ceil(most).max(1);
        let inside = |at: usize| match at {
            _ if longest <= LONG => "",
            0 => " first",
            at if at + 1 == count => " last",
            _ => "",
        };
        // From the right, so that the largest is always named.
        let named = (0..count).filter(move |at| (count - 1 - at) % every == 0);
        named.map(|at| (at, inside(at))).collect()
    }

    /// Of the longest name, and of all together with a gap after each.
    fn letters(&self) -> (usize, usize) {
        let lengths = self.places.iter().map(|place| place.chars().count());
        (lengths.clone().max().unwrap_or(0), lengths.map(|length| length + 1).sum())
    }

    fn is_slanted(&self) -> bool {
        self.named().iter().any(|(_, inside)| *inside == " slant")
    }

    /// The class for the room below the plot that slanted names take.
    fn room(&self) -> &'static str {
        match self.letters().0 {
            _ if !self.is_slanted() => "plot",
            0..=8 => "plot low",
            _ => "plot high",
        }
    }

    /// What a screen reader says in place of the picture: where each curve begins and ends.
    fn spoken(&self) -> String {
        let curve = |curve: &Curve| {
            let known: Vec<(usize, f64)> = curve
                .values
                .iter()
                .enumerate()
                .filter_map(|(at, point)| Some((at, (*point)?.value)))
                .collect();
            let point = |&(at, value): &(usize, f64)| {
                format!("{} at {}", self.quantity.show(value), self.places[at])
            };
            match (known.first(), known.last()) {
                (Some(first), Some(last)) if first.0 != last.0 => {
                    format!("{} from {} to {}", curve.name, point(first), point(last))
                }
                (Some(only), _) => format!("{} {}", curve.name, point(only)),
                _ => curve.name.clone(),
            }
        };
        let curves: Vec<String> = self.curves.iter().map(curve).collect();
        format!("{}, over {}: {}", self.title, self.across, curves.join("; "))
    }

    fn behind(&self) -> Table {
        let mut table = Table::new("").left([self.across]);
        for curve in &self.curves {
            table.add(curve.name.clone(), Align::Right);
        }
        for (at, place) in self.places.iter().enumerate() {
            let mut row = vec![place.clone()];
            row.extend(self.curves.iter().map(|curve| {
                let value = curve.values.get(at).copied().flatten();
                value.map_or_else(|| NOTHING.into(), |point| self.quantity.show(point.value))
            }));
            table.rows.push(row);
        }
        table
    }
}

/// The end of a curve, where its number stands.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    curve: usize,
    at: usize,
    /// From the top, as a share of the plot's height.
    down: f64,
}

/// Moves those that are too close apart, as little as will do: crowds that meet become one, about the
/// middle of where its members were.
fn spread(column: &mut [End]) {
    // Of each crowd, how many it has, and the sum of where its first one would stand for each.
    let mut crowds: Vec<(usize, f64)> = Vec::new();
    let first = |&(count, sum): &(usize, f64)| sum / count as f64;
    for (at, end) in column.iter().enumerate() {
        crowds.push((1, end.down - at as f64 * NUMBER));
        while let [.., above, below] = crowds[..] {
            if first(&above) <= first(&below) {
                break;
            }
            crowds.truncate(crowds.len() - 2);
            crowds.push((above.0 + below.0, above.1 + below.1));
        }
    }
    let most = 1.0 - column.len().saturating_sub(1) as f64 * NUMBER;
    let places = crowds.iter().flat_map(|crowd| std::iter::repeat_n(first(crowd), crowd.0));
    let places: Vec<f64> = places.map(|place| place.min(most).max(0.0)).collect();
    for (at, (end, place)) in column.iter_mut().zip(places).enumerate() {
        end.down = place + at as f64 * NUMBER;
    }
}

/// The stretches of a curve that have values all along: across a gap nothing was measured.
fn runs(values: &[Option<Point>]) -> Vec<Vec<(usize, f64)>> {
    let known = |&(at, point): &(usize, &Option<Point>)| point.map(|point| (at, point.value));
    let all: Vec<(usize, &Option<Point>)> = values.iter().enumerate().collect();
    all.split(|(_, value)| value.is_none())
        .map(|run| run.iter().filter_map(known).collect::<Vec<_>>())
        .filter(|run| run.len() > 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(value: f64) -> Point {
        Point { value, ends: None, step: None }
    }

    #[test]
    fn a_gap_parts_a_curve() {
        let values = [Some(1.0), Some(2.0), None, Some(4.0), None, Some(6.0), Some(7.0)];
        let values = values.map(|value| value.map(point));
        assert_eq!(runs(&values), [vec![(0, 1.0), (1, 2.0)], vec![(5, 6.0), (6, 7.0)]]);
    }

    fn curves(ends: &[f64]) -> Chart<'static> {
        let curve = |(at, end): (usize, &f64)| Curve {
            name: format!("way {at}"),
            class: "fiber",
            turn: at,
            values: vec![Some(point(1.0)), Some(point(*end))],
        };
        Chart {
            runtimes: String::new(),
            title: "Feeding".into(),
            remark: String::new(),
            quantity: Quantity::Milliseconds,
            reach: Vec::new(),
            across: "people",
            places: vec!["1".into(), "2".into()],
            curves: ends.iter().enumerate().map(curve).collect(),
            more: html! {},
        }
    }

    #[test]
    fn many_curves_have_numbers_at_their_ends_from_the_highest_on_and_none_on_another() {
        assert!(!curves(&[1.0, 2.0, 3.0, 4.0]).html().into_string().contains("class=\"end"));
        let many = curves(&[1.0, 1.01, 1.02, 1.03, 900.0]);
        let html = many.html().into_string();
        assert_eq!(html.matches("class=\"end fiber\"").count(), 5, "{html}");
        // The legend is in the order of the picture.
        let key = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        assert!(
            key("<b aria-hidden=\"true\">1 </b>way 4") < key("<b aria-hidden=\"true\">2 </b>way 3")
        );
        let ends = many.numbers(Scale::of(Quantity::Milliseconds, [1.0, 900.0].into_iter()));
        for pair in ends.windows(2) {
            assert!(pair[1].down - pair[0].down > NUMBER - 1e-9, "{ends:?}");
        }
        assert!(ends.iter().all(|end| (0.0..=1.0).contains(&end.down)), "{ends:?}");
    }

    #[test]
    fn paper_has_room_for_many_curves_and_a_plot_for_the_longest_slanted_name() {
        let [some, many] = [5, 9].map(|count| curves(&vec![1.0; count]).html().into_string());
        assert!(some.contains("numbered") && !some.contains("crowded"), "{some}");
        assert!(many.contains("numbered crowded"), "{many}");
        assert!(!many.contains("--letters"), "{many}");
        let mut history = curves(&[1.0, 2.0]);
        history.across = VERSIONS;
        history.places = vec!["3.1.2".into(), "3.4.11 (ruby:experimental)".into()];
        let html = history.html().into_string();
        assert!(html.contains("class=\"plot high\" style=\"--letters:26\""), "{html}");
    }

    #[test]
    fn a_chart_tells_its_figures_to_those_who_do_not_see_it() {
        let chart = Chart {
            runtimes: String::new(),
            title: "Feeding".into(),
            remark: String::new(),
            quantity: Quantity::Milliseconds,
            reach: Vec::new(),
            across: "people",
            places: vec!["1".into(), "2,048".into()],
            curves: vec![Curve {
                name: "fibers".into(),
                class: "fiber",
                turn: 0,
                values: vec![Some(point(0.5)), Some(point(12.0))],
            }],
            more: html! {},
        };
        let html = chart.html().into_string();
        let said = "Feeding, over people: fibers from 500 µs at 1 to 12.0 ms at 2,048";
        assert!(html.contains(&format!("aria-label=\"{said}\"")), "{html}");
        assert!(html.contains("<td class=\"right\" data-key=\"12000000\">12.0 ms</td>"), "{html}");
    }
}
