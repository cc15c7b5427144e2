//! The log for people and machines: `tracing` set up from `loglevel`, `logfile` and `log-format`.
//!
//! Called once, before anything is logged. The level follows CONFIG SET through the handle; path and form stay as they
//! are. A rotation may rename the file: the next lines go to a new one. Nothing else in the server names the
//! subscriber: it uses the macros of `tracing`.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haypile_config::{Config, LogFormat, LogLevel};
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

/// The time between two looks whether the log file still has its name. A stat for each line would be paid by the event
/// loops.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Changes the level of the running log, and has it look at its file.
#[derive(Clone)]
pub struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
    target: Target,
}

/// Starts the log of this process. Fails with a text for people if the file cannot be opened, or if there is a log
/// already.
pub fn start(config: &Config) -> Result<Logging, String> {
    let target = match &config.logfile {
        None => Target::Output,
        Some(path) => Target::File(Arc::new(Mutex::new(LogFile::open(path)?))),
    };
    let (subscriber, logging) = subscriber(config.loglevel, config.log_format, target);
    tracing::subscriber::set_global_default(subscriber).map_err(|error| error.to_string())?;
    Ok(logging)
}

/// Checks that the log of this configuration can be started. Fails with a text for people if the file cannot be opened.
pub fn check(config: &Config) -> Result<(), String> {
    match &config.logfile {
        // Opening a pipe would wait for its reader, who would then see its end.
        Some(path) if !fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) => {
            LogFile::open(path).map(|_| ())
        }
        _ => Ok(()),
    }
}

impl Logging {
    /// Logs messages that are at least as important as this, from now on.
    pub fn set_level(&self, level: LogLevel) {
        // The level cannot be set once the subscriber is gone, but the global one never goes.
        let _ = self.level.modify(|filter| *filter = filter_of(level));
    }

    /// Opens the log file anew if a rotation has renamed it.
    pub fn look_at_file(&self) {
        if let Target::File(file) = &self.target {
            file.lock().unwrap_or_else(PoisonError::into_inner).look();
        }
    }
}

fn subscriber(level: LogLevel, format: LogFormat, target: Target) -> (impl Subscriber + Send + Sync, Logging) {
    let (filter, handle) = reload::Layer::new(filter_of(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(target.clone()).with_target(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        LogFormat::Human => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    (tracing_subscriber::registry().with(filter).with(lines), Logging { level: handle, target })
}

/// Translates Redis's levels: `notice` is `tracing`'s info, `verbose` debug, and `debug` trace.
fn filter_of(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::TRACE,
        LogLevel::Verbose => LevelFilter::DEBUG,
        LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Nothing => LevelFilter::OFF,
    }
}

/// The destination of lines. Each line is one write.
#[derive(Clone)]
enum Target {
    Output,
    File(Arc<Mutex<LogFile>>),
}

impl<'a> MakeWriter<'a> for Target {
    type Writer = Target;

    fn make_writer(&'a self) -> Target {
        self.clone()
    }
}

impl Write for Target {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Target::Output => io::stdout().lock().write(line),
            Target::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Output => io::stdout().lock().flush(),
            Target::File(file) => file.lock().unwrap_or_else(PoisonError::into_inner).flush(),
        }
    }
}

/// A log file that follows its name. Nothing here may log: the line would wait for the lock of its own file.
struct LogFile {
    path: PathBuf,
    file: File,
    /// The device and the inode of `file`.
    identity: (u64, u64),
    /// The permissions that the first file had, for those that are made later, under another umask.
    mode: u32,
    looked: Instant,
}

