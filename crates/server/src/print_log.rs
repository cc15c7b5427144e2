//! `haypile log DIR`: the records of a data directory's log, one on a line. Changes nothing.

use crate::changes::{Record, Wanted};
use haypile_commands::Table;
use haypile_log::{DiskFiles, DumpEntry, Effect, Origin, dump, effects};
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// Bytes of a key that a line shows.
const SHOWN_BYTES_MAX: usize = 80;

/// Prints the log of a directory, as JSON where that is asked for.
///
/// # Errors
/// A text for people.
pub fn print(dir: &Path, json: bool, out: &mut impl Write) -> Result<(), String> {
    let log = crate::datadir::log_dir(dir);
    if !log.is_dir() {
        return Err(format!("{} is not a data directory of Haypile: there is no log in it", dir.display()));
    }
    let entries =
        dump(&DiskFiles, &log).map_err(|error| format!("the log in {} cannot be read: {error}", log.display()))?;
    let table = Table::new();
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        let line = match json {
            true => json_line(&entry, &table)?,
            false => Some(line(&entry)),
        };
        let Some(line) = line else { continue };
        if let Err(error) = writeln!(out, "{line}") {
            // The reader has closed the pipe: `haypile log DIR | head`.
            return if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error.to_string()) };
        }
    }
    Ok(())
}

/// Returns what a record has done, as the change stream has it; None if it says nothing and changes no data.
fn json_line(entry: &DumpEntry, table: &Table) -> Result<Option<String>, String> {
    let (index, time_ms, kind, body) = match entry {
        DumpEntry::Record { index, time_ms, kind: Some(kind), body, .. } => (*index, *time_ms, *kind, body),
        DumpEntry::Damage(damage) => return Err(format!("the log is damaged: {damage}")),
        _ => return Ok(None),
    };
    let wanted = Wanted { before: true, ..Wanted::default() };
    let json = Record { index, time_ms, kind, body }.json(table, &wanted).map_err(|error| error.to_string())?;
    Ok(json.map(|json| String::from_utf8_lossy(&json).into_owned()))
}

fn line(entry: &DumpEntry) -> String {
    match entry {
        DumpEntry::Segment { number, file, history, origin, first } => {
            let mut line = format!("segment {number} {} history {history}", file.display());
            match origin {
                Origin::Nothing => Ok(()),
                Origin::Fork(history, fork) => write!(line, " parent {history} fork {fork}"),
                Origin::Loaded(after) => write!(line, " loaded after {after}"),
            }
            .expect("a string takes everything");
            if let Some(first) = first {
                write!(line, " first {}", first.0).expect("a string takes everything");
            }
            line
        }
        DumpEntry::Record { segment, offset, index, term, entry, kind, time_ms, body } => {
            let kind = kind.map_or("Unknown".to_owned(), |kind| format!("{kind:?}"));
            let (index, bytes) = (index.0, body.len());
            let mut line =
                format!("{segment}:{offset} {index} term {term} entry {entry} {kind} time {time_ms} {bytes} bytes");
            if kind == "Effects" {
                effects(body)
                    .for_each(|effect| line.push_str(&effect.map_or_else(|error| format!(" | {error}"), shown)));
            }
            line
        }
        DumpEntry::Damage(damage) => format!("damage {damage}"),
        DumpEntry::End { segment, offset, last, is_clean } => {
            format!("end {segment}:{offset} last {}{}", last.0, if *is_clean { " clean stop" } else { "" })
        }
    }
}

fn shown(effect: Effect<'_>) -> String {
    match effect {
        Effect::Put { key, value } => format!(" | put {} ({} bytes)", row(key), value.len()),
        Effect::Delete { key } => format!(" | delete {}", row(key)),
        Effect::Patch { key, offset, bytes, len_after } => {
            format!(" | patch {} {offset}+{} of {len_after}", row(key), bytes.len())
        }
        Effect::Splice { key, offset, removed, bytes, len_after } => {
            format!(" | splice {} {offset}-{removed}+{} of {len_after}", row(key), bytes.len())
        }
        Effect::Touch { key } => format!(" | touch {}", row(key)),
        Effect::Statement { database, text } => {
            let database = database.map_or(String::new(), |database| format!(" in {database}"));
            format!(" | statement{database} {}", row(text))
        }
        Effect::Count { space, counter, delta } => format!(" | count {space}/{counter} {delta:+}"),
    }
}

fn row(key: &[u8]) -> String {
    let end = key.len().min(SHOWN_BYTES_MAX);
    format!("\"{}\"{}", key[..end].escape_ascii(), if end < key.len() { "..." } else { "" })
}
