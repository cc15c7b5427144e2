//! The kinds of damage, and how each is done to a data directory.

use std::fmt;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{copy, files};
use crate::random::Random;

/// The file or directory to damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    FirstSegment,
    MiddleSegment,
    /// The newest segment with records.
    LastSegment,
    /// Any segment, the spare included.
    AnySegment,
    Table,
    Head,
    Manifest,
    EndFile,
    LockFile,
}

impl Target {
    pub fn is_segment(self) -> bool {
        matches!(self, FirstSegment | MiddleSegment | LastSegment | AnySegment)
    }
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Delete(Target),
    Empty(Target),
    Truncate(Target),
    Flip(Target),
    DeleteDir(&'static str),
    EmptyDir(&'static str),
    /// A part of another server's directory, or of an earlier time, in the place of ours.
    FromOther(&'static str),
    FromOlder(&'static str),
    /// A backup copied over the directory.
    BackupOver,
    /// The end file is gone as well.
    WithEndFile(&'static Kind),
}

use Kind::{BackupOver, Delete, DeleteDir, Empty, EmptyDir, Flip, FromOlder, FromOther, Truncate, WithEndFile};
use Target::{AnySegment, EndFile, FirstSegment, Head, LastSegment, LockFile, Manifest, MiddleSegment, Table};

/// The kinds of damage of a stopped server's directory. Damages at the end of the log come more often.
pub const KINDS: &[Kind] = &[
    Delete(FirstSegment),
    Delete(MiddleSegment),
    Delete(LastSegment),
    Delete(LastSegment),
    Delete(AnySegment),
    Empty(FirstSegment),
    Empty(LastSegment),
    Empty(AnySegment),
    Truncate(FirstSegment),
    Truncate(MiddleSegment),
    Truncate(LastSegment),
    Truncate(LastSegment),
    Truncate(AnySegment),
    Flip(FirstSegment),
    Flip(MiddleSegment),
    Flip(LastSegment),
    Flip(LastSegment),
    Flip(LastSegment),
    Flip(AnySegment),
    Delete(Table),
    Empty(Table),
    Truncate(Table),
    Flip(Table),
    Delete(Head),
    Empty(Head),
    Truncate(Head),
    Flip(Head),
    Delete(Manifest),
    Empty(Manifest),
    Truncate(Manifest),
    Flip(Manifest),
    Delete(EndFile),
    Empty(EndFile),
    Truncate(EndFile),
    Flip(EndFile),
    Delete(LockFile),
    Empty(LockFile),
    Flip(LockFile),
    DeleteDir("log"),
    DeleteDir("base"),
    EmptyDir("log"),
    EmptyDir("base"),
    FromOther("log"),
    FromOther("base"),
    FromOlder("log"),
    FromOlder("base"),
    BackupOver,
    WithEndFile(&Delete(LastSegment)),
    WithEndFile(&Truncate(LastSegment)),
    WithEndFile(&DeleteDir("log")),
    WithEndFile(&EmptyDir("log")),
];

/// The kinds of damage of a running server's directory that it has to notice.
pub const NOTICED: &[Kind] = &[
    Delete(LastSegment),
    Delete(AnySegment),
    Delete(Head),
    Delete(Manifest),
    Delete(Table),
    Delete(EndFile),
    Delete(LockFile),
    DeleteDir("log"),
    EmptyDir("log"),
    DeleteDir("base"),
    EmptyDir("base"),
    DeleteDir(""),
];

/// A damage that was done.
#[derive(Debug)]
pub struct Damage {
    pub kind: Kind,
    /// The damaged file, where it is one.
    pub file: Option<PathBuf>,
    pub text: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The directories that parts are taken from.
pub struct Sources {
    pub other: PathBuf,
    pub older: Option<PathBuf>,
}

/// Does the damage, also while a server runs; `None` if there is nothing to damage.
pub fn plant(kind: Kind, data: &Path, sources: &Sources, random: &mut Random) -> Result<Option<Damage>> {
    let replace = |part: &str, source: &Path| -> Result<Option<Damage>> {
        remove_dir(&data.join(part))?;
        fs::create_dir_all(data.join(part))?;
        copy(&source.join(part), &data.join(part))?;
        Ok(Some(Damage { kind, file: None, text: format!("{kind:?}") }))
    };
    match kind {
        FromOther(part) => replace(part, &sources.other),
        FromOlder(part) => sources.older.as_ref().map_or(Ok(None), |older| replace(part, older)),
        BackupOver => {
            let backups = data.join("backups");
            let Some(newest) = directories(&backups)?.pop() else { return Ok(None) };
            copy(&newest, data)?;
            Ok(Some(Damage { kind, file: None, text: format!("{kind:?}: {}", newest.display()) }))
        }
        _ => remove(kind, data, random),
    }
}

/// Does a damage that needs no other directory.
fn remove(kind: Kind, data: &Path, random: &mut Random) -> Result<Option<Damage>> {
    let whole = || Damage { kind, file: None, text: format!("{kind:?}") };
    let target = match kind {
        Delete(target) | Empty(target) | Truncate(target) | Flip(target) => target,
        DeleteDir(part) => {
            let was_there = data.join(part).exists();
            remove_dir(&data.join(part))?;
            return Ok(was_there.then(whole));
        }
        EmptyDir(part) => {
            let mut is_emptied = false;
            for path in files(&data.join(part), "")? {
                is_emptied |= fs::remove_file(path).is_ok();
            }
            return Ok(is_emptied.then(whole));
        }
        WithEndFile(other) => {
            let end = remove(Delete(EndFile), data, random)?;
            let both = end.and(remove(*other, data, random)?);
            return Ok(both.map(|Damage { file, text, .. }| {
                let text = format!("{text}, and haypile.end is gone");
                Damage { kind, file, text }
            }));
        }
        FromOther(_) | FromOlder(_) | BackupOver => return Ok(None),
    };
    let Some(path) = find(target, data, random)? else { return Ok(None) };
    match damage_file(kind, &path, random) {
        Ok(place) => Ok(place.map(|place| {
            let text = format!("{kind:?}: {} at {place}", path.display());
            Damage { kind, file: Some(path), text }
        })),
        // A running server removes files that it needs no more.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{kind:?}: {}", path.display())),
    }
}

/// Damages one file and returns the position in it; `None` if it is empty.
fn damage_file(kind: Kind, path: &Path, random: &mut Random) -> std::io::Result<Option<usize>> {
    match kind {
        Delete(_) => {
            fs::remove_file(path)?;
            return Ok(Some(0));
        }
        Empty(_) => {
            // Without making it again.
            File::options().write(true).open(path)?.set_len(0)?;
            return Ok(Some(0));
        }
        _ => {}
    }
    let bytes = fs::read(path)?;
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if used == 0 {
        return Ok(None);
    }
    // The position is near the end as often as anywhere else.
    let from = if random.percent(50) { used.saturating_sub(5000) } else { 0 };
    let at = random.between(from as u64, used as u64 - 1) as usize;
    // In place: a running server may be writing to the file.
    let file = File::options().write(true).open(path)?;
    match kind {
        Truncate(_) => file.set_len(at as u64)?,
        _ => file.write_all_at(&[bytes[at] ^ 1 << random.below(8)], at as u64)?,
    }
    Ok(Some(at))
}

/// Returns the end of the log: the newest segment with records and the end file, with their bytes.
pub fn end_of_log(data: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    if let Some(newest) = segments_with_records(&data.join("log"))?.pop() {
        found.push((newest.clone(), fs::read(newest)?));
    }
    let end = data.join("haypile.end");
    if end.exists() {
        found.push((end.clone(), fs::read(end)?));
    }
    Ok(found)
}

fn segments_with_records(log: &Path) -> Result<Vec<PathBuf>> {
    if !log.exists() {
        return Ok(Vec::new());
    }
    let mut paths = files(log, ".log")?;
    paths.retain(|path| fs::read(path).is_ok_and(|bytes| bytes.iter().skip(4096).any(|byte| *byte != 0)));
    Ok(paths)
}

fn find(target: Target, data: &Path, random: &mut Random) -> Result<Option<PathBuf>> {
    let (log, base) = (data.join("log"), data.join("base"));
    let any = |paths: Vec<PathBuf>, random: &mut Random| (!paths.is_empty()).then(|| random.pick(&paths).clone());
    let with_records = || segments_with_records(&log);
    let named = |name: &str| Some(data.join(name)).filter(|path| path.exists());
    Ok(match target {
        FirstSegment => with_records()?.into_iter().next(),
        MiddleSegment => {
            let paths = with_records()?;
            let inner = if paths.len() > 2 { paths[1..paths.len() - 1].to_vec() } else { Vec::new() };
            any(inner, random)
        }
        LastSegment => with_records()?.pop(),
        AnySegment => any(files(&log, ".log")?, random),
        Table => any(files(&base, ".sst")?, random),
        Head => named("base/CURRENT"),
        Manifest => {
            let all = files(&base, "")?;
            all.into_iter().find(|path| path.to_string_lossy().contains("/MANIFEST-"))
        }
        EndFile => named("haypile.end"),
        LockFile => named("haypile.lock"),
    })
}

/// Removes a directory that a running server may be writing to.
fn remove_dir(dir: &Path) -> Result<()> {
    let removed = (0..50).find_map(|_| match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => None,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        result => Some(result),
    });
    removed.unwrap_or(Ok(())).with_context(|| format!("removing {}", dir.display()))
}

fn directories(dir: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !entry.file_name().to_string_lossy().starts_with('.') {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
