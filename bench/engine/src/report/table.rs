//! Tables as text: columns aligned, separated only by spaces.

/// A table; its first row is the heading.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Adds a row.
    pub(super) fn row<Cell: Into<String>>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats the table as text: the first column is aligned to the left, the others to the right.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // The formatter counts characters, as a terminal does.
                line += &match column {
                    0 => format!("  {cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters() {
        let mut table = Table::default();
        table.row(["", "u32", "str"]);
        table.row(["rdtsc", "15.5 ±0.1"]);
        table.row(["LTTng-UST", "127.5 ±10.0", "150.0 ±1.0"]);
        let expected = "\
                     \u{20}                    u32         str
  rdtsc        15.5 ±0.1
  LTTng-UST  127.5 ±10.0  150.0 ±1.0
";
        assert_eq!(table.text(), expected);
    }
}
