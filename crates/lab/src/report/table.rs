//! A table, and how it looks in a terminal and in Markdown.

use std::collections::BTreeMap;

use super::escape;
use super::ink::Ink;
use crate::number::MARK;
use crate::printable;

/// What stands where nothing was measured.
pub(super) const NOTHING: &str = "–";

/// What the mark behind a figure says.
pub(crate) const FEW_SAMPLES: &str =
    "Marked *: of fewer than three samples, in two digits; nothing tells how far off they are.";

/// Rows of cells under headings. A cell of a text table may have several lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Stands above it.
    pub title: String,
    pub(crate) columns: Vec<Column>,
    /// The cells, one for each column.
    pub rows: Vec<Vec<String>>,
    /// What each row is named in full, where its first cell tells it in part, as under a name that
    /// stands once above several rows. Empty where the first cells tell all.
    pub(crate) names: Vec<String>,
    /// How far the figure in a cell may be off, by its row and column: `7.1–7.4`. For Markdown,
    /// which has no other place for it beside the figure; texts and pages show it elsewhere.
    pub(crate) ranges: BTreeMap<(usize, usize), String>,
    /// What a reader has to know, one a line.
    pub(crate) notes: Vec<String>,
    /// The side of the comparison that a cell is won by, by its row and column, for pages, which have
    /// colours: `fiber` or `thread`.
    pub(crate) won: BTreeMap<(usize, usize), &'static str>,
    /// What a cell tells of a change, by its row and column, for terminals that have colours.
    pub(crate) tones: BTreeMap<(usize, usize), Tone>,
}

/// Whether a change is welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// It is.
    Good,
    /// It is not.
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) heading: String,
    pub(crate) align: Align,
}

/// Where a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// As words do.
    Left,
    /// As numbers do.
    Right,
}

impl Table {
    /// A table without columns.
    pub fn new(title: &str) -> Table {
        Table {
            title: title.into(),
            columns: Vec::new(),
            rows: Vec::new(),
            names: Vec::new(),
            ranges: BTreeMap::new(),
            notes: Vec::new(),
            won: BTreeMap::new(),
            tones: BTreeMap::new(),
        }
    }

    /// With further columns, aligned as words are.
    #[must_use]
    pub fn left<const N: usize>(self, headings: [&str; N]) -> Table {
        self.with(&headings, Align::Left)
    }

    /// With further columns, aligned as numbers are.
    #[must_use]
    pub fn right<const N: usize>(self, headings: [&str; N]) -> Table {
        self.with(&headings, Align::Right)
    }

    /// Adds a column.
    pub fn add(&mut self, heading: impl Into<String>, align: Align) {
        self.columns.push(Column { heading: heading.into(), align });
    }

    fn with(mut self, headings: &[&str], align: Align) -> Table {
        headings.iter().for_each(|heading| self.add(*heading, align));
        self
    }

