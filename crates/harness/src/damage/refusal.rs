//! The contents that the refusal of a start has to have, by kind of damage: the file or the directory, the record where
//! one is known, and what to do.

use std::path::Path;

use anyhow::{Result, ensure};

use super::ADVICE;
use super::plant::{Damage, Kind, Target};

/// The words for the base as a whole, where a refusal compares it with the log.
const THE_BASE: &str = "the base ";

/// The words for a base that is older than the log: RocksDB takes a manifest that is cut as that of an earlier time.
const OLDER_BASE: &str = "the base ends with ";

/// Fails if the refusal of a start lacks something that whoever reads it needs.
pub fn check(said: &str, data: &Path, damage: &Damage) -> Result<()> {
    let dir = data.display().to_string();
    ensure!(said.contains(&dir), "the refusal does not name {dir}:\n{said}");
    ensure!(ADVICE.iter().any(|advice| said.contains(advice)), "the refusal has no advice:\n{said}");
    let places = places(damage, data);
    ensure!(places.iter().any(|place| said.contains(place)), "the refusal names none of {places:?}:\n{said}");
    ensure!(!is_of_log(damage.kind) || names_record(said), "the refusal names no record:\n{said}");
    Ok(())
}

/// Returns the places of which a refusal has to name one.
fn places(damage: &Damage, data: &Path) -> Vec<String> {
    let at = |part: &str| data.join(part).display().to_string();
    let file = || damage.file.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
    match damage.kind {
        Kind::Empty(Target::Manifest) | Kind::Truncate(Target::Manifest) | Kind::Flip(Target::Manifest) => {
            [file(), vec![OLDER_BASE.to_owned()]].concat()
        }
        // Bits that are wrong are found where they are.
        Kind::Flip(target) if target != Target::Head => file(),
        // Records that are gone are missed where the segment before ends, or where the next one begins.
        Kind::Delete(target) | Kind::Empty(target) | Kind::Truncate(target) if target.is_segment() => vec![at("log")],
        // RocksDB names this file without its directory; or the manifest that it names now, which is not there.
        Kind::Delete(Target::Head) | Kind::Empty(Target::Head) | Kind::Truncate(Target::Head) | Kind::Flip(_) => {
            vec!["CURRENT".to_owned(), at("base/MANIFEST-")]
        }
        Kind::Delete(_) | Kind::Empty(_) | Kind::Truncate(_) => file(),
        // A new base is begun where there is none, and is not that of the log.
        Kind::DeleteDir("base") | Kind::EmptyDir("base") => vec![at("base"), THE_BASE.to_owned()],
        Kind::DeleteDir("") => vec![data.display().to_string()],
        Kind::DeleteDir(part) | Kind::EmptyDir(part) => vec![at(part)],
        Kind::FromOther(_) | Kind::FromOlder(_) => vec![at("log"), THE_BASE.to_owned()],
        Kind::BackupOver => vec![at("haypile.end"), at("log"), THE_BASE.to_owned()],
        Kind::WithEndFile(_) => vec![at("haypile.end"), at("log")],
    }
}

/// Whether a damage is one of the log, whose refusals say at which record.
fn is_of_log(kind: Kind) -> bool {
    match kind {
        Kind::Delete(target) | Kind::Empty(target) | Kind::Truncate(target) | Kind::Flip(target) => {
            target.is_segment() || target == Target::EndFile
        }
        Kind::EmptyDir(part) => part == "log",
        // A log that is not there at all is missed before anything is read.
        Kind::DeleteDir(_) | Kind::WithEndFile(Kind::DeleteDir(_)) => false,
        Kind::WithEndFile(_) => true,
        Kind::FromOther(_) | Kind::FromOlder(_) | Kind::BackupOver => false,
    }
}

fn names_record(said: &str) -> bool {
    said.split("record ").skip(1).any(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[track_caller]
    fn is_enough(kind: Kind, file: &str, said: &str, expected: bool) {
        let damage = Damage { kind, file: (!file.is_empty()).then(|| PathBuf::from(file)), text: String::new() };
        let checked = check(said, Path::new("/data"), &damage);
        assert_eq!(checked.is_ok(), expected, "{kind:?}: {checked:?}");
    }

    #[test]
    fn a_refusal_names_what_is_damaged_and_where_and_what_to_do() {
        let log = "The data in /data cannot be opened: the log is damaged: /data/log/1.log at offset 0, record 1: a wrong \
                   checksum. Put back what is missing, or restore a backup";
        let flipped = Kind::Flip(Target::FirstSegment);
        is_enough(flipped, "/data/log/1.log", log, true);
        is_enough(flipped, "/data/log/2.log", log, false);
        is_enough(flipped, "/data/log/1.log", &log.replace("record 1", "somewhere"), false);
        is_enough(flipped, "/data/log/1.log", &log.replace("restore a backup", ""), false);
        is_enough(Kind::Delete(Target::LastSegment), "/data/log/2.log", log, true);
        is_enough(Kind::Delete(Target::Table), "/data/base/3.sst", log, false);
        is_enough(Kind::DeleteDir("log"), "", &log.replace("record 1", "missing"), true);
        is_enough(Kind::EmptyDir("log"), "", &log.replace("record 1", "missing"), false);
        is_enough(Kind::EmptyDir("base"), "", log, false);
        is_enough(Kind::WithEndFile(&Kind::DeleteDir("log")), "", log, true);
        let head = "The data in /data cannot be opened: Corruption: CURRENT file corrupted. restore a backup";
        is_enough(Kind::Flip(Target::Head), "/data/base/CURRENT", head, true);
        is_enough(Kind::Flip(Target::Manifest), "/data/base/MANIFEST-5", head, false);
        let older = log.replace("a wrong checksum", "the log begins with record 9, the base ends with 5");
        is_enough(Kind::Truncate(Target::Manifest), "/data/base/MANIFEST-5", &older, true);
    }
}
