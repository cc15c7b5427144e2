//! The command line of `haypile`: its subcommands and their help.
//!
//! `haypile server` takes its arguments as redis-server does, which is why no library for command lines is used here.
//! Nothing is run or printed; the binary does that.

mod archive;
mod export;
mod import;
mod log;
pub mod secrets;
mod server;

pub use archive::{ArchivePlace, Moment, Restore};
pub use export::{Export, From};
pub use import::{Import, Into};
pub use log::{Follow, LogOf};
pub use server::{Server, ServerTls};

use std::ffi::OsString;
use std::path::PathBuf;

use crate::read::CommandLine;

/// The work that the binary is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cli {
    Server(CommandLine),
    /// Print the records of a log.
    Log(LogOf),
    /// Verify a data directory, changing nothing.
    Check {
        dir: PathBuf,
    },
    /// Verify an archive, changing nothing.
    CheckArchive(ArchivePlace),
    /// Have a server make a backup that goes to its archive.
    Backup(Server),
    /// List what is in an archive.
    Backups(ArchivePlace),
    /// Restore data from an archive.
    Restore(Restore),
    /// Import a file of Redis.
    Import(Import),
    /// Export a file of Redis.
    Export(Export),
    /// Print this text on standard output and exit with success.
    Text(String),
}

/// The error for a command line that makes no sense. Its text has the reason and a way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The answer to `haypile --version`.
pub const VERSION: &str = concat!("haypile ", env!("CARGO_PKG_VERSION"));

const HELP: &str = "\
Haypile speaks the Redis protocol, keeps all data on disk in RocksDB, and serves what is hot from memory.

Usage:
  haypile server [FILE] [--directive value ...] ...   run a server
  haypile log DIR                                     print the records of a data directory's log
  haypile log --follow --json [--host HOST]           print what is done to a server's data, as it is done
  haypile check DIR                                   verify a data directory or a backup, changing nothing
  haypile import FILE [--dir DIR]                     import an RDB file of Redis, into a directory or a server
  haypile export FILE --dir DIR                       export an RDB file for Redis, from a directory, a backup or a server
  haypile backup [--host HOST]                        have a server make a backup that goes to its archive
  haypile backups ARCHIVE                             list the backups of an archive
  haypile restore --from ARCHIVE --dir DIR            restore the data of any moment from an archive
  haypile --version                                   print the version
  haypile --help, haypile server --help, haypile log --help, haypile check --help,
  haypile import --help, haypile export --help, haypile backup --help, haypile backups --help, haypile restore --help
";

const SERVER_HELP: &str = "\
Runs a server.

Usage: haypile server [FILE] [--directive value ...] ...

FILE is a configuration in the syntax of redis.conf; - as the first or last argument reads one from standard input.
Each --directive is a line after those of the file, so it wins. All directives are listed in docs/configuration.md.

Examples:
  haypile server
  haypile server --port 6380 --dir /var/lib/haypile
  haypile server /etc/haypile.conf --maxmemory 4gb --durability fsync
  echo 'port 6380' | haypile server -

SIGTERM and SIGINT stop the server cleanly.
";

const CHECK_HELP: &str = "\
Verifies a data directory on which no server runs, or a backup, and changes nothing: checksums of the log and the base, whether the
two fit together, and every rule of docs/format for keys, deadlines, objects, counters and values.

Usage: haypile check DIR
       haypile check ARCHIVE [--key-file FILE] [--option NAME=VALUE ...]

DIR is a data directory: the `dir` of a server, or one of the directories in its `backups`.

ARCHIVE is a directory with an archive or the address of an object store, as for `haypile backups`: each file of each backup is read, and
each piece of the log; records that are missing between them are named.

Each defect is a line on standard output, up to 20 of a kind; totals come last. Progress goes to standard error. What is garbage,
which goes by itself, is only counted. Memory stays below 100 MB and what the log holds above the base.

Exit status: 0 it is sound, 1 there are defects (a lost base or log is one), 2 that cannot be told: it cannot be read, is
neither a data directory nor an archive, is of a newer version, or a server has it.
";

