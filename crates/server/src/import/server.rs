//! An import into a server, as its client: each value becomes a RESTORE of the very bytes in the file, or of an older
//! form that the server knows.
//!
//! Commands are sent ahead of their replies, within bounds. A value that is too long for one command is made element by
//! element (`long`). The server decides about a key as a whole, so each is there whole or not at all.

use super::long::{Long, Outcome};
use super::progress::Progress;
use super::tally::{DEADLINE_OF_MEMBER, Tally};
use super::{Ended, Target};
use crate::remote::{Remote, leader_in};
use haypile_config::cli::Server as Place;
use haypile_rdb::{Event, Failure, Kind, Part, Payload, Sink, StreamHead, Tape};
use haypile_resp::Reply;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest wait for one reply: the server may be loading a value of many megabytes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Commands without a reply yet, and bytes of them.
const AHEAD_COMMANDS: usize = 512;
const AHEAD_BYTES: usize = 8 << 20;

/// Longer values are made element by element: they would be held three times on the way.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// The longest argument that Redis takes, unless it says otherwise.
const BULK_BYTES_MAX: usize = 512 << 20;

/// Parts of one value between two looks at the clock.
const TELL_PARTS: u64 = 4096;

/// Servers that may each name another one as their group's leader.
const LEADERS_MAX: usize = 4;

pub struct Server {
    link: Link,
    keep: bool,
    /// Whether the server does not know the forms that came with Redis 7.2.
    is_before_7_2: bool,
    payload_bytes_max: usize,
    tape: Tape,
    /// The name of the key that is being read.
    name: Vec<u8>,
    about: About,
    state: State,
    progress: Progress,
}

/// The facts that precede a key's value in the file.
struct About {
    kind: Kind,
    deadline_ms: Option<u64>,
    idle_s: Option<u64>,
    frequency: Option<u8>,
    /// Parts that were handed over.
    parts: u64,
}

/// The treatment of the key that is being read.
enum State {
    Skipped,
    Recorded,
    Long(Box<Long>),
}

/// The connection, and the commands under way on it.
pub struct Link {
    remote: Remote,
    place: String,
    database: u64,
    under_way: VecDeque<Sent>,
    bytes: usize,
    is_broken: bool,
    pub tally: Tally,
}

/// A command that has no reply yet.
struct Sent {
    bytes: usize,
    what: What,
}

enum What {
    Restore {
        database: u64,
        kind: Kind,
        name: Box<[u8]>,
    },
    /// A part of a long value.
    Step {
        name: Box<[u8]>,
    },
}

impl Server {
    /// Connects, and logs in: at the leader of a group, whichever member is named.
    ///
    /// # Errors
    /// A text for people.
    pub fn connect(place: &Place, keep: bool, progress: Progress) -> Result<(Server, Tape), String> {
        let mut place = place.clone();
        for _ in 0..LEADERS_MAX {
            let (remote, elsewhere) = log_in(&place)?;
            let Some((host, port)) = elsewhere else { return Ok(Server::of(remote, &place, keep, progress)) };
            (place.host, place.port) = (host, port);
        }
        Err(format!("The group of {}:{} is electing a leader: try again.", place.host, place.port))
    }

    fn of(mut remote: Remote, place: &Place, keep: bool, progress: Progress) -> (Server, Tape) {
        let shown = format!("{}:{}", place.host, place.port);
        let mut asked = |words: &[&[u8]]| remote.call(words).ok();
        // A server that does not say has the default.
        let bulk_bytes = asked(&[b"CONFIG", b"GET", b"proto-max-bulk-len"]).and_then(|reply| number_in(&reply));
        let payload_bytes_max = bulk_bytes.unwrap_or(BULK_BYTES_MAX).min(PAYLOAD_BYTES_MAX);
        // The version is asked beforehand: a refusal comes when hundreds of values are under way, and does not say
        // whether the form is too new or the payload damaged. A user who may not ask sends the forms of the file.
        let version = asked(&[b"INFO", b"server"]).and_then(|reply| version_in(&reply));
        let tape = Tape::new(payload_bytes_max);
        let (under_way, tally) = (VecDeque::new(), Tally::new());
        let server = Server {
            link: Link { remote, place: shown, database: 0, under_way, bytes: 0, is_broken: false, tally },
            keep,
            is_before_7_2: version.is_some_and(|version| version < (7, 2)),
            payload_bytes_max,
            tape: tape.clone(),
            name: Vec::new(),
            about: About { kind: Kind::String, deadline_ms: None, idle_s: None, frequency: None, parts: 0 },
            state: State::Skipped,
            progress,
        };
        (server, tape)
    }