impl LogFile {
    /// Opens the file, which is made if it is missing.
    fn open(path: &Path) -> Result<LogFile, String> {
        let opened = append(path, 0o666).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) =
            opened.map_err(|error| format!("Can't open the log file {}: {error}", path.display()))?;
        let mode = metadata.mode() & 0o777;
        Ok(LogFile { path: path.to_owned(), file, identity: identity(&metadata), mode, looked: Instant::now() })
    }

    /// Opens the file anew if its name is gone or is another file's. The old one stays where that fails; the next look
    /// tries again.
    fn look(&mut self) {
        self.looked = Instant::now();
        let is_there = match fs::metadata(&self.path) {
            // Opening a pipe would wait for its reader.
            Ok(there) if identity(&there) == self.identity || !there.is_file() => return,
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(_) => return,
        };
        let opened = append(&self.path, self.mode).and_then(|file| Ok((file.metadata()?, file)));
        let Ok((metadata, file)) = opened else { return };
        if !is_there {
            // The umask may be narrower than at the start. Lines are worth more than permissions.
            let _ = file.set_permissions(Permissions::from_mode(self.mode));
        }
        (self.file, self.identity) = (file, identity(&metadata));
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.looked.elapsed() >= LOOK_INTERVAL {
            self.look();
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file only to append: a rotation may also copy and truncate it.
fn append(path: &Path, mode: u32) -> io::Result<File> {
    File::options().create(true).append(true).mode(mode).open(path)
}

/// Returns the device and the inode, which no other file has while this one is open.
fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text that `log` leaves in a file.
    fn logged(level: LogLevel, format: LogFormat, log: impl FnOnce(&Logging)) -> String {
        let name = format!("haypile-logging-{}-{level:?}-{format:?}.log", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = LogFile::open(&path).expect("a temporary file can be made");
        let (subscriber, logging) = subscriber(level, format, Target::File(Arc::new(Mutex::new(file))));
        tracing::subscriber::with_default(subscriber, || log(&logging));
        let text = std::fs::read_to_string(&path).expect("it was written");
        std::fs::remove_file(&path).expect("it is there");
        text
    }

    #[test]
    fn a_line_for_people() {
        let text = logged(LogLevel::Notice, LogFormat::Human, |_| {
            tracing::debug!("not this");
            tracing::info!(port = 6379, "Ready");
        });
        assert!(text.ends_with(" INFO Ready port=6379\n"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_line_for_machines() {
        let text = logged(LogLevel::Warning, LogFormat::Json, |_| {
            tracing::info!("not this");
            tracing::warn!(free_bytes = 5, "The disk is \"full\"");
        });
        assert!(text.starts_with("{\"timestamp\":\""), "{text}");
        assert!(
            text.ends_with("\"level\":\"WARN\",\"message\":\"The disk is \\\"full\\\"\",\"free_bytes\":5}\n"),
            "{text}"
        );
    }

    #[test]
    fn the_level_changes_while_it_runs() {
        let text = logged(LogLevel::Nothing, LogFormat::Human, |logging| {
            tracing::error!("one");
            logging.set_level(LogLevel::Debug);
            tracing::trace!("two");
            logging.set_level(LogLevel::Verbose);
            tracing::trace!("three");
            tracing::debug!("four");
        });
        let last: Vec<_> = text.lines().map(|line| line.rsplit(' ').next().unwrap_or("")).collect();
        assert_eq!(last, ["two", "four"]);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = LogFile::open(Path::new("/nowhere/a.log")).map(|_| ()).unwrap_err();
        assert!(error.starts_with("Can't open the log file /nowhere/a.log: No such file or directory"));
    }

    #[test]
    fn lines_go_on_into_the_old_file_until_there_can_be_a_new_one() {
        let dir = std::env::temp_dir().join(format!("haypile-logging-{}-rotated", std::process::id()));
        let moved = dir.with_extension("moved");
        fs::create_dir_all(&dir).expect("a temporary directory can be made");
        let mut log = LogFile::open(&dir.join("a.log")).expect("it is writable");
        let mut write = |line: &str| {
            log.look();
            log.write_all(line.as_bytes()).expect("it is writable");
        };
        write("one ");
        fs::rename(&dir, &moved).expect("it is ours");
        write("two");
        fs::create_dir_all(&dir).expect("a temporary directory can be made");
        write("three");
        let texts = [&moved, &dir].map(|dir| fs::read_to_string(dir.join("a.log")).expect("it was written"));
        assert_eq!(texts, ["one two", "three"]);
        for dir in [&moved, &dir] {
            fs::remove_dir_all(dir).expect("it is ours");
        }
    }
}
