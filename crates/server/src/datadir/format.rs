//! The file `HAYPILE`: the format of the directory, its engine and its identity, and what is expected in it.

use super::paths::{END_FILE, base_dir, log_dir};
use super::sync_dir;
use haypile_config::Engine;
use haypile_log::{ADVICE, DirectoryId, EndFile, Index};
use std::cmp::Ordering;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The format of the directory as a whole. Each part has its own version as well.
const FORMAT: u32 = 2;

pub(super) const FORMAT_FILE: &str = "HAYPILE";

/// The line of the format file of a directory that has an end file.
const HAS_END: &str = "log noted in haypile.end";

/// Returns the name of a directory.
///
/// # Errors
/// A text for people.
pub fn id(dir: &Path) -> Result<DirectoryId, String> {
    let format = read_format(dir)?;
    format.map(|format| format.id).ok_or_else(|| format!("{} is not a data directory of Haypile", dir.display()))
}

/// Tells a log the directory's facts: how far the log has to reach, and where that is noted.
pub fn tell(log: &mut haypile_log::Options, dir: &Path, is_written: bool) -> Result<(), String> {
    let Some(format) = read_format(dir)? else { return Ok(()) };
    log.complete_through = Index(format.complete_through);
    let (directory, is_expected) = (format.id, format.has_end);
    log.end = Some(EndFile { path: dir.join(END_FILE), directory, is_expected, is_written });
    Ok(())
}

/// Returns the last record of what the directory held when it was restored, or made as a backup; None of any other one.
pub fn complete_through(dir: &Path) -> Option<Index> {
    let format = read_format(dir).ok()??;
    Some(Index(format.complete_through)).filter(|through| *through > Index(0))
}

/// Adds the line `HAS_END` to `HAYPILE` if the end file exists: later starts refuse the directory without that file.
/// Called before the first write is acknowledged.
///
/// # Errors
/// A text for people.
pub fn expect_end(dir: &Path) -> Result<(), String> {
    if read_format(dir)?.is_none_or(|format| format.has_end) || !dir.join(END_FILE).exists() {
        return Ok(());
    }
    // Lines of later versions stay.
    let text = std::fs::read_to_string(dir.join(FORMAT_FILE));
    text.and_then(|text| write_text(dir, &format!("{}\n{HAS_END}\n", text.trim_end())))
        .map_err(|error| format!("Can't write to the data directory {}: {error}", dir.display()))
}

/// Makes a directory one of ours which holds everything through this record.
pub fn mark_backup(dir: &Path, engine: Engine, complete_through: u64) -> std::io::Result<()> {
    write_format(dir, &Format { complete_through, ..Format::fresh(engine) })
}

/// The contents of the file `HAYPILE`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Format {
    version: u32,
    pub engine: String,
    /// The identity of this directory.
    id: DirectoryId,
    /// The last record of a backup; else 0.
    complete_through: u64,
    /// Whether the directory has an end file.
    has_end: bool,
}

/// Returns whether a part of a directory is known not to be there.
pub fn is_missing(part: &Path) -> bool {
    !part.try_exists().unwrap_or(true)
}

fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::RocksDb => "rocksdb",
        Engine::Memory => "memory",
    }
}

impl Format {
    /// Returns the format of a directory that is made now.
    pub fn fresh(engine: Engine) -> Format {
        let engine = engine_name(engine).to_owned();
        Format { version: FORMAT, engine, id: DirectoryId::random(), complete_through: 0, has_end: false }
    }

    /// Looks whether the log and the base of a directory that a server has served before, or the base of a backup, are
    /// there: whoever puts back what was lost would move it into an empty one that was made in its place.
    ///
    /// # Errors
    /// A text for people.
    pub fn expect_parts(&self, dir: &Path) -> Result<(), String> {
        // Where the end file is lost as well, the open names that.
        let has_log = self.has_end && dir.join(END_FILE).exists();
        for (is_expected, name, part) in [(has_log, "log", log_dir(dir)), (self.has_base(), "base", base_dir(dir))] {
            if is_expected && is_missing(&part) {
                let (dir, part) = (dir.display(), part.display());
                return Err(format!(
                    "The data in {dir} cannot be opened: the {name} is damaged: {part} is missing. {ADVICE}"
                ));
            }
        }
        Ok(())
    }

    /// Returns whether the directory is to have a base: a server has served it before, or it is a backup.
    pub fn has_base(&self) -> bool {
        self.has_end || self.complete_through > 0
    }

    /// Parses `haypile data directory`, then `format N`, then `engine NAME`, then `id HEX`; in a backup then `complete
    /// through INDEX`, and where there is an end file, `HAS_END`. Later versions may add lines.
    fn parse(text: &str) -> Option<Format> {
        let mut lines = text.lines();
        if lines.next()? != "haypile data directory" {
            return None;
        }
        let version = lines.next()?.strip_prefix("format ")?.parse().ok()?;
        let engine = lines.next()?.strip_prefix("engine ")?.to_owned();
        let id = match lines.next() {
            Some(line) if version == FORMAT => DirectoryId::parse(line.strip_prefix("id ")?)?,
            None if version == FORMAT => return None,
            // The directory is refused for its version.
            _ => DirectoryId::default(),
        };
        let (mut complete_through, mut has_end) = (0, false);
        for line in lines {
            if let Some(index) = line.strip_prefix("complete through ") {
                complete_through = index.parse().ok()?;
            }
            has_end |= line == HAS_END;
        }
        Some(Format { version, engine, id, complete_through, has_end })
    }

