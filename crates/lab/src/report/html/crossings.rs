//! Where threads overtake fibers: a row for each runtime, over the length of the meal.

use maud::{Markup, html};

use super::markup::{figure, grid, percent};
use super::scale::Scale;
use super::sources;
use crate::number::grouped;
use crate::report::contest::{Contest, Crossing, Meal, Winner, Work};
use crate::report::meals::{bites, people};
use crate::report::table::{Align, Table};

/// The height of a row with its two lines of words, which would meet on one line of a phone, and of the
/// axis.
const ROW: usize = 62;
const AXIS: usize = 24;
const MIDDLE: usize = 45;

/// A chart for each kind of work that was compared.
pub(super) fn charts(all: &[Contest<'_>]) -> Vec<Markup> {
    let of = |work: Work| -> Vec<&Contest<'_>> {
        let mut rows: Vec<&Contest<'_>> = all.iter().filter(|c| c.work == work).collect();
        // Those first in which threads overtake soonest.
        let key = |contest: &Contest<'_>| match contest.crossing() {
            Crossing::Always => 0.0,
            Crossing::At(bites) => bites,
            Crossing::Never | Crossing::Open => f64::INFINITY,
        };
        rows.sort_by(|a, b| key(a).total_cmp(&key(b)).then_with(|| a.label.cmp(&b.label)));
        rows
    };
    let works = Work::ALL.map(|work| (work, of(work)));
    works.into_iter().filter(|(_, r)| !r.is_empty()).map(|(work, r)| chart(work, &r)).collect()
}

fn chart(work: Work, rows: &[&Contest<'_>]) -> Markup {
    let lengths = || rows.iter().flat_map(|c| &c.meals).map(|meal| meal.bites as f64);
    let (low, high) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(1.0, f64::max));
    // A margin, so that no mark lies on the edge.
    let axis = Scale::logarithmic(low / 1.2, high.max(low * 10.0) * 1.2);
    let powers = (0..19).map(|power| 10f64.powi(power)).filter(|tick| axis.holds(*tick));
    let ticks = powers.map(|tick| (axis.at(tick), grouped(tick, 0), "grid"));
    let floor = rows.len() * ROW;
    let title = format!("Where threads overtake: {}", work.title());
    let drawing = html! {
        ul class="legend" {
            @for (class, name) in [("fiber", "the lighter unit is faster"), ("thread", "threads are faster")] {
                li {
                    svg aria-hidden="true" class=(class) {
                        line class="side" x1="0" x2="100%" y1="50%" y2="50%" {}
                    }
                    (name)
                }
            }
        }
        svg class="dumbbells" height=(floor + AXIS) role="img" aria-label=(spoken(&title, rows)) {
            (grid(ticks, floor, floor + AXIS - 6))
            @for (at, contest) in rows.iter().enumerate() { (row(axis, at * ROW, contest)) }
        }
    };
    let remark = "Bites of a meal, from left to right by powers of ten. Dots are meals that were \
                  measured; the upright line is where threads overtake.";
    let meals = rows.iter().flat_map(|contest| &contest.meals);
    let sides = || meals.clone().flat_map(|meal| [meal.light, meal.thread]);
    let more = html! {
        @if sides().any(|m| !m.samples.is_empty()) {
            p class="soft" {
                "The samples of these meals are behind the curves below, a chart for each length of \
                 meal."
            }
        }
        (sources::links(sides()))
    };
    figure(&title, None, remark, &drawing, &more, &behind(rows))
}

fn row(axis: Scale, top: usize, contest: &Contest<'_>) -> Markup {
    let place = |bites: f64| percent(axis.at(bites));
    let ends = contest.meals.first().zip(contest.meals.last());
    let (from, to) = ends.map_or((1.0, 1.0), |(a, b)| (a.bites as f64, b.bites as f64));
    let turn = match contest.crossing() {
        Crossing::At(bites) => bites,
        Crossing::Always => from,
        Crossing::Never | Crossing::Open => to,
    };
    let light = if contest.crossing() == Crossing::Open { "open" } else { "fiber" };
    html! {
        g class="row" transform={ "translate(0 " (top) ")" } data-runtime=(runtime(contest)) {
            text x="0" y="15" { (contest.label) ", " (people(contest.people)) }
            text class="value" x="0" y="32" { (said_of(contest)) }
            @for (class, one, other) in [(light, from, turn), ("thread", turn, to)] {
                @if one < other {
                    g class=(class) {
                        line class="side" x1=(place(one)) x2=(place(other)) y1=(MIDDLE) y2=(MIDDLE) {}
                    }
                }
            }
            @for meal in &contest.meals {
                g class=(winner(meal)) {
                    circle class="dot" cx=(place(meal.bites as f64)) cy=(MIDDLE) r="5" {
                        title { (bites(meal.bites)) ": " (said(meal)) }
                    }
                }
            }
            @if matches!(contest.crossing(), Crossing::At(_)) {
                line class="turn" x1=(place(turn)) x2=(place(turn)) y1=(MIDDLE - 10) y2=(MIDDLE + 10) {}
            }
        }
        "\n"
    }
}

/// `threads overtake from 3,400 bites`.
fn said_of(contest: &Contest<'_>) -> String {
    match contest.crossing() {
        Crossing::Open => contest.overtaken(),
        _ => format!("threads overtake {}", contest.overtaken())
            .replace("overtake not", "do not overtake"),
    }
}

/// The name by which rows are filtered.
fn runtime<'a>(contest: &'a Contest<'_>) -> &'a str {
    contest.meals.first().map_or("", |meal| &meal.thread.subject.runtime)
}

fn winner(meal: &Meal<'_>) -> &'static str {
    match meal.winner() {
        Winner::Light => "fiber",
        Winner::Thread => "thread",
        Winner::Open => "open",
    }
}

/// `threads 2.0x faster`.
fn said(meal: &Meal<'_>) -> String {
    match meal.winner() {
        Winner::Open => "no difference shown".to_owned(),
        _ => format!("{} faster", meal.cell()),
    }
}

/// What a screen reader says in place of the picture.
fn spoken(title: &str, rows: &[&Contest<'_>]) -> String {
    let row = |contest: &&Contest<'_>| format!("{} {}", contest.label, contest.overtaken());
    format!("{title}. {}", rows.iter().map(row).collect::<Vec<_>>().join("; "))
}

fn behind(rows: &[&Contest<'_>]) -> Table {
    let mut table = Table::new("").left(["Runtime"]).right(["People", "Bites"]);
    for heading in ["Lighter Unit", "Threads"] {
        table.add(heading, Align::Right);
    }
    table.add("Faster", Align::Left);
    for contest in rows {
        for meal in &contest.meals {
            table.rows.push(vec![
                contest.label.clone(),
                grouped(contest.people as f64, 0),
                grouped(meal.bites as f64, 0),
                meal.light.shown(),
                meal.thread.shown(),
                said(meal),
            ]);
        }
    }
    table
}
