//! Rows of text, aligned.

/// Columns of text under headings; the first column is aligned left, all others right.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these columns.
    pub fn new<const N: usize>(headings: [String; N]) -> Self {
        Table::with_headings(headings.into())
    }

    /// A table of these columns.
    pub fn with_headings(headings: Vec<String>) -> Self {
        Table { rows: vec![headings] }
    }

    /// Adds a row; a row shorter than the headings leaves the last columns empty.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = row.get(column).map_or("", String::as_str);
                if column == 0 {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("  {cell:>width$}"));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
            if number == 0 {
                let total = widths.iter().sum::<usize>() + 2 * (columns - 1);
                writeln!(f, "{}", "-".repeat(total))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["what", "ours", "theirs"].map(String::from));
        table.push(vec!["yield".into(), "25.1 ns".into(), "99 ns".into()]);
        table.push(vec!["a longer one".into(), "1 ns".into()]);
        assert_eq!(
            table.to_string(),
            "what             ours  theirs\n\
             -----------------------------\n\
             yield         25.1 ns   99 ns\n\
             a longer one     1 ns\n"
        );
    }
}