    /// Refuses a directory of another format than this program's.
    pub fn check_version(&self, dir: &Path) -> Result<(), String> {
        let (age, advice) = match self.version.cmp(&FORMAT) {
            Ordering::Equal => return Ok(()),
            Ordering::Greater => ("newer", "Run the version that wrote it, or a newer one."),
            Ordering::Less => ("older", "Export the data with the version that wrote it, and import them here."),
        };
        let (dir, found) = (dir.display(), self.version);
        Err(format!(
            "The data directory {dir} is of format {found}, which is {age} than this program's format {FORMAT}. {advice}"
        ))
    }

    pub fn check(&self, dir: &Path, engine: Engine) -> Result<(), String> {
        self.check_version(dir)?;
        if self.engine != engine_name(engine) {
            return Err(format!(
                "The data directory {} belongs to 'engine {}', but the configuration asks for 'engine {}'. Change the directive, or choose another directory with --dir.",
                dir.display(),
                self.engine,
                engine_name(engine)
            ));
        }
        Ok(())
    }
}

pub(super) fn read_format(dir: &Path) -> Result<Option<Format>, String> {
    let path = dir.join(FORMAT_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => match Format::parse(&text) {
            Some(format) => Ok(Some(format)),
            None => Err(format!(
                "The file {} is not what this server writes there: the directory is damaged, or not one of ours.",
                path.display()
            )),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("Can't read {}: {error}", path.display())),
    }
}

pub(super) fn write_format(dir: &Path, format: &Format) -> std::io::Result<()> {
    let Format { version, engine, id, complete_through, .. } = format;
    let mut text = format!("haypile data directory\nformat {version}\nengine {engine}\nid {id}\n");
    if *complete_through > 0 {
        text += &format!("complete through {complete_through}\n");
    }
    write_text(dir, &text)
}

/// Writes the format file aside, and renames it: it is whole or as it was.
fn write_text(dir: &Path, text: &str) -> std::io::Result<()> {
    let (path, fresh) = (dir.join(FORMAT_FILE), dir.join("HAYPILE.new"));
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path)?;
    sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::super::log_dir;
    use super::*;

    #[test]
    fn the_format_file_reads_back() {
        let dir = std::env::temp_dir().join(format!("haypile-datadir-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        let id = DirectoryId::parse("0f1e2d3c4b5a69788796a5b4c3d2e1f0").expect("32 digits");
        write_format(&dir, &Format { id, ..Format::fresh(Engine::RocksDb) }).expect("it is writable");
        expect_end(&dir).expect("it is writable");
        let format = read_format(&dir).expect("readable").expect("just written");
        assert!(!format.has_end, "there is none");
        std::fs::write(dir.join(END_FILE), "").expect("it is writable");
        expect_end(&dir).expect("it is writable");
        let page = include_str!("../../../../docs/format/directory.md");
        let example = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
        assert_eq!(std::fs::read_to_string(dir.join(FORMAT_FILE)).ok().as_deref(), example, "as docs/format shows it");
        let format = read_format(&dir).expect("readable").expect("just written");
        let expected = Format { version: FORMAT, engine: "rocksdb".into(), id, complete_through: 0, has_end: true };
        assert_eq!(format, expected);
        assert!(format.check(&dir, Engine::RocksDb).is_ok());
        assert!(format.check(&dir, Engine::Memory).expect_err("another engine").contains("engine rocksdb"));
        mark_backup(&dir, Engine::RocksDb, 42).expect("it is writable");
        let mut log = haypile_log::Options::new(log_dir(&dir));
        tell(&mut log, &dir, true).expect("readable");
        assert_eq!(log.complete_through, Index(42), "a backup says how far it goes");
        let end = log.end.expect("it was told");
        assert_ne!(end.directory, id, "it is a directory of its own");
        assert!(!end.is_expected, "and has no note of its log's end");
        let text = std::fs::read_to_string(dir.join(FORMAT_FILE)).expect("just written");
        std::fs::write(dir.join(FORMAT_FILE), format!("{text}a line of a later version\n")).expect("it is writable");
        expect_end(&dir).expect("it is writable");
        let after = std::fs::read_to_string(dir.join(FORMAT_FILE)).expect("readable");
        assert_eq!(after, format!("{text}a line of a later version\n{HAS_END}\n"));
        let restored = read_format(&dir).expect("readable").expect("just written");
        assert!(restored.has_end && restored.complete_through == 42);
        let newer = Format { version: FORMAT + 1, ..format };
        let why = newer.check(&dir, Engine::RocksDb).expect_err("newer");
        assert!(why.contains("is of format 3, which is newer than this program's format 2"), "{why}");
        let older = Format { version: FORMAT - 1, ..newer };
        let why = older.check(&dir, Engine::RocksDb).expect_err("older");
        assert!(why.contains("is of format 1, which is older than this program's format 2. Export"), "{why}");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn other_texts_are_no_format_files() {
        for text in [
            "",
            "haypile data directory\n",
            "haypile data directory\nformat x\nengine rocksdb\nid 0f1e2d3c4b5a69788796a5b4c3d2e1f0\n",
            "haypile data directory\nformat 2\nengine rocksdb\n",
            "haypile data directory\nformat 2\nengine rocksdb\nid 0f1e\n",
            "haypile data directory\nformat 2\nengine rocksdb\nid 0f1e2d3c4b5a69788796a5b4c3d2e1f0\ncomplete through the end\n",
            "redis\nformat 2\nengine rocksdb\nid 0f1e2d3c4b5a69788796a5b4c3d2e1f0\n",
        ] {
            assert_eq!(Format::parse(text), None, "{text:?}");
        }
    }
}
