//! Whether two sets of rows are the same, without holding either: what each row stands for is hashed, and the hashes
//! added up. Equal sums of so many rows say so, but for less than an undetected memory error; others are looked into
//! row by row.

use xxhash_rust::xxh3::Xxh3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    count: u64,
    sum: u128,
}

impl Agreement {
    /// Adds what a row stands for. The parts are concatenated.
    pub fn add(&mut self, parts: &[&[u8]]) {
        let mut hash = Xxh3::new();
        parts.iter().for_each(|part| hash.update(part));
        self.sum = self.sum.wrapping_add(hash.digest128());
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_matter_and_all_else_does() {
        let sum = |rows: &[&[u8]]| {
            let mut sum = Agreement::default();
            rows.iter().for_each(|row| sum.add(&[&row[..1], &row[1..]]));
            sum
        };
        assert_eq!(sum(&[b"one", b"two", b"three"]), sum(&[b"three", b"one", b"two"]));
        assert_ne!(sum(&[b"one", b"two"]), sum(&[b"one", b"twO"]));
        assert_ne!(sum(&[b"one", b"two"]), sum(&[b"one", b"two", b"two"]));
        assert_ne!(sum(&[]), sum(&[b"x"]));
    }
}
