//! The arguments of `haypile backup`, `haypile backups` and `haypile restore`.

use super::UsageError;
use super::server::{Options, Server, TLS_HELP};
use crate::archive::options_of;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::slice::Iter;

/// An archive: where it is, and what it takes to read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchivePlace {
    /// A directory, or the address of an object store.
    pub location: String,
    /// Options of the object store.
    pub options: Vec<(String, String)>,
    pub key_file: Option<PathBuf>,
}

/// The arguments of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    pub from: ArchivePlace,
    pub to: Moment,
    /// 40 hexadecimal digits.
    pub history: Option<String>,
    /// A directory that is empty or not there.
    pub dir: PathBuf,
}

/// The moment whose data are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The newest moment that the archive has.
    Newest,
    /// The moment after the record of this index.
    Index(u64),
    /// The moment of this time, in milliseconds since 1970.
    Time(u64),
}

pub(super) const BACKUP_HELP: &str = "\
Has a server make a backup that goes to its archive (`archive-to`), shows how far it is, and ends when it is complete there.

Usage: haypile backup [--host HOST] [--port PORT] [--user USER] [--password PASSWORD] [--tls ...]

The server is 127.0.0.1:6379 unless it is named. The password may stand in the environment instead, as HAYPILE_PASSWORD or
REDISCLI_AUTH, where others do not see it. Files that are in the archive already are not sent again.

Exit status: 0 it is complete, 1 it failed, 2 the command line makes no sense.
";

pub(super) const BACKUPS_HELP: &str = "\
Lists the backups of an archive, and from when to when each of its histories can be restored.

Usage: haypile backups ARCHIVE [--key-file FILE] [--option NAME=VALUE ...]

ARCHIVE is a directory, or an address like s3://bucket/path, gs://bucket/path or az://container/path. What an object store is logged
into with is taken from the environment, under the store's own names (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_ENDPOINT, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_NAME, ...); --option sets one by its name (--option endpoint=https://...).
FILE has the key of an encrypted archive.

Exit status: 0, 1 the archive cannot be read, 2 the command line makes no sense.
";

pub(super) const RESTORE_HELP: &str = "\
Restores the data of a moment from an archive, into a new data directory. The server on it begins a history of its own there.

Usage: haypile restore --from ARCHIVE --dir DIR [--to INDEX|TIME] [--history HISTORY] [--key-file FILE] [--option NAME=VALUE ...]

ARCHIVE, FILE and NAME=VALUE are those of `haypile backups`. DIR is made; one that is there must be empty.

INDEX is the number of a record: the data are those right after it. TIME is 2026-11-22T08:45:00Z or with a fraction of a second, in UTC,
or @ and the seconds since 1970: the data are those of all records that were made until then. Without --to they are the newest that the
archive has. `haypile log` prints the records of a data directory with their times; `haypile backups` says how far one can go back.

HISTORY is one of those that `haypile backups` lists; without it the one that was written to last is restored.

Where records are missing in the archive, they are named, and how far one can restore. Progress goes to standard error.

Exit status: 0 the data are there, 1 they are not, 2 the command line makes no sense.
";

