//! The export of a server that runs, as its client: SCAN finds the keys, DUMP gives each value, together with its
//! deadline and its idle time or frequency. One transaction of a key asks for the three, so that they belong together;
//! keys are not of one moment.
//!
//! A window of keys is under way at a time, so that the other end never holds much for us; the window grows while
//! values are short. No key is written twice, because Redis does not load such a file. SCAN of Haypile goes over keys
//! in a fixed order and gives each of them once; that of Redis may repeat some while its tables grow, so hashes of all
//! names are kept.
//!
//! A server that knows no DUMP, as Pika, is asked for each value by the commands of its type (`by_type`).

use super::by_type;
use super::link::Link;
use super::replies::{is_unknown, number_of, text_of, time_ms};
use super::{Exporting, unwritten};
use crate::remote::{Remote, is_beside};
use haypile_commands::function;
use haypile_config::cli::Server as Place;
use haypile_rdb::{Key, Kind, Payload, Why};
use haypile_resp::Reply;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::time::Duration;

/// The longest wait for one reply: a value of many gigabytes takes long.
const PATIENCE: Duration = Duration::from_secs(300);

/// Keys that one SCAN looks at.
const SCAN_COUNT: &[u8] = b"1000";

/// Keys of a window, and bytes of their names: the operating system buffers all requests of a window while the server
/// does not read.
const WINDOW_KEYS_MAX: usize = 256;
const WINDOW_NAME_BYTES: usize = 8 << 10;

/// Bytes of the values of a window below which the next one is larger, and above which it is smaller.
const WINDOW_BYTES_FEW: usize = 256 << 10;
const WINDOW_BYTES_MANY: usize = 2 << 20;

pub struct Server {
    link: Link,
    databases: Vec<Database>,
    /// Whether SCAN gives no key twice.
    scans_once: bool,
    asks: Asks,
    /// Whether the server knows no DUMP.
    reads_by_type: bool,
    window_keys: usize,
}

/// A database as INFO of the server lists it.
#[derive(Debug, PartialEq, Eq)]
struct Database {
    number: u64,
    keys: u64,
    deadlines: u64,
}

/// The questions about a key beside its value that a server can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asks {
    deadline: Deadline,
    usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deadline {
    /// PEXPIRETIME, since Redis 7.0.
    Time,
    /// The time that is left, with the server's clock.
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    IdleTime,
    Frequency,
}

impl Server {
    /// Connects, logs in, and reads which databases there are.
    ///
    /// # Errors
    /// A text for people.
    pub fn connect(place: &Place) -> Result<Server, String> {
        let Place { host, port, user, password, .. } = place;
        let named = format!("{host}:{port}");
        let remote = Remote::connect_to(place, PATIENCE)?
            .map_err(|error| format!("The server {named} cannot be reached: {error}."))?;
        let mut link = Link { remote, place: named };
        let environment = || ["HAYPILE_PASSWORD", "REDISCLI_AUTH"].iter().find_map(|name| std::env::var(name).ok());
        match (user, password.clone().or_else(environment)) {
            (Some(user), password) => {
                link.ask(&[b"AUTH", user.as_bytes(), password.unwrap_or_default().as_bytes()])?;
            }
            (None, Some(password)) => drop(link.ask(&[b"AUTH", password.as_bytes()])?),
            (None, None) => {}
        }
        let info = link.ask(&[b"INFO"])?;
        let Reply::Bulk(info) = info else { return Err(link.strange("INFO")) };
        let info = String::from_utf8_lossy(&info).into_owned();
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let raft = link.try_asking(&[b"INFO", b"raft"])?;
        if is_beside(&raft) {
            // Any member of a group has the data; only its leader gives them unasked.
            link.ask(&[b"READONLY"])?;
        }
        let reads_by_type = is_unknown(&link.try_asking(&[b"DUMP", b""])?);
        let mut databases: Vec<Database> = info.lines().filter_map(Database::parse).collect();
        if reads_by_type && databases.is_empty() {
            let all = 0..by_type::count_databases(&mut link)?;
            databases.extend(all.map(|number| Database { number, keys: 0, deadlines: 0 }));
        }
        let counts_uses = field("maxmemory_policy").is_some_and(|policy| policy.contains("lfu"));
        let asks = Asks::of(&mut link, if counts_uses { Usage::Frequency } else { Usage::IdleTime })?;
        Ok(Server {
            link,
            databases,
            scans_once: field("haypile_version").is_some(),
            asks,
            reads_by_type,
            window_keys: 16,
        })
    }

