//! The copy of a master's data: its mark, and the exchange in which it takes the place of the directory's own data.

use super::format::{FORMAT_FILE, Format, write_format};
use super::paths::{END_FILE, base_dir, incoming_dir, log_dir};
use super::sync_dir;
use haypile_config::Engine;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mark of a complete copy of a master's data.
pub(super) const COMPLETE_FILE: &str = "COMPLETE";

/// Where data lie that a master's copy has replaced, until they are removed.
const OLD_DIR: &str = "replaced";

/// Marks the copy in `incoming_dir` as complete: from here on it is the data, whatever happens.
///
/// # Errors
/// The inner one, a text for people: there is no mark, and the data are what they were. The outer one: nobody knows.
pub fn mark_incoming(dir: &Path) -> Result<Result<(), String>, String> {
    let incoming = incoming_dir(dir);
    let marked = File::create(incoming.join(COMPLETE_FILE)).and_then(|file| file.sync_all());
    let Err(error) = marked.and_then(|()| sync_dir(&incoming)) else { return Ok(Ok(())) };
    let why = format!("Can't complete the copy in {}: {error}", incoming.display());
    unmark_incoming(dir).map_err(|error| format!("{why}; and its mark may be left there: {error}"))?;
    Ok(Err(why))
}

/// Removes the mark of a complete copy, before anything about the copy changes.
///
/// # Errors
/// The mark may be there.
pub fn unmark_incoming(dir: &Path) -> std::io::Result<()> {
    let incoming = incoming_dir(dir);
    match std::fs::remove_file(incoming.join(COMPLETE_FILE)) {
        Ok(()) => sync_dir(&incoming),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what is in `incoming_dir`, unless it is a complete copy.
///
/// # Errors
/// Some of it is left.
pub fn remove_incoming(dir: &Path) -> std::io::Result<()> {
    let incoming = incoming_dir(dir);
    if incoming.join(COMPLETE_FILE).exists() { Ok(()) } else { remove(&incoming) }
}

/// Looks whether a copy can take the place of the directory's own data, by renaming.
///
/// # Errors
/// A text for people: a part of the data lies elsewhere.
pub fn check_exchange(dir: &Path) -> Result<(), String> {
    let fails = |path: &Path, error| format!("Can't look at {}: {error}", path.display());
    let device = std::fs::metadata(dir).map_err(|error| fails(dir, error))?.dev();
    for part in [log_dir(dir), base_dir(dir)] {
        let about = std::fs::symlink_metadata(&part).map_err(|error| fails(&part, error))?;
        if !about.is_dir() || about.dev() != device {
            let part = part.display();
            return Err(format!(
                "{part} lies on another file system, or is a link: a master's copy cannot take its place. Have the directory {} lie there as a whole",
                dir.display()
            ));
        }
    }
    Ok(())
}

/// Puts the copy of a master's data, if a complete one is there, in the place of the directory's own. Nothing may have
/// these open. After an error or a crash it goes on where it was.
///
/// # Errors
/// A text for people.
pub fn adopt_incoming(dir: &Path) -> Result<bool, String> {
    let incoming = incoming_dir(dir);
    if !incoming.join(COMPLETE_FILE).exists() {
        return Ok(false);
    }
    let put = || -> std::io::Result<()> {
        let old = dir.join(OLD_DIR);
        for name in [END_FILE, FORMAT_FILE, "log", "base"] {
            let (new, own) = (incoming.join(name), dir.join(name));
            // A part that was put there is not in the copy any more. The end of another log is no part of the copy.
            if new.exists() || name == END_FILE {
                remove(&old)?;
                std::fs::create_dir(&old)?;
                if own.exists() {
                    std::fs::rename(&own, old.join(name))?;
                }
                if new.exists() {
                    std::fs::rename(&new, &own)?;
                }
                sync_dir(dir)?;
            }
        }
        remove(&incoming)?;
        remove(&old)?;
        sync_dir(dir)
    };
    put().map_err(|error| format!("Can't put the master's data in place in {}: {error}", dir.display()))?;
    Ok(true)
}

/// Puts an empty directory's data in the place of the directory's own. Nothing may have these open. After a crash
/// either are there.
///
/// # Errors
/// Texts for people. The inner one: the data are what they were. The outer one: nobody knows.
pub fn exchange_for_nothing(dir: &Path, engine: Engine) -> Result<Result<(), String>, String> {
    let incoming = incoming_dir(dir);
    let made = || -> std::io::Result<()> {
        remove(&incoming)?;
        for part in [incoming.clone(), log_dir(&incoming), base_dir(&incoming)] {
            std::fs::create_dir(part)?;
        }
        write_format(&incoming, &Format::fresh(engine))
    };
    if let Err(error) = made() {
        return Ok(Err(format!("Can't make {}: {error}", incoming.display())));
    }
    exchange(dir)
}

/// Puts the copy in `incoming_dir`, which is whole, in the place of the directory's own data. Nothing may have these
/// open.
///
/// # Errors
/// Texts for people. The inner one: the data are what they were. The outer one: nobody knows what is where, and the
/// next start carries on.
pub fn exchange(dir: &Path) -> Result<Result<(), String>, String> {
    if let Err(why) = mark_incoming(dir)? {
        return Ok(Err(why));
    }
    adopt_incoming(dir).map(|_| Ok(()))
}

fn remove(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