    fn on_key(&mut self, key: haypile_rdb::Key<'_>) {
        let haypile_rdb::Key { name, kind, deadline_ms, idle_s, frequency, .. } = key;
        self.name.clear();
        self.name.extend_from_slice(name);
        self.about = About { kind, deadline_ms, idle_s, frequency, parts: 0 };
        self.state = State::Recorded;
        if deadline_ms.is_some_and(|deadline| deadline < now_ms()) {
            self.link.tally.expired += 1;
            self.state = State::Skipped;
        }
    }

    fn on_part(&mut self, part: Part<'_>) -> Result<(), Ended> {
        if matches!(self.state, State::Recorded) && self.tape.is_long() {
            self.begin_long()?;
        }
        if let State::Long(long) = &mut self.state {
            long.take(&mut self.link, part)?;
        }
        self.about.parts += 1;
        if self.about.parts.is_multiple_of(TELL_PARTS) {
            self.progress.tell(self.link.tally.passed());
        }
        Ok(())
    }

    /// Sends the value part by part from here on; those that were read already come first.
    fn begin_long(&mut self) -> Result<(), Ended> {
        let beginning = self.tape.take_beginning();
        if self.keep && self.link.call(&[b"EXISTS", &self.name])? == Reply::Integer(1) {
            self.link.tally.kept += 1;
            self.state = State::Skipped;
            return Ok(());
        }
        let mut long = Box::new(Long::new(&self.name, self.about.kind));
        let mut left = self.about.parts;
        let mut failed = Ok(());
        // The file has the parts behind these, and the beginning has no end.
        let _ = beginning.payload().read(|part| {
            if left == 0 {
                return Err(());
            }
            left -= 1;
            failed = long.take(&mut self.link, part);
            if failed.is_ok() { Ok(()) } else { Err(()) }
        });
        // A key that could not be made is removed as well when the import ends.
        self.state = State::Long(long);
        failed
    }

    fn on_end(&mut self, elements: u64) -> Result<(), Ended> {
        if matches!(self.state, State::Recorded) && self.tape.is_long() {
            self.begin_long()?;
        }
        match std::mem::replace(&mut self.state, State::Skipped) {
            State::Skipped => {}
            State::Recorded if elements == 0 => self.link.tally.empty += 1,
            State::Recorded => self.restore(elements)?,
            State::Long(long) => self.finish(long, elements)?,
        }
        self.progress.tell(self.link.tally.passed());
        Ok(())
    }

    fn finish(&mut self, long: Box<Long>, elements: u64) -> Result<(), Ended> {
        let About { kind, deadline_ms, .. } = self.about;
        match long.finish(&mut self.link, elements, deadline_ms, self.keep)? {
            Outcome::Named => self.link.tally.add(self.link.database, kind, 1),
            Outcome::Kept => self.link.tally.kept += 1,
            Outcome::Expired => self.link.tally.expired += 1,
        }
        Ok(())
    }

    fn restore(&mut self, elements: u64) -> Result<(), Ended> {
        let tape = self.tape.clone();
        let payload = tape.seal().expect("what is not long is whole at its end");
        if !self.is_before_7_2 {
            return self.restore_payload(&payload);
        }
        let recorded = Payload::unchecked(&payload);
        match recorded.for_redis_7_0(self.payload_bytes_max) {
            Ok(other) => self.restore_payload(other.as_deref().unwrap_or(&payload)),
            // The older form takes more bytes, and there are more now than go in one command.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let mut long = Box::new(Long::new(&self.name, self.about.kind));
                let taken = recorded.read(|part| long.take(&mut self.link, part));
                if taken.is_ok() {
                    return self.finish(long, elements);
                }
                // The unfinished key is removed when the import ends.
                self.state = State::Long(long);
                taken.map(drop).map_err(|failure| match failure {
                    Failure::Sink(ended) => ended,
                    Failure::Input(error) => Ended::Input(error),
                })
            }
            Err(error) => unreachable!("it was read from the file before: {error}"),
        }
    }

    fn restore_payload(&mut self, payload: &[u8]) -> Result<(), Ended> {
        let About { kind, deadline_ms, idle_s, frequency, .. } = self.about;
        let [deadline, idle] = [deadline_ms, idle_s].map(|number| number.unwrap_or(0).to_string());
        let frequency = frequency.map(|frequency| frequency.to_string());
        let mut words: Vec<&[u8]> = vec![b"RESTORE", &self.name, deadline.as_bytes()];
        words.extend([payload, b"ABSTTL"]);
        if !self.keep {
            words.push(b"REPLACE");
        }
        match &frequency {
            Some(frequency) => words.extend([&b"FREQ"[..], frequency.as_bytes()]),
            None if idle_s.is_some() => words.extend([&b"IDLETIME"[..], idle.as_bytes()]),
            None => {}
        }
        let (database, name) = (self.link.database, self.name.as_slice().into());
        self.link.send(&words, What::Restore { database, kind, name })
    }
}

