//! Tables of plain text.

/// Columns as wide as their widest cell, numbers to the right; the first column to the left.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let lines: Vec<Vec<&str>> = std::iter::once(header.to_vec())
        .chain(rows.iter().map(|row| row.iter().map(String::as_str).collect()))
        .collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = line
            .iter()
            .enumerate()
            .map(|(column, cell)| {
                let width = width(column).unwrap_or(0);
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A figure with `digits` decimals, or a dash.
pub(crate) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows =
            [vec!["a".to_owned(), figure(Some(1.25), 1)], vec!["bb".into(), figure(None, 1)]];
        assert_eq!(table(&["x", "rate"], &rows), "x   rate\na    1.2\nbb     -\n");
    }
}
