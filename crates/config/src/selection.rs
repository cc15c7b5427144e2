//! `replicaof-databases` and `replicaof-slots`: the part of a Redis's keys that a server takes which follows it.

use std::fmt;
use std::sync::Arc;

/// Databases or slots, as ranges whose ends are included: `0 3-5`. Invariant: they are in order, and no two touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Arc<[(u32, u32)]>);

/// The keys that are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The databases that are selected; `None` for all.
    pub databases: Option<Ranges>,
    /// The slots that are selected; `None` for all.
    pub slots: Option<Ranges>,
}

/// The slots of Redis Cluster.
const SLOTS: u32 = 16_384;

/// The databases that a server may have at most.
const DATABASES: u32 = i32::MAX as u32;

impl Ranges {
    /// Parses numbers below `count` and ranges of them, with commas or spaces between; the result is in order, and no
    /// two ranges touch.
    fn parse(text: &str, count: u32) -> Option<Ranges> {
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|number: &u32| is_number && *number < count)
        };
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        let ranges = words.map(|word| match word.split_once('-') {
            Some((from, until)) => Some((number(from)?, number(until)?)).filter(|(from, until)| from <= until),
            None => number(word).map(|number| (number, number)),
        });
        let mut ranges: Vec<(u32, u32)> = ranges.collect::<Option<_>>()?;
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let goes_on = next.0 <= before.1.saturating_add(1);
            before.1 = if goes_on { before.1.max(next.1) } else { before.1 };
            goes_on
        });
        (!ranges.is_empty()).then_some(Ranges(ranges.into()))
    }

    /// Returns whether a number is in one of them.
    pub fn contains(&self, number: u32) -> bool {
        let next = self.0.partition_point(|(_, until)| *until < number);
        self.0.get(next).is_some_and(|(from, _)| *from <= number)
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, until)) in self.0.iter().enumerate() {
            let before = if at > 0 { " " } else { "" };
            match from == until {
                true => write!(f, "{before}{from}")?,
                false => write!(f, "{before}{from}-{until}")?,
            }
        }
        Ok(())
    }
}

impl Selection {
    /// Reads the values of the two directives, which were checked.
    pub fn read(databases: &str, slots: &str) -> Selection {
        Selection { databases: Ranges::parse(databases, DATABASES), slots: Ranges::parse(slots, SLOTS) }
    }

    /// Returns whether all keys are taken.
    pub fn is_all(&self) -> bool {
        *self == Selection::default()
    }

    /// Returns whether keys of a database are taken.
    pub fn has_database(&self, database: u32) -> bool {
        self.databases.as_ref().is_none_or(|databases| databases.contains(database))
    }

    /// Returns whether keys of a slot are taken.
    pub fn has_slot(&self, slot: u16) -> bool {
        self.slots.as_ref().is_none_or(|slots| slots.contains(slot.into()))
    }
}

/// The selection's text: equal where the same keys are taken.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |ranges: &Option<Ranges>| ranges.as_ref().map_or_else(|| "all".to_owned(), Ranges::to_string);
        write!(f, "databases {}, slots {}", text(&self.databases), text(&self.slots))
    }
}

fn check(text: &[u8], count: u32, why: &'static str) -> Result<(), &'static str> {
    match std::str::from_utf8(text) {
        Ok(text) if text.is_empty() || Ranges::parse(text, count).is_some() => Ok(()),
        _ => Err(why),
    }
}

/// Checks the value of `replicaof-databases`; empty is all.
pub(crate) fn check_databases(text: &[u8]) -> Result<(), &'static str> {
    check(text, DATABASES, "argument must be databases and ranges of them, like 0 or 0,3-5")
}

/// Checks the value of `replicaof-slots`; empty is all.
pub(crate) fn check_slots(text: &[u8]) -> Result<(), &'static str> {
    check(text, SLOTS, "argument must be slots from 0 to 16383 and ranges of them, like 0-5460 or 0-99,200")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_put_in_order_and_joined() {
        for (text, expected) in [("0", "0"), ("5,3-4 0", "0 3-5"), ("0-10,2-3", "0-10"), (" 7 ,, 9", "7 9")] {
            assert_eq!(Ranges::parse(text, SLOTS).map(|ranges| ranges.to_string()), Some(expected.into()), "{text}");
        }
        for text in ["", " ", "x", "-1", "1-", "4-2", "16384", "0-16384", "1;2", "+3", "1-2-3"] {
            assert_eq!(Ranges::parse(text, SLOTS), None, "{text}");
        }
        let ranges = Ranges::parse("0-5460,16383", SLOTS).expect("they are right");
        assert!(ranges.contains(0) && ranges.contains(5460) && ranges.contains(16_383));
        assert!(!ranges.contains(5461) && !ranges.contains(16_382));
    }

    #[test]
    fn selections_of_the_same_keys_have_one_text() {
        let selection = Selection::read("3,1-2", "");
        assert_eq!(selection.to_string(), "databases 1-3, slots all");
        assert!(selection.has_database(2) && !selection.has_database(0) && selection.has_slot(9));
        assert!(Selection::read("", "").is_all() && !selection.is_all());
        assert_eq!(Selection::read("1 2 3", ""), selection);
    }
}
