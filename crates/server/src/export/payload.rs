//! A copy of the data on its way to a Redis that follows, as a file of Redis's format.

use super::directory::Directory;
use super::progress::Progress;
use super::summary::Summary;
use super::target::Failure;
use super::{Exporting, begin, unwritten};
use haypile_rdb::VERSION;
use std::io::Write;
use std::path::Path;

/// The copy that a Redis gets.
pub struct Payload {
    source: Directory,
}

impl Payload {
    /// Opens a copy of the data that nobody writes to.
    ///
    /// # Errors
    /// A text for people.
    pub fn open(dir: &Path) -> Result<Payload, String> {
        let mut source = Directory::open(dir)?;
        source.set_for_replica();
        Ok(Payload { source })
    }

    /// Writes the whole file, or the libraries of functions alone. `database` is the one that the commands behind it
    /// are of, until they say another one.
    ///
    /// # Errors
    /// A text for people: the copy cannot be read, or what it is written to takes no more.
    pub fn write<W: Write>(&self, to: W, database: Option<u32>, only_functions: bool) -> Result<W, String> {
        let mut writer = begin(to, VERSION).map_err(unwritten)?;
        if let Some(database) = database {
            writer.aux(b"repl-stream-db", database.to_string().as_bytes()).map_err(unwritten)?;
        }
        let (summary, progress) = (Summary::new(VERSION), Progress::hidden());
        let mut exporting = Exporting { writer, summary, progress, failure: Failure::default() };
        match only_functions {
            true => self.source.write_functions(&mut exporting)?,
            false => self.source.write(&mut exporting)?,
        }
        exporting.writer.end().map_err(unwritten)
    }
}