impl Server {
    /// Loads a library. A server that does not take it goes on without: it may have no functions.
    fn on_function(&mut self, code: &[u8]) -> Result<(), Ended> {
        let words: [&[u8]; 4] = [b"FUNCTION", b"LOAD", b"REPLACE", code];
        let reply = match self.keep {
            true => self.link.call(&[&words[..2], &words[3..]].concat())?,
            false => self.link.call(&words)?,
        };
        let tally = &mut self.link.tally;
        match reply.is_error() {
            false => tally.libraries += 1,
            true if self.keep && text_of(&reply).starts_with("ERR Library") => tally.kept_libraries += 1,
            true => tally.skip_function(code),
        }
        Ok(())
    }
}

impl Link {
    /// Sends a command that makes a part of a long value.
    pub fn step(&mut self, name: &[u8], words: &[&[u8]]) -> Result<(), Ended> {
        self.send(words, What::Step { name: name.into() })
    }

    fn send(&mut self, words: &[&[u8]], what: What) -> Result<(), Ended> {
        let bytes = words.iter().map(|word| word.len()).sum();
        while self.under_way.len() >= AHEAD_COMMANDS || self.bytes + bytes > AHEAD_BYTES && !self.under_way.is_empty() {
            self.receive()?;
        }
        self.remote.send(words).map_err(|error| self.broken(&error))?;
        self.bytes += bytes;
        self.under_way.push_back(Sent { bytes, what });
        Ok(())
    }

    /// Takes the reply to the oldest command.
    fn receive(&mut self) -> Result<(), Ended> {
        let reply = self.remote.receive().map_err(|error| self.broken(&error))?;
        let Some(Sent { bytes, what }) = self.under_way.pop_front() else { unreachable!("a reply has a command") };
        self.bytes -= bytes;
        match what {
            What::Restore { database, kind, .. } if !reply.is_error() => self.tally.add(database, kind, 1),
            What::Restore { .. } if text_of(&reply).starts_with("BUSYKEY") => self.tally.kept += 1,
            _ if !reply.is_error() => {}
            What::Restore { name, .. } | What::Step { name } => return Err(self.refuses(&name, &reply)),
        }
        Ok(())
    }

    pub fn refuses(&self, name: &[u8], reply: &Reply) -> Ended {
        let (said, name) = (text_of(reply), &name[..name.len().min(128)]);
        let why = match said.contains("version or checksum") || said.contains("Bad data format") {
            true => " It may be older than the one that wrote the file.",
            false => "",
        };
        Ended::Refused(format!("The server {} does not take key \"{}\": {said}.{why}", self.place, name.escape_ascii()))
    }

    fn broken(&mut self, error: &io::Error) -> Ended {
        self.is_broken = true;
        Ended::Refused(format!("The connection to the server {} is broken: {error}.", self.place))
    }

    /// Selects a database and waits for the reply: later keys must not go into another database.
    fn select(&mut self, number: u64) -> Result<(), Ended> {
        let reply = self.call(&[b"SELECT", number.to_string().as_bytes()])?;
        if reply.is_error() {
            let needed = number.saturating_add(1);
            return Err(Ended::Refused(format!(
                "The file has keys of database {number}, which the server {} does not take: {}. Set its `databases` to {needed} or \
                 more.",
                self.place,
                text_of(&reply)
            )));
        }
        self.database = number;
        Ok(())
    }