impl Cli {
    /// Parses the arguments after the name of the program.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, UsageError> {
        let arguments: Vec<OsString> = arguments.into_iter().collect();
        let Some((command, rest)) = arguments.split_first() else {
            return Err(UsageError(HELP.into()));
        };
        let asks_for_help = rest.iter().any(|argument| argument == "--help") || matches!(rest, [only] if only == "-h");
        match command.to_str() {
            Some("--help" | "-h" | "help") => Ok(Cli::Text(HELP.into())),
            Some("--version" | "-v" | "-V" | "version") => Ok(Cli::Text(format!("{VERSION}\n"))),
            Some("server") if asks_for_help => Ok(Cli::Text(SERVER_HELP.into())),
            Some("server") if matches!(rest, [only] if only == "--version" || only == "-v") => {
                Ok(Cli::Text(format!("{VERSION}\n")))
            }
            Some("server") => Ok(Cli::Server(CommandLine::parse(rest))),
            Some("log") if asks_for_help => Ok(Cli::Text(format!("{}\n{}", log::HELP, server::TLS_HELP))),
            Some("log") => Ok(Cli::Log(log::parse(rest)?)),
            Some("check") if asks_for_help => Ok(Cli::Text(CHECK_HELP.into())),
            Some("check") => match rest {
                [dir] if !dir.as_encoded_bytes().windows(3).any(|part| part == b"://") && !is_archive(dir) => {
                    Ok(Cli::Check { dir: dir.into() })
                }
                [] => Err(UsageError(format!("haypile check takes one argument.\n\n{CHECK_HELP}"))),
                rest => {
                    let place = archive::place(rest).map_err(|why| UsageError(format!("{why}\n\n{CHECK_HELP}")))?;
                    Ok(Cli::CheckArchive(place))
                }
            },
            Some("backup") if asks_for_help => Ok(Cli::Text(format!("{}\n{}", archive::BACKUP_HELP, server::TLS_HELP))),
            Some("backup") => Ok(Cli::Backup(archive::backup(rest)?)),
            Some("backups") if asks_for_help => Ok(Cli::Text(archive::BACKUPS_HELP.into())),
            Some("backups") => Ok(Cli::Backups(archive::backups(rest)?)),
            Some("restore") if asks_for_help => Ok(Cli::Text(archive::RESTORE_HELP.into())),
            Some("restore") => Ok(Cli::Restore(Restore::parse(rest)?)),
            Some("export") if asks_for_help => Ok(Cli::Text(format!("{}\n{}", export::HELP, server::TLS_HELP))),
            Some("export") => Ok(Cli::Export(Export::parse(rest)?)),
            Some("import") if asks_for_help => Ok(Cli::Text(format!("{}\n{}", import::HELP, server::TLS_HELP))),
            Some("import") => Ok(Cli::Import(Import::parse(rest)?)),
            _ => {
                let command = command.to_string_lossy();
                let meant = if command.starts_with("--") || command.ends_with(".conf") {
                    format!(" Did you mean `haypile server {command}`?")
                } else {
                    String::new()
                };
                Err(UsageError(format!("There is no subcommand '{command}'.{meant}\n\n{HELP}")))
            }
        }
    }
}

/// Whether a directory is an archive: it has the file that says so.
fn is_archive(dir: &std::ffi::OsStr) -> bool {
    std::path::Path::new(dir).join("ARCHIVE").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, UsageError> {
        Cli::parse(arguments.iter().map(OsString::from))
    }

    fn is_text(arguments: &[&str], begin: &str) {
        match parse(arguments) {
            Ok(Cli::Text(text)) if text.starts_with(begin) => {}
            other => panic!("{arguments:?} gave {other:?}"),
        }
    }

    #[test]
    fn subcommands() {
        assert_eq!(parse(&["server"]), Ok(Cli::Server(CommandLine::default())));
        assert_eq!(parse(&["log", "/data"]), Ok(Cli::Log(LogOf::Directory { dir: "/data".into(), json: false })));
        is_text(&["--version"], "haypile ");
        is_text(&["--help"], "Haypile speaks");
        is_text(&["server", "--help"], "Runs a server");
        is_text(&["server", "a.conf", "--port", "1", "--help"], "Runs a server");
        is_text(&["log", "-h"], "Prints the records");
        assert!(parse(&[]).is_err());
        assert!(parse(&["log"]).is_err());
        assert_eq!(parse(&["check", "/data"]), Ok(Cli::Check { dir: "/data".into() }));
        is_text(&["check", "--help"], "Verifies a data directory");
        assert!(parse(&["check"]).unwrap_err().to_string().starts_with("haypile check takes one"));
        assert!(
            parse(&["check", "/data", "/more"]).unwrap_err().to_string().starts_with("There is nothing like /more")
        );
        assert!(matches!(parse(&["check", "s3://bucket/path"]), Ok(Cli::CheckArchive(_))));
        assert!(matches!(parse(&["import", "dump.rdb"]), Ok(Cli::Import(_))));
        is_text(&["import", "dump.rdb", "--help"], "Imports an RDB file");
        assert!(parse(&["--port", "6380"]).unwrap_err().to_string().contains("haypile server --port"));
        assert!(parse(&["serve"]).unwrap_err().to_string().starts_with("There is no subcommand 'serve'."));
    }

    #[test]
    fn the_server_takes_a_file_and_directives() {
        let Ok(Cli::Server(line)) = parse(&["server", "a.conf", "--port", "6380", "--save", "--bind", "a", "b c"])
        else {
            panic!("it is a server");
        };
        assert_eq!(line.file, Some("a.conf".into()));
        assert_eq!(line.options, [&b"port \"6380\""[..], b"save \"\"", b"bind \"a\" \"b c\""]);
    }
}
