//! Suggestions for a directive that does not exist.

use crate::table;

/// Returns the name nearest to `name`, if a third of it at most has to change.
pub(crate) fn nearest(name: &[u8]) -> Option<&'static str> {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let known =
        table::rows().flat_map(|row| row.names()).chain(table::STATEMENTS.iter().map(|statement| statement.name));
    let (distance, nearest) = known.map(|known| (distance(name.as_bytes(), known.as_bytes()), known)).min()?;
    (distance <= (name.len() / 3).max(1)).then_some(nearest)
}

/// Counts insertions, deletions, replacements and swaps of neighbours between two names (optimal string alignment).
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows = [vec![0; b.len() + 1], vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        rows.rotate_left(1);
        rows[2][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[0][j - 2] + 1);
            }
            rows[2][j] = best;
        }
    }
    rows[2][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right() {
        assert_eq!(nearest(b"maxmemroy"), Some("maxmemory"));
        assert_eq!(nearest(b"PROT"), Some("port"));
        assert_eq!(nearest(b"worker"), Some("workers"));
        assert_eq!(nearest(b"includes"), Some("include"));
        assert_eq!(nearest(b"something-else-altogether"), None);
        assert_eq!(nearest(b""), None);
    }

    #[test]
    fn distances() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"ca", b"abc"), 3);
        assert_eq!(distance(b"abcd", b"acbd"), 1);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
