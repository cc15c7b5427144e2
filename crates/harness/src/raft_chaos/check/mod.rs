//! The checks of a history: every object by Porcupine or, where transactions append to lists, by cycles of what they
//! saw of each other; lists by both.

pub mod cycles;
pub mod lists;
pub mod porcupine;

use std::time::Duration;

use anyhow::Result;

use super::history::{Entry, History};
use super::operation::Kind;
use porcupine::Checker;

/// Something that must not be, about one object.
#[derive(Debug)]
pub struct Violation {
    pub object: String,
    /// Lines for a person: the rule that is broken, and the operations around it.
    pub text: String,
}

/// The numbers of objects and operations that were checked, and what was found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub objects: usize,
    pub operations: usize,
    pub violations: Vec<Violation>,
}

/// Checks a history. An object that could not be decided within `time` is a violation.
pub fn check(history: &History, checker: &Checker, time: Duration) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    let mut lines = Vec::new();
    for (object, entries) in history.by_object() {
        verdict.objects += 1;
        verdict.operations += entries.len();
        if matches!(object.kind, Kind::List | Kind::Family)
            && let Err(text) = cycles::check(&entries)
        {
            verdict.violations.push(Violation { object: object.to_string(), text });
        }
        if object.kind != Kind::Family {
            lines.extend(entries.iter().map(|entry: &&Entry| entry.to_string()));
        }
    }
    verdict.violations.extend(checker.check(&lines, time)?);
    Ok(verdict)
}
