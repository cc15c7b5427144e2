//! The names of objects: what can be told of an archive from a list of them.

use haypile_log::{Chunk, History, Index};
use std::fmt;

/// The object that says what the place is.
pub(crate) const ABOUT: &str = "ARCHIVE";
pub(crate) const BACKUPS: &str = "backups/";
pub(crate) const FILES: &str = "files/";
pub(crate) const LOG: &str = "log/";
pub(crate) const MARKS: &str = "marks/";

/// The SHA-256 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Parses 64 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Digest> {
        let mut digest = Digest([0; 32]);
        for (at, byte) in digest.0.iter_mut().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        (digest.to_string() == text).then_some(digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The name of a chunk of the log: which records it has, and until when they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkName {
    pub history: History,
    pub first: Index,
    pub last: Index,
    /// The time of the last record, in milliseconds since 1970.
    pub time_ms: u64,
}

impl ChunkName {
    pub fn of(chunk: &Chunk) -> ChunkName {
        ChunkName { history: chunk.history, first: chunk.first, last: chunk.last, time_ms: chunk.time_ms }
    }

    /// Parses what `Display` prints.
    pub fn parse(name: &str) -> Option<ChunkName> {
        let (history, rest) = name.strip_prefix(LOG)?.split_once('/')?;
        let mut parts = rest.strip_suffix(".log")?.split('-');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (first, last, time_ms) = (Index(number()?), Index(number()?), number()?);
        let parsed = ChunkName { history: History::parse(history)?, first, last, time_ms };
        (first.0 > 0 && first <= last && last.0 < u64::MAX && parsed.to_string() == name).then_some(parsed)
    }

    /// Returns the beginning of the names of a history's chunks.
    pub(crate) fn prefix(history: History) -> String {
        format!("{LOG}{history}/")
    }

    /// Returns a name behind those of the chunks that begin at or before `index`, and before the others.
    pub(crate) fn behind(history: History, index: Index) -> String {
        format!("{LOG}{history}/{:020}.", index.0)
    }
}

impl fmt::Display for ChunkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChunkName { history, first, last, time_ms } = self;
        write!(f, "{LOG}{history}/{:020}-{:020}-{time_ms:014}.log", first.0, last.0)
    }
}

/// Returns `20261122T084500Z` for a time in milliseconds since 1970, in UTC.
pub fn backup_time(time_ms: u64) -> String {
    let (days, second) = (time_ms / 86_400_000, time_ms / 1000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Returns `20261122T084500.123Z`: `haypile restore --to` takes it as the moment that it is.
pub fn exact_time(time_ms: u64) -> String {
    let whole = backup_time(time_ms);
    format!("{}.{:03}Z", whole.trim_end_matches('Z'), time_ms % 1000)
}

/// Returns year, month and day of a day since 1970, in the Gregorian calendar (Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_told_by_their_names() {
        let history = History([0xab; 20]);
        let name = ChunkName { history, first: Index(4711), last: Index(5000), time_ms: 1_795_337_100_123 };
        let text = name.to_string();
        let expected = "00000000000000004711-00000000000000005000-01795337100123.log";
        assert_eq!(text, format!("log/{}/{expected}", "ab".repeat(20)));
        assert_eq!(ChunkName::parse(&text), Some(name));
        for wrong in ["", "log/ab/1-2-3.log", &text[1..], &text.replace("5000", "4000"), &format!("{text}x")] {
            assert_eq!(ChunkName::parse(wrong), None, "{wrong}");
        }
        assert!(ChunkName::behind(history, Index(4711)) > text);
        assert!(ChunkName::behind(history, Index(4710)) < text);
    }

    #[test]
    fn times_are_printed_in_utc() {
        for (time_ms, expected) in [
            (0, "19700101T000000Z"),
            (951_827_696_999, "20000229T123456Z"),
            (1_795_337_100_000, "20261122T084500Z"),
            (4_107_542_399_000, "21000228T235959Z"),
            (4_107_542_400_000, "21000301T000000Z"),
        ] {
            assert_eq!(backup_time(time_ms), expected);
        }
        assert_eq!(exact_time(951_827_696_099), "20000229T123456.099Z");
    }
}
