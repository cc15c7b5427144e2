//! The arguments of `haypile import`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::UsageError;
use super::server::{Options, Server, TLS_HELP};
use crate::read::CommandLine;

/// The arguments of an import: its source and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// A file in Redis's format; `None` is standard input.
    pub file: Option<PathBuf>,
    /// Whether keys that exist stay as they are.
    pub keep: bool,
    pub into: Into,
}

/// The destination of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Into {
    /// The data directory of a configuration. `made` is the one on the command line, which may not exist yet.
    Directory {
        made: Option<PathBuf>,
        line: CommandLine,
    },
    Server(Server),
}

pub(super) const HELP: &str = "\
Imports an RDB file of Redis: into a data directory on which no server runs, or into a server.

Usage: haypile import FILE [--keep] [--dir DIR] [CONFIGURATION] [--directive value ...] ...
       haypile import FILE [--keep] --host HOST [--port PORT] [--user USER] [--password PASSWORD] [--tls ...]

FILE is what SAVE, BGSAVE or redis-cli --rdb wrote, of any version of Redis up to 8.10; - is standard input.

The directory is DIR, which is made if it does not exist, or the `dir` of the configuration. The directives are those of a server:
those of a file, as in `haypile server CONFIGURATION`, and those of the command line, which win. `--maxmemory` is the one that counts.

The server is one that speaks Redis's protocol: with --host, or --port (the other one is 127.0.0.1 or 6379 then). The password may
stand in the environment instead, as HAYPILE_PASSWORD or REDISCLI_AUTH, where others do not see it. Of a Raft group any member will do.

A key of the file takes the place of one with the same name; with --keep those that exist stay as they are. Each key is there whole or
not at all, whatever happens. An import that was ended begins again from the start: run it again, with --keep if nothing else has
written meanwhile. Keys whose time has passed are left out. Data of modules are named at the end and not imported.

Progress goes to standard error, a summary to standard output.

Exit status: 0 all of it was imported, 1 not all of it, 2 the command line makes no sense.
";

impl Import {
    /// Parses the arguments after `haypile import`.
    pub(super) fn parse(arguments: &[OsString]) -> Result<Import, UsageError> {
        let usage = |why: String| UsageError(format!("{why}\n\n{HELP}\n{TLS_HELP}"));
        let Some((file, rest)) = arguments.split_first().filter(|(file, _)| !file.as_bytes().starts_with(b"--")) else {
            return Err(usage("haypile import takes a file first.".into()));
        };
        let file = (file != "-").then(|| PathBuf::from(file));
        let mut keep = false;
        let mut made = None;
        let mut server = Options::default();
        let mut others = Vec::new();
        let mut rest = rest.iter();
        while let Some(argument) = rest.next() {
            let name = argument.to_str().unwrap_or_default();
            if name == "--keep" {
                keep = true;
                continue;
            }
            if server.take(name, &mut rest).map_err(usage)? {
                continue;
            }
            others.push(argument.clone());
            if name == "--dir" {
                let dir = rest.next().ok_or_else(|| usage("--dir needs a value.".into()))?;
                made = Some(PathBuf::from(dir));
                others.push(dir.clone());
            }
        }
        if server.name_a_server() {
            if let Some(other) = others.first() {
                let other = other.to_string_lossy();
                return Err(usage(format!("{other} makes no sense with a server: it has its own configuration.")));
            }
            return Ok(Import { file, keep, into: Into::Server(server.server().map_err(usage)?) });
        }
        if server.are_given() {
            return Err(usage("--user, --password and --tls are for a server: name it with --host or --port.".into()));
        }
        let line = CommandLine::parse(&others);
        if line.stdin {
            return Err(usage("Standard input holds no configuration here.".into()));
        }
        Ok(Import { file, keep, into: Into::Directory { made, line } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Import, String> {
        let words: Vec<OsString> = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        Import::parse(&words).map_err(|error| error.0.lines().next().unwrap_or_default().to_owned())
    }

    #[test]
    fn a_directory_has_directives() {
        let import = parse("dump.rdb --keep --dir /data --maxmemory 1gb").unwrap();
        assert_eq!((import.file, import.keep), (Some("dump.rdb".into()), true));
        let Into::Directory { made, line } = import.into else { panic!("it is a directory") };
        assert_eq!((made, line.file), (Some("/data".into()), None));
        assert_eq!(line.options, [&b"dir \"/data\""[..], b"maxmemory \"1gb\""]);
        let import = parse("- a.conf --databases 99").unwrap();
        let Into::Directory { made, line } = import.into else { panic!("it is a directory") };
        assert_eq!((import.file, made, line.file), (None, None, Some("a.conf".into())));
        assert_eq!(line.options, [b"databases \"99\""]);
    }

    #[test]
    fn a_server_has_a_place_and_a_user() {
        let server = |line| match parse(line).unwrap().into {
            Into::Server(Server { host, port, user, password, .. }) => (host, port, user, password),
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
            ("", "haypile import takes a file first."),
            ("--dir /data", "haypile import takes a file first."),
            ("f --port x", "x is no port."),
            ("f --port", "--port needs a value."),
            ("f --dir", "--dir needs a value."),
            ("f --password p", "--user, --password and --tls are for a server: name it with --host or --port."),
            ("f --host h --dir /data", "--dir makes no sense with a server: it has its own configuration."),
            ("f --dir /data -", "Standard input holds no configuration here."),
        ] {
            assert_eq!(parse(line), Err(why.to_owned()), "{line}");
        }
    }
}
