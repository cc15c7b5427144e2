//! The tables of a Markdown page, as the benchmarks write them: a line of titles, a line of dashes, a line for each
//! row.

use anyhow::{Context, Result, ensure};

/// A table: titles and rows of cells, without the spaces around them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Returns the first of a section's tables.
pub fn first(tables: &[Table]) -> Result<&Table> {
    tables.first().context("there is no table between the marks")
}

impl Table {
    /// Reads all tables of a text, in order.
    pub fn all(text: &str) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let mut inside = false;
        for line in text.lines() {
            let cells = cells(line);
            match (&cells, inside) {
                (None, _) => {}
                (Some(_), false) => tables.push(Table { titles: cells.clone().unwrap_or_default(), rows: vec![] }),
                (Some(row), true) if row.iter().all(|cell| cell.chars().all(|c| c == '-')) && !row.is_empty() => {}
                (Some(row), true) => {
                    if let Some(table) = tables.last_mut() {
                        table.rows.push(row.clone());
                    }
                }
            }
            inside = cells.is_some();
        }
        tables
    }

    /// Returns a table of the rows that have this text in a column.
    pub fn only(&self, title: &str, text: &str) -> Result<Table> {
        let column = self.column(title)?;
        let table = self.with(|row| row.get(column).is_some_and(|cell| cell == text));
        ensure!(!table.rows.is_empty(), "no row has {text:?} in the column {title:?}");
        Ok(table)
    }

    /// Returns a table of the rows that do not have this text in a column.
    pub fn except(&self, title: &str, text: &str) -> Result<Table> {
        let column = self.column(title)?;
        Ok(self.with(|row| row.get(column).is_none_or(|cell| cell != text)))
    }

    fn with(&self, fits: impl Fn(&Vec<String>) -> bool) -> Table {
        Table { titles: self.titles.clone(), rows: self.rows.iter().filter(|row| fits(row)).cloned().collect() }
    }

    /// Returns the cells of a column.
    pub fn texts(&self, title: &str) -> Result<Vec<String>> {
        let column = self.column(title)?;
        self.rows.iter().map(|row| row.get(column).cloned().with_context(|| format!("{row:?} is short"))).collect()
    }

    /// Returns the texts of a column, each once, in the order of the rows.
    pub fn distinct(&self, title: &str) -> Result<Vec<&str>> {
        let column = self.column(title)?;
        let mut found: Vec<&str> = Vec::new();
        for cell in self.rows.iter().filter_map(|row| row.get(column)) {
            if !found.contains(&cell.as_str()) {
                found.push(cell);
            }
        }
        Ok(found)
    }

    /// Returns the figures of a column; [`f64::NAN`] where a cell is `-`.
    pub fn numbers(&self, title: &str) -> Result<Vec<f64>> {
        self.texts(title)?.iter().map(|cell| number(cell)).collect()
    }

    /// Returns the figures of a column, each as written and as a number.
    pub fn figures(&self, title: &str) -> Result<Vec<(String, f64)>> {
        self.texts(title)?.iter().map(|cell| Ok((written(cell), number(cell)?))).collect()
    }

    fn column(&self, title: &str) -> Result<usize> {
        let column = self.titles.iter().position(|other| other == title);
        column.with_context(|| format!("no column {title:?} in {:?}", self.titles))
    }
}

/// Returns the cells of a table's line; none if the line is no part of a table.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().to_string()).collect())
}

/// Returns the first word of a cell without the marks of bold text: `1.17` of `**1.17** (missed)`.
fn written(cell: &str) -> String {
    cell.replace("**", "").split_whitespace().next().unwrap_or_default().to_string()
}

/// Returns the number that a cell begins with.
fn number(cell: &str) -> Result<f64> {
    let first = written(cell);
    if first == "-" {
        return Ok(f64::NAN);
    }
    first.parse().with_context(|| format!("{cell:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "text\n\n| a | of Redis |\n|---|---|\n| x | **1.17** (missed) |\n| y | - |\n\n| b |\n|---|\n| 2 |\ntext\n";

    #[test]
    fn tables_are_read_with_titles_and_rows() {
        let tables = Table::all(PAGE);
        assert_eq!(tables.len(), 2);
        assert_eq!(tables[0].texts("a").expect("the column is there"), ["x", "y"]);
        let ratios = tables[0].numbers("of Redis").expect("figures");
        assert!((ratios[0] - 1.17).abs() < 1e-9 && ratios[1].is_nan());
        assert_eq!(tables[1].figures("b").expect("figures"), [("2".to_string(), 2.0)]);
    }

    #[test]
    fn rows_are_chosen_by_a_cell() {
        let table = &Table::all(PAGE)[0];
        assert_eq!(table.only("a", "y").expect("the row is there").texts("a").expect("the column"), ["y"]);
        assert_eq!(table.except("a", "y").expect("the column").distinct("a").expect("the column"), ["x"]);
        assert!(table.only("a", "z").is_err() && table.texts("c").is_err() && table.numbers("a").is_err());
    }
}