    /// Waits for all replies.
    pub fn settle(&mut self) -> Result<(), Ended> {
        while !self.under_way.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for all replies, whatever they say, as far as the connection goes on.
    fn drain(&mut self) {
        while !self.under_way.is_empty() && !self.is_broken {
            // The first refusal was told already.
            let _ = self.receive();
        }
    }

    /// Sends a command and waits for its reply, when all others have theirs.
    pub fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Ended> {
        self.settle()?;
        self.remote.call(words).map_err(|error| self.broken(&error))
    }
}

impl Sink for Server {
    type Error = Ended;

    fn take(&mut self, event: Event<'_>) -> Result<(), Ended> {
        match event {
            Event::Key(key) => self.on_key(key),
            Event::Part(part) => return self.on_part(part),
            Event::End { elements } => return self.on_end(elements),
            Event::Database(number) => return self.link.select(number),
            Event::Function(code) => return self.on_function(code),
            Event::Module { name, .. } => self.link.tally.skip_module(name),
            Event::Aux { name: DEADLINE_OF_MEMBER, .. } => self.link.tally.skip_deadline(&self.name),
            Event::Aux { .. } | Event::Sizes { .. } => {}
        }
        Ok(())
    }
}

impl Target for Server {
    fn complete(&mut self) -> Result<(), Ended> {
        let settled = self.link.settle();
        self.link.drain();
        if let (State::Long(long), false) = (&self.state, self.link.is_broken) {
            // The key expires by itself as well.
            let _ = long.abandon(&mut self.link);
        }
        self.link.tally.bytes = self.progress.bytes();
        self.progress.end();
        settled
    }

    fn tally(&self) -> &Tally {
        &self.link.tally
    }
}

/// Returns the text of an error reply, or of the reply that came in its place.
pub fn text_of(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => text.to_string(),
        Reply::ErrorBytes(text) => text.escape_ascii().to_string(),
        other => format!("unexpected reply {other:?}"),
    }
}

/// Returns the value in a reply of CONFIG GET.
fn number_in(reply: &Reply) -> Option<usize> {
    let Reply::Array(words) = reply else { return None };
    let Some(Reply::Bulk(value)) = words.get(1) else { return None };
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Returns the first two numbers of the version of Redis that INFO names.
fn version_in(reply: &Reply) -> Option<(u32, u32)> {
    let Reply::Bulk(info) = reply else { return None };
    let line = info.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"redis_version:"))?;
    let mut numbers = std::str::from_utf8(line).ok()?.trim_end().split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Connects, and logs in; returns also where the leader is, if the server is a member of a group that another one
/// leads.
fn log_in(place: &Place) -> Result<(Remote, Option<(String, u16)>), String> {
    let Place { host, port, user, password, .. } = place;
    let shown = format!("{host}:{port}");
    let fails = |error: io::Error| format!("The server {shown} cannot be reached: {error}");
    let mut remote = Remote::connect_to(place, PATIENCE)?.map_err(fails)?;
    let mut asked = |words: &[&[u8]]| match remote.call(words) {
        Ok(reply) if reply.is_error() => Err(format!("The server {shown} refuses: {}", text_of(&reply))),
        Ok(reply) => Ok(reply),
        Err(error) => Err(fails(error)),
    };
    match (user, password) {
        (Some(user), password) => {
            asked(&[b"AUTH", user.as_bytes(), password.as_deref().unwrap_or_default().as_bytes()])?;
        }
        (None, Some(password)) => drop(asked(&[b"AUTH", password.as_bytes()])?),
        (None, None) => {}
    }
    asked(&[b"PING"])?;
    // A user who may not ask is told where a command is refused.
    let leader = asked(&[b"INFO", b"raft"]).ok().and_then(|reply| leader_in(&reply));
    Ok((remote, leader))
}

/// Returns the times and counters of a stream's head, which say more than its entries do.
pub fn head_words(head: &StreamHead) -> [String; 3] {
    let id = |id: haypile_rdb::StreamId| format!("{}-{}", id.ms, id.seq);
    [id(head.last), head.entries_added.to_string(), id(head.max_deleted)]
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_info() {
        let version = |info: &'static str| version_in(&Reply::bulk(info.as_bytes()));
        assert_eq!(version("# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:0\r\n"), Some((7, 0)));
        assert_eq!(version("# Server\r\nserver_name:x\r\nredis_version:7.10\r\n"), Some((7, 10)));
        assert_eq!(version("redis_version:unknown\r\n"), None);
        assert_eq!(version("# Server\r\n"), None);
    }
}
