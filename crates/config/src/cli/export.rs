//! The arguments of `haypile export`.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::UsageError;
use super::server::{Options, Server, TLS_HELP};

/// The arguments of an export: its source and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// A new file in Redis's format; `None` is standard output.
    pub file: Option<PathBuf>,
    /// Whether a file of that name is replaced when the new one is whole.
    pub force: bool,
    pub from: From,
}

/// The source of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// A data directory on which no server runs, or a backup.
    Directory(PathBuf),
    Server(Server),
}

pub(super) const HELP: &str = "\
Exports all data to an RDB file that redis-server loads: of a data directory on which no server runs, of a backup, or of a server.

Usage: haypile export FILE [--force] --dir DIR
       haypile export FILE [--force] --host HOST [--port PORT] [--user USER] [--password PASSWORD] [--tls ...]

FILE is made: it has its name when it is whole. One that exists is only replaced with --force; - is standard output.

DIR is the `dir` of a server that does not run, or one of the directories in its `backups`. Nothing in it changes. Memory stays below
200 MB and what the log holds above the base, and what the longest string and the names of a stream's groups take.

The server is one that speaks Redis's protocol: with --host, or --port (the other one is 127.0.0.1 or 6379 then). The password may
stand in the environment instead, as HAYPILE_PASSWORD or REDISCLI_AUTH, where others do not see it. What clients write meanwhile is in the
file or not, key by key: for the data of one moment, make a backup (BGSAVE) and export that.

Redis since 7.0 loads the file; since 7.4, if fields of hashes have deadlines, which the summary says. Keys whose time has passed are left
out. Progress goes to standard error, a summary to standard output (to standard error if the file goes there).

Exit status: 0 all of it was exported, 1 not all of it, 2 the command line makes no sense.
";

impl Export {
    /// Parses the arguments after `haypile export`.
    pub(super) fn parse(arguments: &[OsString]) -> Result<Export, UsageError> {
        let usage = |why: String| UsageError(format!("{why}\n\n{HELP}\n{TLS_HELP}"));
        let is_option = |argument: &OsStr| argument.as_encoded_bytes().starts_with(b"--");
        let Some((file, rest)) = arguments.split_first().filter(|(file, _)| !is_option(file)) else {
            return Err(usage("haypile export takes a file first.".into()));
        };
        let file = (file != "-").then(|| PathBuf::from(file));
        let (mut force, mut dir) = (false, None);
        let mut server = Options::default();
        let mut rest = rest.iter();
        while let Some(argument) = rest.next() {
            match argument.to_str().unwrap_or_default() {
                "--dir" => dir = Some(PathBuf::from(rest.next().ok_or_else(|| usage("--dir needs a value.".into()))?)),
                "--force" => force = true,
                name if server.take(name, &mut rest).map_err(usage)? => {}
                _ => return Err(usage(format!("haypile export knows no {}.", argument.to_string_lossy()))),
            }
        }
        let from = match (dir, server.name_a_server()) {
            (Some(dir), false) if !server.are_given() => From::Directory(dir),
            (Some(_), _) => return Err(usage("It is either a directory or a server.".into())),
            (None, false) => {
                return Err(usage("Export what? Name a directory with --dir, or a server with --host.".into()));
            }
            (None, true) => From::Server(server.server().map_err(usage)?),
        };
        Ok(Export { file, force, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Export, String> {
        let words: Vec<OsString> = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        Export::parse(&words).map_err(|error| error.0.lines().next().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_directory_or_a_server_is_exported() {
        let from = From::Directory("/data".into());
        assert_eq!(
            parse("a.rdb --dir /data"),
            Ok(Export { file: Some("a.rdb".into()), force: false, from: from.clone() })
        );
        assert_eq!(parse("- --force --dir /data"), Ok(Export { file: None, force: true, from }));
        let server = |line| match parse(line).unwrap().from {
            From::Server(Server { host, port, user, password, .. }) => (host, port, user, password),
            other => panic!("{other:?}"),
        };
        assert_eq!(server("f --port 7000"), ("127.0.0.1".into(), 7000, None, None));
        assert_eq!(
            server("f --user u --host h --password p"),
            ("h".into(), 6379, Some("u".to_owned()), Some("p".to_owned()))
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, why) in [
            ("", "haypile export takes a file first."),
            ("--dir /data", "haypile export takes a file first."),
            ("f", "Export what? Name a directory with --dir, or a server with --host."),
            ("f --force --password p", "Export what? Name a directory with --dir, or a server with --host."),
            ("f --dir /data --port 1", "It is either a directory or a server."),
            ("f --dir /data --user u", "It is either a directory or a server."),
            ("f --dir", "--dir needs a value."),
            ("f --port x", "x is no port."),
            ("f --keep --dir /data", "haypile export knows no --keep."),
            ("f --dir /data more", "haypile export knows no more."),
        ] {
            assert_eq!(parse(line), Err(why.to_owned()), "{line}");
        }
    }
}