impl ArchivePlace {
    /// Takes an argument about an archive, with its value from `rest`; whether it is one.
    fn take(&mut self, name: &str, rest: &mut Iter<'_, OsString>) -> Result<bool, String> {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("{name} needs a value."));
        match name {
            "--key-file" => self.key_file = Some(value()?.into()),
            "--option" => {
                let value = value()?.to_string_lossy().into_owned();
                if !value.contains('=') || value.contains(char::is_whitespace) {
                    return Err(format!("{value} is no NAME=VALUE."));
                }
                self.options.extend(options_of(&value));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses the arguments after `haypile backup`.
pub(super) fn backup(arguments: &[OsString]) -> Result<Server, UsageError> {
    let usage = |why: String| UsageError(format!("{why}\n\n{BACKUP_HELP}\n{TLS_HELP}"));
    let mut server = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if !server.take(argument.to_str().unwrap_or_default(), &mut rest).map_err(usage)? {
            return Err(usage(format!("haypile backup knows no {}.", argument.to_string_lossy())));
        }
    }
    server.server().map_err(usage)
}

/// Parses the arguments after `haypile backups`.
pub(super) fn backups(arguments: &[OsString]) -> Result<ArchivePlace, UsageError> {
    place(arguments).map_err(|why| UsageError(format!("{why}\n\n{BACKUPS_HELP}")))
}

/// Parses an archive and the arguments about it.
///
/// # Errors
/// A sentence.
pub(super) fn place(arguments: &[OsString]) -> Result<ArchivePlace, String> {
    let is_option = |argument: &OsStr| argument.as_encoded_bytes().starts_with(b"--");
    let Some((location, rest)) = arguments.split_first().filter(|(location, _)| !is_option(location)) else {
        return Err("An archive comes first.".into());
    };
    let mut place = ArchivePlace { location: location.to_string_lossy().into_owned(), ..ArchivePlace::default() };
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        if !place.take(argument.to_str().unwrap_or_default(), &mut rest)? {
            return Err(format!("There is nothing like {} here.", argument.to_string_lossy()));
        }
    }
    Ok(place)
}

impl Restore {
    /// Parses the arguments after `haypile restore`.
    pub(super) fn parse(arguments: &[OsString]) -> Result<Restore, UsageError> {
        let usage = |why: String| UsageError(format!("{why}\n\n{RESTORE_HELP}"));
        let (mut from, mut to, mut history, mut dir) = (ArchivePlace::default(), Moment::Newest, None, None);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let name = argument.to_str().unwrap_or_default();
            if from.take(name, &mut rest).map_err(usage)? {
                continue;
            }
            let mut value = || rest.next().ok_or_else(|| usage(format!("{name} needs a value.")));
            match name {
                "--from" => from.location = value()?.to_string_lossy().into_owned(),
                "--dir" => dir = Some(PathBuf::from(value()?)),
                "--history" => history = Some(value()?.to_string_lossy().into_owned()),
                "--to" => {
                    let text = value()?.to_string_lossy();
                    let moment = Moment::parse(&text);
                    to = moment.ok_or_else(|| usage(format!("{text} is neither the index of a record nor a time.")))?;
                }
                _ => return Err(usage(format!("haypile restore knows no {}.", argument.to_string_lossy()))),
            }
        }
        match dir {
            _ if from.location.is_empty() => Err(usage("Restore from where? Name an archive with --from.".into())),
            None => Err(usage("Restore to where? Name a directory with --dir.".into())),
            Some(dir) => Ok(Restore { from, to, history, dir }),
        }
    }
}

impl Moment {
    /// Parses an index, `@` and seconds since 1970, or a date and a time in UTC.
    pub fn parse(text: &str) -> Option<Moment> {
        if let Some(seconds) = text.strip_prefix('@') {
            return milliseconds(seconds).map(Moment::Time);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().map(Moment::Index);
        }
        let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")).unwrap_or(text);
        let (date, time) = text.split_once(['T', ' '])?;
        let digits = |text: &str, separator: &str| -> Option<String> {
            let digits = text.replace(separator, "");
            digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(digits)
        };
        let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let (date, whole) = (digits(date, "-")?, digits(whole, ":")?);
        if date.len() != 8 || whole.len() != 6 {
            return None;
        }
        let part = |of: &str, from: usize, to: usize| of[from..to].parse::<u64>().ok();
        let (year, month, day) = (part(&date, 0, 4)?, part(&date, 4, 6)?, part(&date, 6, 8)?);
        let (hour, minute, second) = (part(&whole, 0, 2)?, part(&whole, 2, 4)?, part(&whole, 4, 6)?);
        let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=month_days(year, month)).contains(&day);
        if !is_date || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
        let days = years + (1..month).map(|month| month_days(year, month)).sum::<u64>() + day - 1;
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
        milliseconds(&format!("{seconds}.{fraction}")).map(Moment::Time)
    }
}

/// Returns the milliseconds of a number of seconds; digits beyond are cut off.
fn milliseconds(seconds: &str) -> Option<u64> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let thousandths: u64 = format!("{fraction}000")[..3].parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(thousandths)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_days(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn why(error: UsageError) -> String {
        error.0.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn moments_are_indexes_and_times() {
        for (text, expected) in [
            ("4711", Some(Moment::Index(4711))),
            ("@1795337100", Some(Moment::Time(1_795_337_100_000))),
            ("@1795337100.5", Some(Moment::Time(1_795_337_100_500))),
            ("2026-11-22T08:45:00Z", Some(Moment::Time(1_795_337_100_000))),
            ("2026-11-22 08:45:00.123456", Some(Moment::Time(1_795_337_100_123))),
            ("20261122T084500Z", Some(Moment::Time(1_795_337_100_000))),
            ("1970-01-01T00:00:00+00:00", Some(Moment::Time(0))),
            ("2000-02-29T12:34:56Z", Some(Moment::Time(951_827_696_000))),
            ("2001-02-29T12:34:56Z", None),
            ("2026-13-22T08:45:00Z", None),
            ("2026-11-22T24:45:00Z", None),
            ("2026-11-22", None),
            ("now", None),
            ("@", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(Moment::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn restores() {
        let parsed = Restore::parse(&words("--from s3://b/p --to 7 --dir /d --option region=eu --key-file k"));
        let option = ("region".to_owned(), "eu".to_owned());
        let from = ArchivePlace { location: "s3://b/p".into(), options: vec![option], key_file: Some("k".into()) };
        assert_eq!(parsed, Ok(Restore { from, to: Moment::Index(7), history: None, dir: "/d".into() }));
        for (line, expected) in [
            ("", "Restore from where? Name an archive with --from."),
            ("--from /a", "Restore to where? Name a directory with --dir."),
            ("--from /a --dir /d --to yesterday", "yesterday is neither the index of a record nor a time."),
            ("--from /a --dir", "--dir needs a value."),
            ("--from /a --dir /d --option x", "x is no NAME=VALUE."),
            ("--from /a --dir /d more", "haypile restore knows no more."),
        ] {
            assert_eq!(Restore::parse(&words(line)).map_err(why), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn backups_of_an_archive_and_of_a_server() {
        let place = ArchivePlace { location: "/a".into(), ..ArchivePlace::default() };
        assert_eq!(backups(&words("/a")), Ok(place));
        assert_eq!(backups(&words("--key-file k")).map_err(why), Err("An archive comes first.".into()));
        assert_eq!(backups(&words("/a x")).map_err(why), Err("There is nothing like x here.".into()));
        assert_eq!(backup(&[]).map(|server| (server.host, server.port)), Ok(("127.0.0.1".into(), 6379)));
        assert_eq!(backup(&words("--port 7 --host h")).map(|server| (server.host, server.port)), Ok(("h".into(), 7)));
        assert_eq!(backup(&words("now")).map_err(why), Err("haypile backup knows no now.".into()));
    }
}