    /// Returns the number of keys of all databases.
    pub fn keys(&self) -> u64 {
        self.databases.iter().map(|database| database.keys).fold(0, u64::saturating_add)
    }

    /// Writes the libraries of functions, if the server has any.
    fn write_functions(&mut self, to: &mut Exporting) -> Result<(), String> {
        let reply = self.link.try_asking(&[b"FUNCTION", b"DUMP"])?;
        match &reply {
            Reply::Bulk(payload) => {
                let codes = function::codes_of(payload).map_err(|_| self.link.strange("FUNCTION DUMP"))?;
                codes.iter().try_for_each(|code| to.function(code))
            }
            // Before Redis 7.0 there are none.
            reply if reply.is_error() && is_unknown(reply) => Ok(()),
            reply if reply.is_error() => Err(self.link.refused(reply)),
            _ => Err(self.link.strange("FUNCTION DUMP")),
        }
    }

    /// Writes all keys.
    ///
    /// # Errors
    /// A text for people.
    pub fn write(&mut self, to: &mut Exporting) -> Result<(), String> {
        self.write_functions(to)?;
        for Database { number, keys, deadlines } in std::mem::take(&mut self.databases) {
            self.link.ask(&[b"SELECT", number.to_string().as_bytes()])?;
            to.database(number, keys, deadlines)?;
            self.write_database(to)?;
        }
        Ok(())
    }

    fn write_database(&mut self, to: &mut Exporting) -> Result<(), String> {
        let mut seen = (!self.scans_once).then(Seen::default);
        let mut cursor = b"0".to_vec();
        loop {
            let Reply::Array(scanned) = self.link.ask(&[b"SCAN", &cursor, b"COUNT", SCAN_COUNT])? else {
                return Err(self.link.strange("SCAN"));
            };
            let Ok([Reply::Bulk(next), Reply::Array(names)]) = <[Reply; 2]>::try_from(scanned) else {
                return Err(self.link.strange("SCAN"));
            };
            let mut fresh: Vec<Vec<u8>> = Vec::with_capacity(names.len());
            for name in names {
                let Reply::Bulk(name) = name else { return Err(self.link.strange("SCAN")) };
                if seen.as_mut().is_none_or(|seen| seen.insert(&name)) {
                    fresh.push(name.into_vec());
                }
            }
            let mut rest = &fresh[..];
            while !rest.is_empty() {
                let (window, others) = rest.split_at(self.window(rest));
                self.write_window(window, to)?;
                rest = others;
            }
            if *next == b"0"[..] {
                return Ok(());
            }
            cursor = next.into_vec();
        }
    }

    /// Returns how many of these names make the next window: one at least.
    fn window(&self, names: &[Vec<u8>]) -> usize {
        let mut bytes = 0;
        let fits = |name: &&Vec<u8>| {
            bytes += name.len();
            bytes <= WINDOW_NAME_BYTES
        };
        names.iter().take(self.window_keys).take_while(fits).count().max(1)
    }

    fn write_window(&mut self, names: &[Vec<u8>], to: &mut Exporting) -> Result<(), String> {
        let bytes = match self.reads_by_type {
            true => by_type::write(&mut self.link, names, to)?,
            false => self.write_dumps(names, to)?,
        };
        to.tell();
        self.window_keys = match bytes {
            ..WINDOW_BYTES_FEW => (2 * self.window_keys).min(WINDOW_KEYS_MAX),
            WINDOW_BYTES_MANY.. => (self.window_keys / 4).max(1),
            _ => self.window_keys,
        };
        Ok(())
    }

