//! Pieces of a page: text made safe, tables, and the figures that charts stand in.

use std::fmt::Write;

use crate::report::table::{Align, Table};

/// Text that is shown as it is, in the page and in attributes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

/// A table whose columns can be sorted. Its first column names the rows.
pub(super) fn table(table: &Table, caption: &str) -> String {
    let class = |align| if align == Align::Right { " class=\"right\"" } else { "" };
    let mut html = String::from("<div class=\"scroll\" tabindex=\"0\" role=\"region\" ");
    let _ = write!(
        html,
        "aria-label=\"{0}\"><table class=\"sortable\"><caption>{0}</caption>\n<thead><tr>",
        escape(caption)
    );
    for column in &table.columns {
        let heading = escape(&column.heading);
        let _ = write!(html, "<th scope=\"col\"{}>{heading}</th>", class(column.align));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (number, row) in table.rows.iter().enumerate() {
        html.push_str("<tr>");
        for (at, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
            // In text a name stands once above its rows; to be sorted, each row needs its own.
            let cell = table.names.get(number).filter(|_| at == 0).unwrap_or(cell);
            let key = key(cell).map_or_else(String::new, |key| format!(" data-key=\"{key}\""));
            let text = escape(cell);
            let _ = match at {
                0 => write!(html, "<th scope=\"row\"{key}>{text}</th>"),
                _ => write!(html, "<td{}{key}>{text}</td>", class(column.align)),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    html
}

/// What a cell with a unit is sorted by: `4.41 µs` by its nanoseconds, `1,000` by the number.
fn key(cell: &str) -> Option<f64> {
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

/// Lines under a table.
pub(super) fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    format!("<ul class=\"notes\">{items}</ul>\n")
}

/// A chart with its title, and the table of what it shows.
pub(super) fn figure(title: &str, remark: &str, chart: &str, behind: &Table) -> String {
    format!(
        "<figure class=\"card\"><figcaption>{}<small>{}</small></figcaption>\n{chart}\n\
         <details><summary>The figures behind this chart</summary>{}</details></figure>\n",
        escape(title),
        escape(remark),
        table(behind, title),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_record_becomes_part_of_the_page() {
        let mut evil = Table::new("x").column("<b>", Align::Left);
        evil.rows = vec![vec!["<script>alert('1')</script>".into()]];
        let html = table(&evil, "\"quoted\"");
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
        assert_eq!(key("4.50 KiB"), Some(4_608.0));
        assert_eq!(key("ruby 3.3"), None);
        assert_eq!(key("–"), None);
    }

    #[test]
    fn a_name_that_stands_once_is_in_every_row() {
        let mut two = Table::new("x").column("Runtime", Align::Left).column("Mode", Align::Left);
        two.rows =
            vec![vec!["ruby 3.3".into(), "Fibers".into()], vec![String::new(), "Threads".into()]];
        two.names = vec!["ruby 3.3".into(); 2];
        let html = table(&two, "x");
        assert_eq!(html.matches("<th scope=\"row\">ruby 3.3</th>").count(), 2, "{html}");
    }
}
