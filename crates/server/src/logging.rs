//! The log for people and machines: `tracing` set up from `loglevel`, `logfile` and `log-format`.
//!
//! Called once, before anything is logged. The level follows CONFIG SET through the handle; file and form stay as they
//! are. Nothing else in the server names the subscriber: it uses the macros of `tracing`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use haypile_config::{Config, LogFormat, LogLevel};
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Changes the level of the running log.
#[derive(Clone)]
pub struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
}

/// Starts the log of this process. Fails with a text for people if the file cannot be opened, or if there is a log
/// already.
pub fn start(config: &Config) -> Result<Logging, String> {
    let target = match &config.logfile {
        None => Target::Output,
        Some(path) => Target::File(Arc::new(Mutex::new(append(path)?))),
    };
    let (subscriber, logging) = subscriber(config.loglevel, config.log_format, target);
    tracing::subscriber::set_global_default(subscriber).map_err(|error| error.to_string())?;
    Ok(logging)
}

impl Logging {
    /// Logs messages that are at least as important as this, from now on.
    pub fn set_level(&self, level: LogLevel) {
        // The level cannot be set once the subscriber is gone, but the global one never goes.
        let _ = self.level.modify(|filter| *filter = filter_of(level));
    }
}

/// Opens the file once, only to append: a rotation can truncate it, but not rename it.
fn append(path: &Path) -> Result<File, String> {
    let file = File::options().create(true).append(true).open(path);
    file.map_err(|error| format!("Can't open the log file {}: {error}", path.display()))
}

fn subscriber(level: LogLevel, format: LogFormat, target: Target) -> (impl Subscriber + Send + Sync, Logging) {
    let (filter, handle) = reload::Layer::new(filter_of(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(target).with_target(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        LogFormat::Human => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    (tracing_subscriber::registry().with(filter).with(lines), Logging { level: handle })
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
    File(Arc<Mutex<File>>),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text that `log` leaves in a file.
    fn logged(level: LogLevel, format: LogFormat, log: impl FnOnce(&Logging)) -> String {
        let name = format!("haypile-logging-{}-{level:?}-{format:?}.log", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = append(&path).expect("a temporary file can be made");
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
        let error = append(Path::new("/nowhere/a.log")).map(|_| ()).unwrap_err();
        assert!(error.starts_with("Can't open the log file /nowhere/a.log: No such file or directory"));
    }
}