    /// Writes keys as DUMP gives them; returns how many bytes their payloads have.
    fn write_dumps(&mut self, names: &[Vec<u8>], to: &mut Exporting) -> Result<usize, String> {
        let asks = self.asks;
        for name in names {
            self.link.send(&[b"MULTI"])?;
            asks.questions(name).iter().try_for_each(|question| self.link.send(question))?;
            self.link.send(&[b"EXEC"])?;
        }
        let mut bytes = 0;
        for name in names {
            let answers = self.link.answers(asks.questions(name).len())?;
            bytes += self.write_key(name, answers, to)?;
            to.tell();
        }
        Ok(bytes)
    }

    /// Writes a key, if it exists; returns how long its payload was.
    fn write_key(&self, name: &[u8], mut answers: Vec<Reply>, to: &mut Exporting) -> Result<usize, String> {
        let payload = match answers.pop() {
            Some(Reply::Bulk(payload)) => payload,
            // The key was deleted, or its deadline has passed, since SCAN has found it.
            Some(Reply::Null) => {
                to.summary.gone += 1;
                return Ok(0);
            }
            Some(refused) if refused.is_error() => {
                let why = text_of(&refused);
                let advice = if why.contains("proto-max-bulk-len") { ": export a backup, which has it" } else { "" };
                to.summary.miss(name, &format!("{why}{advice}"));
                return Ok(0);
            }
            _ => return Err(self.link.strange("DUMP")),
        };
        let (deadline_ms, answers) = self.asks.deadline.of(&answers).ok_or_else(|| self.link.strange("PTTL"))?;
        let usage = answers.first().and_then(number_of).zip(self.asks.usage);
        let checked = match Payload::check(&payload) {
            Ok(checked) => checked,
            Err(haypile_rdb::Error { why: Why::Version(version), .. }) => {
                let (place, most) = (&self.link.place, haypile_rdb::VERSION_MAX);
                return Err(format!(
                    "The server {place} writes version {version} of Redis's format; this program knows it up to {most}."
                ));
            }
            Err(error) => {
                to.summary.miss(name, &error.to_string());
                return Ok(payload.len());
            }
        };
        let kind = checked.kind().ok();
        let key = Key {
            name,
            // The payload decides about the kind.
            kind: kind.unwrap_or(Kind::String),
            deadline_ms,
            idle_s: usage.filter(|(idle, usage)| *usage == Usage::IdleTime && *idle > 0).map(|(idle, _)| idle),
            frequency: usage
                .filter(|(_, usage)| *usage == Usage::Frequency)
                .and_then(|(frequency, _)| u8::try_from(frequency).ok()),
            position: 0,
        };
        match to.writer.key_of(&key, &checked) {
            Ok(()) => to.summary.add(kind),
            Err(error) if error.kind() == ErrorKind::InvalidData => to.summary.miss(name, &error.to_string()),
            Err(error) => return Err(unwritten(error)),
        }
        Ok(payload.len())
    }
}

impl Asks {
    /// Finds out which questions the server answers: older servers do not know all of them, and a user may lack
    /// permission.
    fn of(link: &mut Link, usage: Usage) -> Result<Asks, String> {
        // Since Redis 7.2, NO-TOUCH keeps the export from counting as a use; older servers refuse it.
        link.try_asking(&[b"CLIENT", b"NO-TOUCH", b"ON"])?;
        let subcommand: &[u8] = if usage == Usage::Frequency { b"FREQ" } else { b"IDLETIME" };
        let used = link.try_asking(&[b"OBJECT", subcommand, b""])?;
        let usage = (!used.is_error() || text_of(&used) == "ERR no such key").then_some(usage);
        let is_known = !link.try_asking(&[b"PEXPIRETIME", b""])?.is_error();
        Ok(Asks { deadline: if is_known { Deadline::Time } else { Deadline::Left }, usage })
    }

