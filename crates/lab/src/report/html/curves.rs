//! Curves: one metric of a few units over people, nutrients or versions.

use std::fmt::Write;

use super::markup::{escape, figure};
use super::scale::{Scale, tick};
use crate::record::value_unit;
use crate::report::number;
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
    pub(super) values: Vec<Option<f64>>,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub(super) struct Chart<'a> {
    pub(super) title: String,
    pub(super) remark: String,
    pub(super) metric: &'a str,
    /// What stands across.
    pub(super) across: &'a str,
    /// The names of the places across, from left to right, evenly spaced.
    pub(super) places: Vec<String>,
    pub(super) curves: Vec<Curve>,
}

/// Letters across, of all labels together and a gap after each, or they meet on a phone.
const LETTERS: usize = 44;
/// Longer labels stand inside the plot at its ends, where they would reach past the page.
const LONG: usize = 6;

impl Curve {
    fn dashes(&self) -> &'static str {
        match self.turn {
            0 => "",
            1 => " dashed",
            2 => " dotted",
            _ => " mixed",
        }
    }
}

impl Chart<'_> {
    /// The chart with its table.
    pub(super) fn html(&self) -> String {
        let values = || self.curves.iter().flat_map(|c| c.values.iter().copied().flatten());
        let scale = Scale::of(value_unit(self.metric), values().collect::<Vec<_>>().into_iter());
        let last = self.places.len().saturating_sub(1).max(1) as f64;
        let across = |at: usize| 100.0 * at as f64 / last;
        let mut html = format!(
            "<div class=\"plot\"><svg role=\"img\" aria-label=\"{}\">\n",
            escape(&self.spoken())
        );
        let mut labels = String::new();
        for value in scale.ticks() {
            let y = 100.0 * scale.at(value);
            let _ = write!(
                html,
                "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{0:.2}%\" y2=\"{0:.2}%\"/>",
                100.0 - y
            );
            let _ = write!(
                labels,
                "<span class=\"y\" aria-hidden=\"true\" style=\"bottom:{y:.2}%\">{}</span>",
                escape(&tick(self.metric, value))
            );
        }
        let longest = self.places.iter().map(|place| place.chars().count()).max().unwrap_or(0);
        let most = (LETTERS / (longest + 1)).clamp(2, 7);
        let every = self.places.len().div_ceil(most).max(1);
        for (at, place) in self.places.iter().enumerate() {
            // From the right, so that the largest is always named.
            if (self.places.len() - 1 - at) % every == 0 {
                let inside = match at {
                    _ if longest <= LONG => "",
                    0 => " first",
                    at if at + 1 == self.places.len() => " last",
                    _ => "",
                };
                let _ = write!(
                    labels,
                    "<span class=\"x{inside}\" aria-hidden=\"true\" style=\"left:{:.2}%\">{}</span>",
                    across(at),
                    escape(place)
                );
            }
        }
        // The inner picture is stretched to the plot, lines and all but their width; the dots stay
        // round in the outer one.
        html.push_str("\n<svg viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\">");
        for curve in &self.curves {
            for run in runs(&curve.values) {
                let points: Vec<String> = run
                    .iter()
                    .map(|&(at, value)| {
                        format!("{:.2},{:.2}", across(at), 100.0 * (1.0 - scale.at(value)))
                    })
                    .collect();
                let dashed = curve.dashes();
                let _ = write!(
                    html,
                    "<polyline class=\"curve {}{dashed}\" points=\"{}\"/>",
                    curve.class,
                    points.join(" ")
                );
            }
        }
        html.push_str("</svg>\n");
        for curve in &self.curves {
            let _ = write!(html, "<g class=\"{}\">", curve.class);
            for (at, value) in curve.values.iter().enumerate() {
                if let Some(value) = value {
                    let _ = write!(
                        html,
                        "<circle class=\"dot\" cx=\"{:.2}%\" cy=\"{:.2}%\" r=\"4\"/>",
                        across(at),
                        100.0 * (1.0 - scale.at(*value))
                    );
                }
            }
            html.push_str("</g>");
        }
        let _ = write!(
            html,
            "</svg>{labels}</div>\n<p class=\"axis\">{}</p>\n{}",
            escape(self.across),
            self.legend()
        );
        let remark = match scale.is_logarithmic() {
            true => format!("{} The scale upwards goes by powers of ten.", self.remark),
            false => self.remark.clone(),
        };
        figure(&self.title, remark.trim(), &html, &self.behind())
    }

    fn legend(&self) -> String {
        let items: String = self
            .curves
            .iter()
            .map(|curve| {
                let dashed = curve.dashes();
                format!(
                    "<li><svg aria-hidden=\"true\" class=\"{}\"><line class=\"curve{dashed}\" \
                     x1=\"0\" x2=\"100%\" y1=\"50%\" y2=\"50%\"/></svg>{}</li>",
                    curve.class,
                    escape(&curve.name)
                )
            })
            .collect();
        format!("<ul class=\"legend\">{items}</ul>")
    }

    /// What a screen reader says in place of the picture: where each curve begins and ends.
    fn spoken(&self) -> String {
        let curve = |curve: &Curve| {
            let known: Vec<(usize, f64)> = curve
                .values
                .iter()
                .enumerate()
                .filter_map(|(at, value)| Some((at, (*value)?)))
                .collect();
            let point = |&(at, value): &(usize, f64)| {
                format!("{} at {}", number::value(self.metric, value), self.places[at])
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
        let mut table = Table::new("").column(self.across, Align::Left);
        for curve in &self.curves {
            table = table.column(curve.name.clone(), Align::Right);
        }
        for (at, place) in self.places.iter().enumerate() {
            let mut row = vec![place.clone()];
            row.extend(self.curves.iter().map(|curve| {
                let value = curve.values.get(at).copied().flatten();
                value.map_or_else(|| NOTHING.into(), |value| number::value(self.metric, value))
            }));
            table.rows.push(row);
        }
        table
    }
}

/// The stretches of a curve that have values all along: across a gap nothing was measured.
fn runs(values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
    let known = |&(at, value): &(usize, &Option<f64>)| value.map(|value| (at, value));
    let all: Vec<(usize, &Option<f64>)> = values.iter().enumerate().collect();
    all.split(|(_, value)| value.is_none())
        .map(|run| run.iter().filter_map(known).collect::<Vec<_>>())
        .filter(|run| run.len() > 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_parts_a_curve() {
        let values = [Some(1.0), Some(2.0), None, Some(4.0), None, Some(6.0), Some(7.0)];
        assert_eq!(runs(&values), [vec![(0, 1.0), (1, 2.0)], vec![(5, 6.0), (6, 7.0)]]);
    }

    #[test]
    fn a_chart_tells_its_figures_to_those_who_do_not_see_it() {
        let chart = Chart {
            title: "Feeding".into(),
            remark: String::new(),
            metric: "time",
            across: "people",
            places: vec!["1".into(), "2,048".into()],
            curves: vec![Curve {
                name: "fibers".into(),
                class: "fiber",
                turn: 0,
                values: vec![Some(0.5), Some(12.0)],
            }],
        };
        let html = chart.html();
        let said = "Feeding, over people: fibers from 500 µs at 1 to 12.0 ms at 2,048";
        assert!(html.contains(&format!("aria-label=\"{said}\"")), "{html}");
        assert!(html.contains("<td class=\"right\" data-key=\"12000000\">12.0 ms</td>"), "{html}");
    }
}
