//! A guess of whether the base has a row in memory. An event loop asks the base for what it has in memory before it
//! leaves the row to the I/O pool; over data far larger than memory such attempts fail, and cost a good part of the
//! read that follows. Where hardly any succeed, only some are made, to learn when that changes.

use std::sync::atomic::{AtomicU32, Ordering};

/// The guess for one base. Threads may lose each other's notes, which does no harm.
pub(crate) struct Attempts {
    /// The share of recent attempts that succeeded, in parts of `WHOLE`.
    succeeded: AtomicU32,
    /// Rows that came while attempts hardly succeeded.
    rows: AtomicU32,
}

const WHOLE: u32 = 1 << 16;

/// The share of successes below which rows that are in memory gain less by attempts than the others lose: an attempt
/// costs about a tenth of what it may save.
const SHARE_MIN: u32 = WHOLE / 10;

/// The share follows about so many attempts.
const MEMORY: u32 = 32;

/// The number of rows for each attempt where attempts hardly succeed.
const EVERY: u32 = 8;

impl Default for Attempts {
    fn default() -> Self {
        Attempts { succeeded: AtomicU32::new(WHOLE), rows: AtomicU32::new(0) }
    }
}

impl Attempts {
    /// Returns whether to ask the base for the next row.
    pub fn is_due(&self) -> bool {
        if self.succeeded.load(Ordering::Relaxed) >= SHARE_MIN {
            return true;
        }
        self.rows.fetch_add(1, Ordering::Relaxed) % EVERY == EVERY - 1
    }

    /// Notes whether the base had the row, or the knowledge that there is none, in memory.
    pub fn note(&self, was_in_memory: bool) {
        let before = self.succeeded.load(Ordering::Relaxed);
        let after = before - before / MEMORY + if was_in_memory { WHOLE / MEMORY } else { 0 };
        self.succeeded.store(after.min(WHOLE), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for `rows` of which the base has every `of`th in memory, none if `of` is 0; returns how many attempts were
    /// made.
    fn attempts(guess: &Attempts, rows: usize, of: usize) -> usize {
        let attempts = (1..=rows).filter(|row| {
            let due = guess.is_due();
            if due {
                guess.note(of > 0 && row % of == 0);
            }
            due
        });
        attempts.count()
    }

    #[test]
    fn attempts_are_made_where_some_succeed() {
        let guess = Attempts::default();
        assert_eq!(attempts(&guess, 1000, 1), 1000);
        assert!(attempts(&guess, 10_000, 3) > 9_900);
    }

    #[test]
    fn few_attempts_are_made_where_none_succeed_and_all_again_when_they_do() {
        let guess = Attempts::default();
        attempts(&guess, 200, 0);
        assert_eq!(attempts(&guess, 8000, 0), 1000);
        // Four successes are enough, found among 32 rows.
        attempts(&guess, 40, 1);
        assert_eq!(attempts(&guess, 1000, 1), 1000);
    }
}
