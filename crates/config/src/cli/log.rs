//! The arguments of `haypile log`.

use super::UsageError;
use super::server::{Options, Server, TLS_HELP};
use std::ffi::OsString;
use std::path::PathBuf;

/// The log that is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOf {
    /// The log in a data directory, as it is.
    Directory {
        dir: PathBuf,
        /// The records are printed as JSON.
        json: bool,
    },
    /// A server's, as it grows.
    Server(Box<Follow>),
}

/// The changes of a server that are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    pub server: Server,
    /// The number of a record, `-` for the oldest one or `$` for what comes from now on.
    pub from: String,
    /// 40 hexadecimal digits: the history of the record in `from`.
    pub history: Option<String>,
    pub database: Option<u32>,
    /// Patterns of keys; none means all.
    pub patterns: Vec<String>,
    /// Whether each change comes with what there was before.
    pub before: bool,
    /// Whether the program ends when the connection breaks, rather than to connect again.
    pub once: bool,
}

pub(super) const HELP: &str = "\
Prints the records of a log, oldest first, one on a line, and changes nothing.

Usage: haypile log DIR [--json]
       haypile log --follow --json [--host HOST] [--port PORT] [--user USER] [--password PASSWORD] [--tls ...]
                   [--from INDEX] [--history HISTORY] [--db NUMBER] [--match PATTERN ...] [--before] [--once]

DIR is a data directory: the `dir` of a server. Where a server runs on it, what it writes meanwhile may be missing.

With --json each line is an object, as docs/changes.md describes it: what a record has done, in commands, as far as it says so
(`change-stream`); without, it is what a record does to rows.

With --follow the changes of a server are printed as they come, until it refuses or nobody reads them. The server is 127.0.0.1:6379 unless
it is named. INDEX is the record that was taken last, - for the oldest that there is, or $, the default, for what comes from now on;
HISTORY is that record's, which the first line names: where the server's data have gone on elsewhere before it, that is an error. Where
the connection breaks it is made again, and goes on behind the last record that was printed; with --once that is the end.

Exit status: 0, 1 it cannot be read or the server refuses, 2 the command line makes no sense.
";

/// Parses the arguments after `haypile log`.
pub(super) fn parse(arguments: &[OsString]) -> Result<LogOf, UsageError> {
    let usage = |why: String| UsageError(format!("{why}\n\n{HELP}\n{TLS_HELP}"));
    let (mut server, mut json, mut follows, mut dir) = (Options::default(), false, false, None);
    let (mut from, mut history, mut database) = (None, None, None);
    let (mut patterns, mut before, mut once) = (Vec::new(), false, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let name = argument.to_str().unwrap_or_default();
        if server.take(name, &mut rest).map_err(usage)? {
            continue;
        }
        let mut value = || match rest.next() {
            Some(value) => Ok(value.to_string_lossy().into_owned()),
            None => Err(usage(format!("{name} needs a value."))),
        };
        match name {
            "--json" => json = true,
            "--follow" => follows = true,
            "--before" => before = true,
            "--once" => once = true,
            "--from" => from = Some(value()?),
            "--history" => history = Some(value()?),
            "--match" => patterns.push(value()?),
            "--db" => {
                let number = value()?;
                let number = number.parse().map_err(|_| usage(format!("{number} is no number of a database.")))?;
                database = Some(number);
            }
            _ if !name.starts_with("--") && dir.is_none() => dir = Some(PathBuf::from(argument)),
            _ => return Err(usage(format!("haypile log knows no {}.", argument.to_string_lossy()))),
        }
    }
    let is_of_server = server.are_given() || from.is_some() || history.is_some() || database.is_some();
    match dir {
        Some(_) if follows => Err(usage("--follow is for a server, which is named by --host and --port.".into())),
        Some(_) if is_of_server || !patterns.is_empty() || before || once => {
            Err(usage("A directory goes with --json alone.".into()))
        }
        Some(dir) => Ok(LogOf::Directory { dir, json }),
        None if !follows => Err(usage("haypile log takes a directory, or --follow.".into())),
        None if !json => Err(usage("--follow goes with --json.".into())),
        None => {
            let (server, from) = (server.server().map_err(usage)?, from.unwrap_or_else(|| "$".into()));
            let what = Follow { server, from, history, database, patterns, before, once };
            Ok(LogOf::Server(Box::new(what)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<LogOf, UsageError> {
        parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_directory_or_a_server() {
        assert_eq!(parsed(&["/data"]), Ok(LogOf::Directory { dir: "/data".into(), json: false }));
        assert_eq!(parsed(&["--json", "/data"]), Ok(LogOf::Directory { dir: "/data".into(), json: true }));
        let Ok(LogOf::Server(plain)) = parsed(&["--follow", "--json"]) else { panic!("it is a server") };
        assert_eq!((plain.server.port, &*plain.from, plain.history, plain.once), (6379, "$", None, false));
        let all = "--follow --json --port 7000 --from 17 --history abc --db 3 --match a* --match b --before --once";
        let Ok(LogOf::Server(all)) = parsed(&all.split(' ').collect::<Vec<_>>()) else { panic!("it is a server") };
        assert_eq!((all.server.port, &*all.from, all.history.as_deref()), (7000, "17", Some("abc")));
        assert_eq!((all.database, all.before, all.once), (Some(3), true, true));
        assert_eq!(all.patterns, ["a*", "b"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            &[][..],
            &["--follow"],
            &["--json"],
            &["/data", "/data"],
            &["/data", "--follow", "--json"],
            &["/data", "--from", "1"],
            &["/data", "--before"],
            &["--follow", "--json", "--db", "x"],
            &["--follow", "--json", "--from"],
            &["--follow", "--json", "--what"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
