//! The file that says how far the log is in the archive: `haypile.archived`. A start keeps what lies behind. Its form
//! is in docs/format/directory.md.

use crate::datadir;
use haypile_archive::Chain;
use haypile_log::{History, Index};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The first word of the file, with the version of its format.
const TITLE: &str = "haypile archived 1";

/// A record that is in an archive, as all before it that the log had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Where the archive is.
    pub place: String,
    /// The archive's name for itself; empty where it was never reached.
    pub archive: String,
    /// The history of the record.
    pub history: History,
    pub through: Index,
}

impl Position {
    /// Returns the place of its history in a chain, and the record there; None where the chain does not go through it.
    pub fn in_chain(&self, chain: &Chain) -> Option<(usize, Index)> {
        let at = chain.position(self.history)?;
        // Records behind the place where the chain left the history are another history's.
        Some((at, self.through.min(chain.end(at))))
    }

    fn text(&self) -> String {
        let Position { place, archive, history, through } = self;
        format!("{TITLE}\nplace {place}\narchive {archive}\nhistory {history}\nthrough {through}\nend\n")
    }

    fn parse(text: &str) -> Option<Position> {
        let mut lines = text.lines();
        (lines.next()? == TITLE).then_some(())?;
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (place, archive) = (value("place")?.to_owned(), value("archive")?.to_owned());
        let (history, through) = (History::parse(value("history")?)?, Index(value("through")?.parse().ok()?));
        (lines.next()? == "end").then_some(Position { place, archive, history, through })
    }
}

/// Returns what the file of a data directory says.
pub fn read(dir: &Path) -> Option<Position> {
    Position::parse(&std::fs::read_to_string(datadir::archived_file(dir)).ok()?)
}

/// Writes the file, whole or not at all.
///
/// # Errors
/// The disk refuses.
pub fn write(dir: &Path, position: &Position) -> io::Result<()> {
    let (path, fresh) = (datadir::archived_file(dir), dir.join("haypile.archived.new"));
    let mut file = File::create(&fresh)?;
    file.write_all(position.text().as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path)?;
    datadir::sync_dir(dir)
}

/// Removes the file: no archive is written to.
pub fn remove(dir: &Path) {
    // A file that stays names a place that is not asked for.
    let _ = std::fs::remove_file(datadir::archived_file(dir));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_back_as_it_was_written() {
        let place = "s3://bucket/a path".to_owned();
        let archive = "0f".repeat(16);
        let position = Position { place, archive, history: History([7; 20]), through: Index(4711) };
        let text = position.text();
        assert_eq!(Position::parse(&text), Some(position));
        for cut in 0..text.len() - 1 {
            assert_eq!(Position::parse(&text[..cut]), None, "cut off at {cut}");
        }
    }
}