    /// Returns the questions about a key; DUMP comes last, because it is a use.
    fn questions<'q>(self, name: &'q [u8]) -> Vec<Vec<&'q [u8]>> {
        let mut questions: Vec<Vec<&'q [u8]>> = match self.usage {
            Some(Usage::IdleTime) => vec![vec![b"OBJECT", b"IDLETIME", name]],
            Some(Usage::Frequency) => vec![vec![b"OBJECT", b"FREQ", name]],
            None => Vec::new(),
        };
        match self.deadline {
            Deadline::Time => questions.push(vec![b"PEXPIRETIME", name]),
            Deadline::Left => questions.extend([vec![&b"TIME"[..]], vec![b"PTTL", name]]),
        }
        questions.push(vec![b"DUMP", name]);
        questions
    }
}

impl Deadline {
    /// Returns the deadline that the last answers say, and the answers before; `None` if they make no sense.
    fn of(self, answers: &[Reply]) -> Option<(Option<u64>, &[Reply])> {
        let (last, before) = answers.split_last()?;
        // -1: there is no deadline. A key that does not exist has no value either.
        let deadline = number_of(last);
        let Deadline::Left = self else { return Some((deadline, before)) };
        let (time, before) = before.split_last()?;
        let now_ms = time_ms(time)?;
        Some((deadline.map(|left| now_ms.saturating_add(left)), before))
    }
}

impl Database {
    /// Parses `db0:keys=4,expires=1,avg_ttl=0`.
    fn parse(line: &str) -> Option<Database> {
        let (number, counts) = line.trim_end().strip_prefix("db")?.split_once(":keys=")?;
        let mut counts = counts.split(',');
        let keys = counts.next()?.parse().ok()?;
        let deadlines = counts.find_map(|count| count.strip_prefix("expires=")).and_then(|count| count.parse().ok());
        Some(Database { number: number.parse().ok()?, keys, deadlines: deadlines.unwrap_or(0) })
    }
}

/// Names that were seen, by a hash of 128 bits with secret keys: that two of a trillion names share one is less likely
/// than a failure of the memory they lie in. Takes 17 to 35 bytes a name.
#[derive(Default)]
struct Seen {
    keys: [RandomState; 2],
    hashes: HashSet<u128>,
}

impl Seen {
    /// Adds a name; returns whether it was not seen before.
    fn insert(&mut self, name: &[u8]) -> bool {
        let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one(name)));
        self.hashes.insert(high << 64 | low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_read_from_info() {
        let database = |number, keys, deadlines| Some(Database { number, keys, deadlines });
        for (line, expected) in [
            ("db0:keys=4,expires=1,avg_ttl=0", database(0, 4, 1)),
            ("db15:keys=7,expires=0,avg_ttl=0,subexpiry=2\r", database(15, 7, 0)),
            ("db0", None),
            ("dbsize:4", None),
            ("redis_version:7.0.15", None),
        ] {
            assert_eq!(Database::parse(line), expected, "{line}");
        }
    }

    #[test]
    fn a_deadline_is_what_is_left_from_now() {
        let time = || Reply::Array(vec![Reply::bulk("1000"), Reply::bulk("2999")]);
        let left = |left| Deadline::Left.of(&[time(), Reply::Integer(left)]).map(|(deadline, _)| deadline);
        assert_eq!(left(500), Some(Some(1_000_502)));
        assert_eq!(left(-1), Some(None));
        assert_eq!(Deadline::Left.of(&[Reply::Integer(1)]), None);
        let (deadline, before) = Deadline::Time.of(&[Reply::Integer(7), Reply::Integer(9)]).unwrap();
        assert_eq!((deadline, before), (Some(9), &[Reply::Integer(7)][..]));
    }

    #[test]
    fn a_name_is_new_once() {
        let mut seen = Seen::default();
        for round in 0..2 {
            for n in 0..10_000 {
                assert_eq!(seen.insert(format!("key{n}").as_bytes()), round == 0);
            }
        }
    }
}
