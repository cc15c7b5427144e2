//! Reads values by name and type, and keeps note of which were read.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::choices::{Share, Size};
use crate::value::Value;
use crate::values::Values;

/// Reads values by name and type. A wrong type is a mistake in this folder; a test reads them all.
pub(super) struct Fields<'a> {
    values: &'a Values,
    /// The names that were read.
    pub seen: BTreeSet<&'static str>,
}

impl<'a> Fields<'a> {
    pub fn of(values: &'a Values) -> Fields<'a> {
        Fields { values, seen: BTreeSet::new() }
    }

    pub fn value(&mut self, name: &'static str) -> &'a Value {
        self.seen.insert(name);
        self.values.get(name)
    }

    pub fn bool(&mut self, name: &'static str) -> bool {
        match self.value(name) {
            Value::Bool(yes) => *yes,
            other => unreachable!("{name} is yes or no, not {other:?}"),
        }
    }

    pub fn int<T: TryFrom<i64>>(&mut self, name: &'static str) -> T {
        match self.value(name) {
            Value::Int(number) => T::try_from(*number).ok().expect("the bounds of the row fit the type of the field"),
            other => unreachable!("{name} is an integer, not {other:?}"),
        }
    }

    /// Returns a number, which may be one of bytes.
    pub fn count(&mut self, name: &'static str) -> i64 {
        match self.value(name) {
            Value::Int(number) => *number,
            Value::Bytes(bytes) => i64::try_from(*bytes).unwrap_or(i64::MAX),
            other => unreachable!("{name} is a number, not {other:?}"),
        }
    }

    pub fn bytes(&mut self, name: &'static str) -> u64 {
        match self.value(name) {
            Value::Bytes(bytes) => *bytes,
            other => unreachable!("{name} is a number of bytes, not {other:?}"),
        }
    }

    pub fn size(&mut self, name: &'static str) -> Size {
        match self.value(name) {
            Value::Auto => Size::Auto,
            Value::Bytes(bytes) => Size::Bytes(*bytes),
            other => unreachable!("{name} is a size, not {other:?}"),
        }
    }

    pub fn share(&mut self, name: &'static str) -> Share {
        match self.value(name) {
            Value::Bytes(bytes) => Share::Bytes(*bytes),
            Value::Percent(percent) => Share::Percent(*percent),
            other => unreachable!("{name} is bytes or a share, not {other:?}"),
        }
    }

    pub fn octal(&mut self, name: &'static str) -> u32 {
        match self.value(name) {
            Value::Octal(mode) => *mode,
            other => unreachable!("{name} is a file mode, not {other:?}"),
        }
    }

    /// Returns what the word of a choice stands for.
    pub fn choice<T: Copy>(&mut self, name: &'static str, meanings: &[(&str, T)]) -> T {
        let word = self.printed(name);
        let meaning = meanings.iter().find(|(of, _)| *of == word);
        meaning.unwrap_or_else(|| unreachable!("each word of {name} has a meaning, {word} too")).1
    }

    pub fn percentiles(&mut self, name: &'static str) -> Vec<f64> {
        match self.value(name) {
            Value::Percentiles(numbers) => numbers.clone(),
            other => unreachable!("{name} is percentiles, not {other:?}"),
        }
    }

    pub fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        match self.value(name) {
            Value::Text(text) if text.is_empty() => None,
            Value::Text(text) => Some(PathBuf::from(OsString::from_vec(text.clone()))),
            other => unreachable!("{name} is a path, not {other:?}"),
        }
    }

    /// The value from which a call is in a log, negative for none, and the entries that the log keeps.
    pub fn logged(&mut self, from: &'static str, entries_max: &'static str) -> (Option<u64>, u64) {
        (u64::try_from(self.int::<i64>(from)).ok(), self.int(entries_max))
    }

    pub fn text(&mut self, name: &'static str) -> Vec<u8> {
        match self.value(name) {
            Value::Text(text) => text.clone(),
            other => unreachable!("{name} is a text, not {other:?}"),
        }
    }

    pub fn string(&mut self, name: &'static str) -> String {
        String::from_utf8_lossy(&self.text(name)).into_owned()
    }

    pub fn printed(&mut self, name: &'static str) -> String {
        self.seen.insert(name);
        String::from_utf8_lossy(&self.values.print(name)).into_owned()
    }
}
