//! Pieces of a page: tables, and the figures that charts stand in.

use carefree_workloads::named::distinct;
use maud::{Markup, html};

use crate::number;
use crate::report::table::{Align, Table};
use crate::report::view::Seat;

/// A place across or down, as a share of the whole.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}%", 100.0 * share)
}

/// The class that gives the colour of a seat.
pub(super) fn class(seat: Seat) -> &'static str {
    match seat {
        Seat::Coroutine => "coroutine",
        Seat::Fiber => "fiber",
        Seat::Thread => "thread",
    }
}

/// A list of sentences; nothing where there are none.
pub(super) fn list(class: Option<&str>, items: &[String]) -> Markup {
    html! { @if !items.is_empty() { ul class=[class] { @for item in items { li { (unbroken(item)) } "\n" } } } }
}

/// The same, of sentences about runtimes: each item says of which of `names` it is, to be filtered by.
pub(super) fn list_of(names: &[&str], items: &[String]) -> Markup {
    html! {
        @if !items.is_empty() {
            ul {
                @for item in items {
                    li data-runtime=[named(names, item)] { (unbroken(item)) }
                    "\n"
                }
            }
        }
    }
}

/// Runtimes as `data-runtime` has them.
pub(super) fn joined<'a>(runtimes: impl IntoIterator<Item = &'a str>) -> String {
    distinct(runtimes).join(",")
}

/// The runtimes that a sentence is about: `In carefree 0.1.0, rust 1.95.0, …`, `Ruby: …`.
fn named(names: &[&str], sentence: &str) -> Option<String> {
    let is_about = |name: &str| {
        let head = sentence.split_once(": ").map_or("", |(head, _)| head);
        let version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let places = sentence.strip_prefix("In ").unwrap_or_default().split(", ");
        head.to_lowercase() == name.to_lowercase()
            || places.filter_map(|place| place.strip_prefix(name)?.strip_prefix(' ')).any(version)
    };
    let found: Vec<&str> = names.iter().copied().filter(|name| is_about(name)).collect();
    (!found.is_empty()).then(|| joined(found))
}

/// The longest word that fits a line of a phone, in a list.
const LINE: usize = 24;

/// A sentence whose options (`--samples`) and dates are not broken at their hyphens.
pub(super) fn unbroken(sentence: &str) -> Markup {
    let is_whole = |word: &str| {
        let word = word.trim_start_matches(['(', '\'', '"']);
        let is_date = word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('-');
        (word.starts_with("--") || is_date) && word.len() <= LINE
    };
    html! {
        @for (at, word) in sentence.split(' ').enumerate() {
            @if at > 0 { " " }
            @if is_whole(word) { span class="whole" { (word) } } @else { (word) }
        }
    }
}

/// The most rows of a table, and the most of other things that a page has one by one for each machine or
/// version. A browser shows no page with those of a thousand machines, and no reader looks through them.
const ROWS: usize = 2_000;
pub(super) const MOST: usize = 100;

/// Says how many of these the page leaves out, if any, and where they are.
pub(super) fn left_out(count: usize, most: usize, what: &str) -> Markup {
    html! {
        @if count > most {
            p class="soft" {
                (number::grouped((count - most) as f64, 0)) " more " (what) " would be too many for a \
                 page. A report on fewer runtimes, versions or machines shows them, and \
                 --format csv has all figures."
            }
        }
    }
}

/// A table whose columns can be sorted, with its notes. Its first column names the rows.
pub(super) fn table(table: &Table, caption: &str) -> Markup {
    let class = |align| (align == Align::Right).then_some("right");
    // In text a name stands once above its rows; to be sorted, each row needs its own.
    let name = |row: usize, cell| table.names.get(row).unwrap_or(cell);
    html! {
        div class="scroll" tabindex="0" role="region" aria-label=(caption) {
            table class="sortable" {
                caption { (caption) }
                thead { tr {
                    @for column in &table.columns {
                        th scope="col" class=[class(column.align)] { (column.heading) }
                    }
                } }
                tbody {
                    @for (at, row) in table.rows.iter().take(ROWS).enumerate() {
                        tr {
                            @for (number, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
                                @if number == 0 {
                                    @let cell = name(at, cell);
                                    th scope="row" data-key=[key(cell)] { (cell) }
                                } @else {
                                    @let won = table.won.get(&(at, number)).copied();
                                    td class=[won.or(class(column.align))] data-key=[key(cell)] {
                                        @if won.is_some() { strong { (cell) } } @else { (cell) }
                                    }
                                }
                            }
                        }
                        "\n"
                    }
                }
            }
        }
        (left_out(table.rows.len(), ROWS, "rows"))
        (list(Some("notes"), &table.notes))
    }
}

