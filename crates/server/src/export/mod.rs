//! `haypile export`: all data go to a file that redis-server loads, from a directory (`directory`) or a server
//! (`server`, and `by_type` where that knows no DUMP).
//!
//! Keys are written one after another as they are read, so memory does not grow with them. The file gets its name when
//! it is whole (`target`). This file opens both ends, and prints a summary at the end (`summary`) and the progress
//! meanwhile (`progress`).

mod by_type;
mod directory;
mod elements;
mod link;
mod payload;
mod progress;
mod replies;
mod server;
mod summary;
mod target;
#[cfg(test)]
mod testing;

use crate::datadir;
use crate::{allocator, process};
use haypile_commands::REDIS_VERSION;
use haypile_config::cli::{Export, From};
use haypile_rdb::{File, VERSION, Writer, writer};
use progress::Progress;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use summary::Summary;
use target::{Failure, Target};

pub use payload::Payload;

/// A file in the making, with its summary and progress.
struct Exporting<W: Write = Target> {
    writer: Writer<File<W>>,
    summary: Summary,
    progress: Progress,
    /// The reason why the file could not be written, if it could not.
    failure: Failure,
}

/// Exports as the command line asks.
///
/// # Errors
/// A text for people.
pub fn run(export: &Export) -> Result<(), String> {
    process::abort_on_panic();
    process::set_file_mode(process::FILE_MODE);
    allocator::keep_little()?;
    let summary = match &export.from {
        From::Directory(dir) => from_directory(dir, export)?,
        From::Server(place) => from_server(place, export)?,
    };
    match &export.file {
        Some(_) => print!("{summary}"),
        None => eprint!("{summary}"),
    }
    match summary.missing() {
        None => Ok(()),
        Some(why) => Err(why),
    }
}

fn from_directory(dir: &Path, export: &Export) -> Result<Summary, String> {
    // The directory comes first: where it cannot be read no file is made either.
    let inspected = datadir::inspect(dir).map_err(|why| {
        let advice = "A server that runs is exported with --host and --port, or by a backup that it makes.";
        if why.contains(" is in use by ") { format!("{why} {advice}") } else { why }
    })?;
    if inspected.engine == "memory" {
        let dir = dir.display();
        return Err(format!("{dir} is of 'engine memory', which keeps nothing on disk: there is nothing to export."));
    }
    let source = directory::Directory::open(dir)?;
    let mut exporting = Exporting::begin(export, source.version(), source.keys())?;
    let written = source.write(&mut exporting);
    exporting.judge(written)?;
    let summary = exporting.end()?;
    drop(inspected);
    Ok(summary)
}

fn from_server(place: &haypile_config::cli::Server, export: &Export) -> Result<Summary, String> {
    let mut source = server::Server::connect(place)?;
    // A server does not say beforehand whether the file needs a newer version.
    let mut exporting = Exporting::begin(export, VERSION, source.keys())?;
    let written = source.write(&mut exporting);
    exporting.judge(written)?;
    exporting.end()
}

impl Exporting {
    /// Begins a file of a version for about so many keys.
    fn begin(export: &Export, version: u16, keys: u64) -> Result<Exporting, String> {
        let target = Target::create(export.file.as_deref(), export.force)?;
        let failure = target.failure();
        let writer = begin(target, version).map_err(unwritten)?;
        Ok(Exporting { writer, summary: Summary::new(version), progress: Progress::new(keys), failure })
    }
}

impl<W: Write> Exporting<W> {
    /// Begins a database, to which the keys that follow belong.
    fn database(&mut self, database: u64, keys: u64, deadlines: u64) -> Result<(), String> {
        self.summary.database(database);
        self.writer.database(database).and_then(|()| self.writer.sizes(keys, deadlines)).map_err(unwritten)
    }

    /// Writes a library of functions.
    fn function(&mut self, code: &[u8]) -> Result<(), String> {
        self.summary.libraries += 1;
        self.writer.function(code).map_err(unwritten)
    }

    /// Shows the progress, if it is time to.
    fn tell(&mut self) {
        self.progress.tell(self.summary.passed(), self.writer.position());
    }

    /// Replaces the error of a source by that of the file, if the file is at fault.
    fn judge(&mut self, written: Result<(), String>) -> Result<(), String> {
        written.map_err(|why| {
            self.progress.end();
            self.failure.take().map_or(why, |why| unwritten(io::Error::other(why)))
        })
    }
}

impl Exporting {
    /// Ends the file and gives it its name.
    fn end(mut self) -> Result<Summary, String> {
        let (claimed, needed) = (self.summary.version, self.writer.version());
        let mut target = self.writer.end().map_err(unwritten)?;
        target.flush().map_err(unwritten)?;
        if needed != claimed {
            // Redis goes by the forms of values; bytes that standard output has got cannot be changed.
            if let Some(file) = target.file() {
                writer::change_version(file, needed).map_err(unwritten)?;
            }
            self.summary.version = needed;
        }
        self.progress.end();
        self.summary.end(target.complete().map_err(unwritten)?);
        Ok(self.summary)
    }
}

/// Writes the fields with which Redis begins a file.
fn begin<W: Write>(target: W, version: u16) -> io::Result<Writer<File<W>>> {
    let mut writer = Writer::file(target, version)?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    writer.aux(b"redis-ver", REDIS_VERSION.as_bytes())?;
    writer.aux(b"redis-bits", b"64")?;
    writer.aux(b"ctime", now_s.to_string().as_bytes())?;
    // The data lie on a disk: their size in Redis's memory is not known.
    writer.aux(b"used-mem", b"0")?;
    writer.aux(b"aof-base", b"0")?;
    Ok(writer)
}

/// Returns the text for people about a file that could not be written.
fn unwritten(error: io::Error) -> String {
    format!("The file cannot be written: {error}.")
}