    /// Without the columns in which no cell says anything.
    pub(crate) fn without_empty(mut self) -> Table {
        let says = |cell: &str| !cell.is_empty() && cell != "–";
        for at in (0..self.columns.len()).rev() {
            if !self.rows.iter().any(|row| says(&row[at])) {
                self.columns.remove(at);
                self.rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        self
    }

    /// With a note on the mark behind figures of few samples, where there are any.
    pub(crate) fn with_marks_explained(mut self) -> Table {
        if self.rows.iter().flatten().any(|cell| cell.ends_with(MARK)) {
            self.notes.push(FEW_SAMPLES.into());
        }
        self
    }

    /// For a terminal: headings broken into lines, so that nine columns fit a screen.
    pub fn text(&self) -> String {
        self.in_ink(Ink::new(false))
    }

    fn in_ink(&self, ink: Ink) -> String {
        let plain = |_: usize, cell: &str| cell.to_owned();
        let widths: Vec<usize> = (0..self.columns.len()).map(|at| self.width(at)).collect();
        let headings: Vec<Vec<String>> =
            self.columns.iter().zip(&widths).map(|(c, &w)| wrap(&c.heading, w)).collect();
        let height = headings.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = String::new();
        for line in 0..height {
            // Headings stand on the rule: short ones start lower.
            let cells = headings.iter().map(|lines| {
                (line + lines.len()).checked_sub(height).map_or("", |at| lines[at].as_str())
            });
            self.line(&mut text, cells, &widths, &plain);
        }
        let rules: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
        self.line(&mut text, rules.iter().map(String::as_str), &widths, &plain);
        for (number, row) in self.rows.iter().enumerate() {
            let paint = |column: usize, cell: &str| match self.tones.get(&(number, column)) {
                Some(Tone::Good) => ink.green(cell),
                Some(Tone::Bad) => ink.red(cell),
                None => cell.to_owned(),
            };
            let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
            for line in 0..height {
                let cells = row.iter().map(|cell| cell.lines().nth(line).unwrap_or(""));
                self.line(&mut text, cells, &widths, &paint);
            }
        }
        text
    }

    /// For Markdown: one line a row, columns padded so that the source is a table to read too. A
    /// range stands small under its figure.
    pub(crate) fn markdown(&self) -> String {
        let flat = |cell: &str| {
            let lines: Vec<String> = cell.lines().map(escape::text).collect();
            lines.join(", ").replace('|', "\\|")
        };
        let cell = |place, cell: &str| match self.ranges.get(&place) {
            Some(range) => format!("{}<br><sub>{range}</sub>", flat(cell)),
            None => flat(cell),
        };
        let row = |(at, row): (usize, &Vec<String>)| {
            row.iter().enumerate().map(|(column, text)| cell((at, column), text)).collect()
        };
        let rows: Vec<Vec<String>> = self.rows.iter().enumerate().map(row).collect();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let cells = rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
                // The rule needs room for three characters.
                cells.max(width(&flat(&column.heading))).max(3)
            })
            .collect();
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let row = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).zip(&self.columns);
            line(cells.map(|((cell, &width), column)| pad(cell, width, column.align)).collect())
        };
        let headings: Vec<String> = self.columns.iter().map(|c| flat(&c.heading)).collect();
        let rules = self.columns.iter().zip(&widths).map(|(column, &width)| match column.align {
            Align::Left => "-".repeat(width),
            Align::Right => format!("{}:", "-".repeat(width - 1)),
        });
        let mut text = row(&headings);
        text += &line(rules.collect());
        rows.iter().for_each(|cells| text += &row(cells));
        text
    }

    /// For a terminal, with its title above and its notes below.
    pub(super) fn text_section(&self, ink: Ink) -> String {
        let notes = self.notes.iter().map(|note| format!("  {}\n", ink.dim(note)));
        format!("\n{}\n\n{}{}", ink.bold(&self.title), self.in_ink(ink), notes.collect::<String>())
    }

    /// For Markdown, with its title above and its notes below.
    pub(super) fn markdown_section(&self) -> String {
        const RANGES: &str = "Below a figure is its 95% interval, which for fewer than 8 samples is \
                              about their range.";
        let ranged = (!self.ranges.is_empty()).then_some(RANGES);
        let notes = self.notes.iter().map(String::as_str).chain(ranged);
        let notes: String = notes.map(|note| format!("  - {}\n", escape::text(note))).collect();
        let gap = if notes.is_empty() { "" } else { "\n" };
        format!("\n### {}\n\n{}{gap}{notes}", escape::text(&self.title), self.markdown())
    }

    /// As wide as the widest line of a cell, and as the longest word of the heading.
    fn width(&self, at: usize) -> usize {
        let cells = self.rows.iter().flat_map(|row| row[at].lines()).map(width);
        let words = self.columns[at].heading.split(' ').map(width);
        cells.chain(words).max().unwrap_or(0)
    }

    /// One line of cells, each of which `paint` may colour; it is told the column.
    fn line<'a>(
        &self,
        text: &mut String,
        cells: impl Iterator<Item = &'a str>,
        widths: &[usize],
        paint: &dyn Fn(usize, &str) -> String,
    ) {
        let cells: Vec<String> = cells
            .zip(widths)
            .zip(&self.columns)
            .enumerate()
            .map(|(at, ((cell, &width), column))| {
                let cell = printable::line(cell);
                let padded = pad(&cell, width, column.align);
                // Not the blanks beside it: they end a line, and are taken off there.
                if cell.is_empty() { padded } else { padded.replacen(&*cell, &paint(at, &cell), 1) }
            })
            .collect();
        text.push_str("  ");
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
}

/// Characters, which for what stands in our tables is columns of a terminal.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn pad(cell: &str, to: usize, align: Align) -> String {
    let missing = " ".repeat(to.saturating_sub(width(cell)));
    match align {
        Align::Left => format!("{cell}{missing}"),
        Align::Right => format!("{missing}{cell}"),
    }
}

/// Breaks `text` between words into lines of at most `most` characters.
pub(crate) fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new("Sizes").left(["Runtime"]).right(["Fiber Alloc (μs)", "N"]);
        table.rows = vec![
            vec!["ours 1.0\nrust 1.95".into(), "4.405".into(), "1".into()],
            vec!["theirs".into(), "12,345.678".into(), "10".into()],
        ];
        table
    }

    #[test]
    fn text_breaks_headings_and_aligns_columns() {
        assert_eq!(
            sample().text(),
            "                  Fiber\n\
            \x20 Runtime    Alloc (μs)   N\n\
            \x20 ─────────  ──────────  ──\n\
            \x20 ours 1.0        4.405   1\n\
            \x20 rust 1.95\n\
            \x20 theirs     12,345.678  10\n"
        );
    }

    #[test]
    fn markdown_has_one_line_a_row() {
        assert_eq!(
            sample().markdown(),
            "| Runtime             | Fiber Alloc (μs) |   N |\n\
             | ------------------- | ---------------: | --: |\n\
             | ours 1.0, rust 1.95 |            4.405 |   1 |\n\
             | theirs              |       12,345.678 |  10 |\n"
        );
    }

    #[test]
    fn a_range_stands_under_its_figure_in_markdown_alone() {
        let mut table = sample();
        let text = table.text();
        table.ranges.insert((0, 1), "4.1–4.9".into());
        assert_eq!(table.text(), text);
        assert_eq!(
            table.markdown().lines().nth(2),
            Some("| ours 1.0, rust 1.95 | 4.405<br><sub>4.1–4.9</sub> |   1 |")
        );
    }

    #[test]
    fn colours_move_no_column() {
        let mut table = sample();
        let plain = table.text();
        table.tones = BTreeMap::from([((0, 1), Tone::Bad), ((1, 2), Tone::Good)]);
        assert_eq!(table.text(), plain, "a text without colours has none");
        let coloured = table.in_ink(Ink::new(true));
        assert!(coloured.contains("ours 1.0        \x1b[31m4.405\x1b[0m   1\n"), "{coloured}");
        assert!(coloured.ends_with("  12,345.678  \x1b[32m10\x1b[0m\n"), "{coloured}");
        let codes = ["\x1b[31m", "\x1b[32m", "\x1b[0m"];
        assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), plain);
    }

    #[test]
    fn words_longer_than_a_line_stand_alone() {
        assert_eq!(wrap("a Coroutine b c", 5), ["a", "Coroutine", "b c"]);
    }
}
