//! The file that says how far those who follow and are no Haypile have come, for the next start: `haypile.stream`. Its
//! form is in docs/format/directory.md.

use super::commands::Point;
use crate::datadir;
use haypile_log::{History, Index};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The first word of the file, with the version of its format.
const TITLE: &str = "haypile stream 1";

/// Returns the file's text.
pub(super) fn format(salt: History, history: History, at: &Point) -> String {
    let database = at.database.map_or("none".into(), |database| database.to_string());
    let (index, offset) = (at.index, at.offset);
    format!("{TITLE}\nsalt {salt}\nhistory {history}\nrecord {index}\noffset {offset}\ndatabase {database}\nend\n")
}

/// Reads the file's text.
pub(super) fn parse(text: &str) -> Option<(History, History, Point)> {
    let mut lines = text.lines();
    (lines.next()? == TITLE).then_some(())?;
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let (salt, history) = (History::parse(value("salt")?)?, History::parse(value("history")?)?);
    let (index, offset) = (Index(value("record")?.parse().ok()?), value("offset")?.parse().ok()?);
    let database = match value("database")? {
        "none" => None,
        number => Some(number.parse().ok()?),
    };
    (lines.next()? == "end").then_some((salt, history, Point { index, offset, database }))
}

/// Returns the record behind which an earlier process's log is to be kept, if a Redis has followed it.
pub fn kept_after(dir: &Path) -> Option<Index> {
    let text = std::fs::read_to_string(datadir::stream_file(dir)).ok()?;
    parse(&text).map(|(_, _, at)| at.index)
}

/// Writes the file, whole or not at all.
pub(super) fn write(dir: &Path, text: &str) -> io::Result<()> {
    let (path, fresh) = (datadir::stream_file(dir), dir.join("haypile.stream.new"));
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path)?;
    datadir::sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_back_as_it_was_written() {
        let (salt, history) = (History([0x5a; 20]), History([7; 20]));
        for database in [None, Some(0), Some(15)] {
            let at = Point { index: Index(12), offset: 345, database };
            let text = format(salt, history, &at);
            assert_eq!(parse(&text), Some((salt, history, at)));
            for cut in 0..text.len() - 1 {
                assert_eq!(parse(&text[..cut]), None, "cut off at {cut}");
            }
        }
        assert_eq!(parse("haypile stream 2\n"), None);
    }
}