/// What a cell with a unit is sorted by: `4.41 µs` by its nanoseconds, `1,000` by the number.
fn key(cell: &str) -> Option<f64> {
    let cell = cell.trim_end_matches(number::MARK);
    let (number, unit) = match cell.split_once(' ') {
        Some((number, unit)) => (number, unit),
        None => (cell, ""),
    };
    let times = number.trim_end_matches(['x', '%']).trim_end_matches("/s");
    let value: f64 = times.replace(',', "").parse().ok()?;
    let scale = match unit {
        "" | "B" | "ns" | "slower" | "more" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some(value * scale)
}

/// A chart with its title; behind it something `more`, and the table of what it shows. Without all of
/// `runtimes` it is not shown; where it has rows for several, each of those says whose it is, and it
/// names none.
pub(super) fn figure(
    title: &str,
    runtimes: Option<&str>,
    remark: &str,
    chart: &Markup,
    more: &Markup,
    behind: &Table,
) -> Markup {
    html! {
        figure class="card" data-runtime=[runtimes] {
            figcaption { (title) small { (remark) } }
            (chart)
            details {
                summary { "The figures behind this chart" }
                (more)
                (table(behind, title))
            }
        }
    }
}

/// Which colour is which: classes, each with what it stands for and the size of its dot. The script leaves out
/// those that no row has which is shown.
pub(super) fn legend(kinds: &[(&str, &str, usize)]) -> Markup {
    html! {
        ul class="legend" {
            @for (class, kind, size) in kinds {
                li data-kind=(class) {
                    svg aria-hidden="true" class=(class) {
                        circle class="dot" cx="50%" cy="50%" r=(size) {}
                    }
                    (kind)
                }
            }
        }
    }
}

/// The grid of a scale across: a line for each tick, as high as `floor`, and its name below.
pub(super) fn grid(
    ticks: impl Iterator<Item = (f64, String, &'static str)>,
    floor: usize,
    below: usize,
) -> Markup {
    let anchor = |share: f64| match share {
        share if share < 0.04 => "start",
        share if share > 0.93 => "end",
        _ => "middle",
    };
    html! {
        @for (share, name, class) in ticks {
            @let x = percent(share);
            line class=(class) x1=(x) x2=(x) y1="0" y2=(floor) {}
            text class="tick" x=(x) y=(below) text-anchor=(anchor(share)) { (name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_record_becomes_part_of_the_page() {
        let mut evil = Table::new("x").left(["<b>"]);
        evil.rows = vec![vec!["<script>alert('1')</script>".into()]];
        let html = table(&evil, "\"quoted\"").into_string();
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(html.contains("aria-label=\"&quot;quoted&quot;\""), "{html}");
    }

    #[test]
    fn cells_are_sorted_by_what_they_mean() {
        assert_eq!(key("4.41 µs"), Some(4_410.0));
        assert_eq!(key("56.2 ms"), Some(56_200_000.0));
        assert_eq!(key("12,345.678"), Some(12_345.678));
        assert_eq!(key("38,402,457/s"), Some(38_402_457.0));
        assert_eq!(key("25.1x"), Some(25.1));
        assert_eq!(key("2.4 ms*"), Some(2_400_000.0));
        assert_eq!(key("99x*"), Some(99.0));
        assert_eq!(key("4.50 KiB"), Some(4_608.0));
        assert_eq!(key("ruby 3.3"), None);
        assert_eq!(key("–"), None);
    }

    #[test]
    fn a_name_that_stands_once_is_in_every_row() {
        let mut two = Table::new("x").left(["Runtime", "Mode"]);
        two.rows =
            vec![vec!["ruby 3.3".into(), "Fibers".into()], vec![String::new(), "Threads".into()]];
        two.names = vec!["ruby 3.3".into(); 2];
        let html = table(&two, "x").into_string();
        assert_eq!(html.matches("<th scope=\"row\">ruby 3.3</th>").count(), 2, "{html}");
    }

    #[test]
    fn sentences_say_whose_they_are() {
        let names = ["carefree", "go", "ruby", "rust"];
        let of = |sentence| named(&names, sentence);
        assert_eq!(of("In ruby 2.5 to 3.4 a fiber starts 9x faster").as_deref(), Some("ruby"));
        let both = of("In carefree 0.1.0, rust 1.95.0, feeding 64 people, threads overtake");
        assert_eq!(both.as_deref(), Some("carefree,rust"));
        let step = of("Ruby: thread switch 2.4x slower from 3.2 to 3.3 (1.2 µs to 2.9 µs).");
        assert_eq!(step.as_deref(), Some("ruby"));
        for other in ["Here a fiber starts 9x faster than a thread.", "Marked *: of few samples."] {
            assert_eq!(of(other), None);
        }
    }

    #[test]
    fn options_and_dates_are_not_broken() {
        let html = |text: &str| unbroken(text).into_string();
        assert_eq!(html("or raise --samples."), "or raise <span class=\"whole\">--samples.</span>");
        assert_eq!(
            html("from 2026-11-25T03:33:13Z on"),
            "from <span class=\"whole\">2026-11-25T03:33:13Z</span> on"
        );
        // Nor is there more room on a phone for what is longer than its lines.
        for plain in ["a - b", "two-sided & 10-20-30-40-50-60-70-80-90"] {
            assert!(!html(plain).contains("span"), "{plain}");
        }
    }
}
