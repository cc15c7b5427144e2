//! The third kind of case: connections that wait for keys, and others that make them, end their waits, or go.
//!
//! A PING follows the commands of a step. After each step a server is observed until every connection has answered its
//! PINGs or is blocked: the server says how many are blocked, and as many have not answered. All replies that came
//! until then belong to the step, and are compared connection by connection: so a case shows who was served, with what,
//! and when. A server with several threads may say that a client is blocked again before the reply that served it has
//! arrived: ours is observed until it has said what the base has, for as long as a reply may take. Steps are those of
//! `sequence`, behind the mark [`Step::Blocking`]. `{id:N}` in an argument is the id of connection N, a command
//! `{leave}` closes the connection without a word. `cases` makes the sequences.

mod cases;

pub use cases::generate;

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::play::{Difference, Pair};
use super::sequence::{CONNECTIONS, Command, LEAVE, Sequence, Step};
use crate::client::{Client, Reply, info_field};
use crate::quoted::quote_short;

/// The time after which a reply counts as missing.
const SILENCE: Duration = Duration::from_secs(5);
/// The time after which a reply that only one of the servers gave counts as missing on the other.
const PATIENCE: Duration = Duration::from_secs(1);
/// A wait for less than this, in seconds, ends in the step that begins it.
const SHORT_S: f64 = 1.0;

/// Returns whether a sequence is of this kind.
pub fn is_of_blocking(sequence: &[Step]) -> bool {
    sequence.first() == Some(&Step::Blocking)
}

/// Plays a sequence from empty servers. An `Err` is a failure of the base or of this program.
pub(super) fn play(pair: &mut Pair, sequence: &Sequence) -> Result<Option<Difference>> {
    let mut theirs = Party::new(pair.theirs.port).context("preparing the base")?;
    let mut ours = match Party::new(pair.ours.port) {
        Ok(party) => party,
        Err(error) => return Ok(Some(Difference { step: 0, text: format!("before the first step: {error:#}") })),
    };
    for (number, step) in sequence.iter().enumerate() {
        let Step::Send { connection, commands } = step else { continue };
        // Commands behind a blocked one would run beside those of other connections, in any order.
        if theirs.is_blocked(*connection) && !commands.iter().any(|command| command[0] == LEAVE) {
            continue;
        }
        let they_heard =
            theirs.step(*connection, commands, None).with_context(|| format!("the base, step {number}"))?;
        let expected = Expected { heard: &they_heard, blocked: theirs.blocked() };
        pair.commands += commands.len() as u64;
        // The reply to HELLO names the server and is not compared.
        let says_hello = commands.iter().all(|command| command[0].eq_ignore_ascii_case(b"hello"));
        let text = match ours.step(*connection, commands, (!says_hello).then_some(&expected)) {
            Ok(_) if says_hello => None,
            Ok(we_heard) => differ(commands, &they_heard, &we_heard).or_else(|| {
                let (theirs, ours) = (&expected.blocked, ours.blocked());
                (*theirs != ours)
                    .then(|| format!("{}\n  blocked\n  theirs: {theirs:?}\n  ours:   {ours:?}", title(commands)))
            }),
            Err(error) => Some(format!("{}: {error:#}", title(commands))),
        };
        if let Some(text) = text {
            return Ok(Some(Difference { step: number, text }));
        }
    }
    let they_have = theirs.finish().context("the base, at the end")?;
    let text = match ours.finish() {
        Ok(we_have) if we_have == they_have => None,
        Ok(we_have) => Some(format!("what is left\n  theirs: {}\n  ours:   {}", shown(&they_have), shown(&we_have))),
        Err(error) => Some(format!("at the end: {error:#}")),
    };
    Ok(text.map(|text| Difference { step: sequence.len() - 1, text }))
}

/// The replies of the base in a step.
struct Expected<'a> {
    /// The replies by connection.
    heard: &'a [Vec<Reply>],
    blocked: Vec<usize>,
}

/// All connections to one server.
struct Party {
    port: u16,
    /// The client that asks which clients are blocked; never blocked itself.
    admin: Client,
    connections: Vec<Connection>,
    /// The number of PINGs that were sent.
    sentinels: u64,
}

struct Connection {
    client: Client,
    id: i64,
    /// The PINGs that were not answered.
    outstanding: Vec<String>,
}

impl Connection {
    fn new(port: u16) -> Result<Connection> {
        let mut client = Client::connect(port, SILENCE)?;
        let id = client.command("CLIENT ID")?.integer().context("CLIENT ID is a number")?;
        Ok(Connection { client, id, outstanding: Vec::new() })
    }
}

impl Party {
    fn new(port: u16) -> Result<Party> {
        let mut admin = Client::connect(port, SILENCE)?;
        for command in [&["CONFIG", "SET", "notify-keyspace-events", ""][..], &["FLUSHALL"]] {
            let reply = admin.call(command)?;
            ensure!(reply.is_ok(), "{command:?} was answered by {reply}");
        }
        let begin = Instant::now();
        while blocked(&mut admin)? > 0 {
            ensure!(begin.elapsed() < SILENCE, "clients of the case before are still blocked");
        }
        let connections = (0..CONNECTIONS).map(|_| Connection::new(port)).collect::<Result<_>>()?;
        Ok(Party { port, admin, connections, sentinels: 0 })
    }

    fn is_blocked(&self, connection: usize) -> bool {
        !self.connections[connection].outstanding.is_empty()
    }

    fn blocked(&self) -> Vec<usize> {
        (0..CONNECTIONS).filter(|connection| self.is_blocked(*connection)).collect()
    }

    /// Sends commands on one connection and returns what each connection hears.
    fn step(
        &mut self,
        sender: usize,
        commands: &[Command],
        expected: Option<&Expected<'_>>,
    ) -> Result<Vec<Vec<Reply>>> {
        if commands.iter().any(|command| command[0] == LEAVE) {
            self.connections[sender] = Connection::new(self.port)?;
            return self.settle(None, false, expected);
        }
        for command in commands {
            let command: Command = command.iter().map(|word| self.with_ids(word)).collect();
            self.connections[sender].client.push(&command);
        }
        self.sentinels += 1;
        let (sentinel, connection) = (format!("sentinel:{}", self.sentinels), &mut self.connections[sender]);
        connection.client.push(&["PING", &sentinel]);
        // A connection that others have closed is noticed when it is read.
        let _ = connection.client.flush();
        connection.outstanding.push(sentinel);
        let kills = commands.iter().flatten().any(|word| word.eq_ignore_ascii_case(b"kill"));
        self.settle(commands.iter().any(is_short).then_some(sender), kills, expected)
    }

    /// Returns a word with the ids that it names.
    fn with_ids(&self, word: &[u8]) -> Vec<u8> {
        let number = word.strip_prefix(b"{id:").and_then(|rest| rest.strip_suffix(b"}"));
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
        match number.and_then(|number| self.connections.get(number)) {
            Some(connection) => connection.id.to_string().into_bytes(),
            None => word.to_vec(),
        }
    }

    /// Reads until every connection has answered or is blocked (`must_answer` has to answer), until those that were
    /// killed, if any may have been, are closed here too, and until all that is expected has come, as long as it may
    /// come.
    fn settle(
        &mut self,
        must_answer: Option<usize>,
        kills: bool,
        expected: Option<&Expected<'_>>,
    ) -> Result<Vec<Vec<Reply>>> {
        let mut heard: Vec<Vec<Reply>> = self.connections.iter().map(|_| Vec::new()).collect();
        let begin = Instant::now();
        loop {
            for (connection, heard) in self.connections.iter_mut().zip(&mut heard) {
                connection.hear(self.port, heard)?;
            }
            let outstanding = self.blocked().len();
            let owes = must_answer.is_some_and(|number| self.is_blocked(number));
            let is_quiet = !owes && blocked(&mut self.admin)? == outstanding && (!kills || self.all_are_known()?);
            if is_quiet {
                // Replies that are heard now were written before the server said how many are blocked.
                for (connection, heard) in self.connections.iter_mut().zip(&mut heard) {
                    connection.hear(self.port, heard)?;
                }
            }
            let is_quiet = is_quiet && self.blocked().len() == outstanding;
            let is_as_expected =
                expected.is_none_or(|expected| expected.heard == heard && expected.blocked == self.blocked());
            if is_quiet && is_as_expected {
                return Ok(heard);
            }
            if is_quiet && begin.elapsed() > PATIENCE {
                return Ok(heard);
            }
            ensure!(begin.elapsed() < SILENCE, "{outstanding} clients do not answer, and fewer or more are blocked");
        }
    }

    /// Whether the server still has every connection: the end of one that it has killed may be on its way.
    fn all_are_known(&mut self) -> Result<bool> {
        let ids = self.connections.iter().map(|connection| connection.id.to_string());
        let words: Vec<String> = ["CLIENT", "LIST", "ID"].map(String::from).into_iter().chain(ids).collect();
        let list = self.admin.call(&words)?;
        let lines = list.bytes().context("CLIENT LIST")?.iter().filter(|byte| **byte == b'\n').count();
        Ok(lines == CONNECTIONS)
    }

    /// Closes all connections and returns the keys that are left.
    fn finish(mut self) -> Result<Vec<Reply>> {
        self.connections.clear();
        let begin = Instant::now();
        while blocked(&mut self.admin)? > 0 {
            ensure!(begin.elapsed() < SILENCE, "clients that have gone are still blocked");
        }
        let mut left = Vec::new();
        for database in ["0", "1"] {
            self.admin.call(&["SELECT", database])?;
            for stream in cases::streams::STREAMS {
                left.push(self.admin.call(&[&b"XRANGE"[..], stream, b"-", b"+"])?);
                for group in [&b"g"[..], b"h"] {
                    left.push(self.admin.call(&[&b"XPENDING"[..], stream, group])?);
                }
            }
            for key in cases::KEYS {
                left.push(self.admin.call(&[b"TYPE", *key])?);
                left.push(self.admin.call(&[&b"LRANGE"[..], key, b"0", b"-1"])?);
                left.push(self.admin.call(&[&b"ZRANGE"[..], key, b"0", b"-1", b"WITHSCORES"])?);
            }
        }
        self.admin.call(&["SELECT", "0"])?;
        Ok(left)
    }
}

impl Connection {
    /// Takes the replies that have come, and replaces a connection that was closed.
    fn hear(&mut self, port: u16, heard: &mut Vec<Reply>) -> Result<()> {
        loop {
            let reply = match self.client.has_input() {
                Ok(false) => return Ok(()),
                Ok(true) => self.client.read(),
                Err(error) => Err(error),
            };
            match reply {
                Ok(reply) if self.is_answer(&reply) => _ = self.outstanding.remove(0),
                Ok(reply) => heard.push(of_either_version(reply)),
                Err(error) if is_end(&error) => {
                    heard.push(Reply::Simple(b"(closed)".to_vec()));
                    *self = Connection::new(port)?;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_answer(&self, reply: &Reply) -> bool {
        let Some(sentinel) = self.outstanding.first().map(String::as_bytes) else { return false };
        match reply {
            Reply::Array(items) | Reply::Push(items) => {
                matches!(&items[..], [word, text]
                    if word.bytes() == Some(b"pong") && text.bytes() == Some(sentinel))
            }
            other => other.bytes() == Some(sentinel),
        }
    }
}

/// Makes one reply of two versions' for clients that wait for a consumer group when it goes: 7.0 has errors of its own,
/// 7.2 tries the command again, which fails as it always does without the group.
fn of_either_version(reply: Reply) -> Reply {
    let says = |text: &str| reply.error().is_some_and(|error| error.starts_with(text));
    if says("UNBLOCKED the stream key no longer exists") || says("NOGROUP ") {
        return Reply::Error(b"(there is no such group)".to_vec());
    }
    reply
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Returns how many clients a server says are blocked.
fn blocked(admin: &mut Client) -> Result<usize> {
    let info = admin.info("clients")?.context("there is a section clients")?;
    info_field(&info, "blocked_clients").and_then(|count| count.parse().ok()).context("a field blocked_clients")
}

/// Returns whether a command blocks for a short time only.
fn is_short(command: &Command) -> bool {
    let is = |names: &[&[u8]]| names.iter().any(|name| command[0].eq_ignore_ascii_case(name));
    let timeout = if is(&[b"blmpop", b"bzmpop"]) {
        command.get(1)
    } else if is(&[b"xread", b"xreadgroup"]) {
        // The timeout of BLOCK is in milliseconds.
        let at = command.iter().position(|word| word.eq_ignore_ascii_case(b"block"));
        let timeout = at.and_then(|at| std::str::from_utf8(command.get(at + 1)?).ok()?.parse::<u64>().ok());
        return timeout.is_some_and(|ms| ms > 0 && (ms as f64) < SHORT_S * 1000.0);
    } else if is(&[b"blpop", b"brpop", b"blmove", b"brpoplpush", b"bzpopmin", b"bzpopmax"]) {
        command.last()
    } else {
        None
    };
    let Some(text) = timeout.and_then(|text| std::str::from_utf8(text).ok()) else { return false };
    // All timeouts in hexadecimal digits are short.
    text.starts_with("0x") || text.parse().is_ok_and(|seconds: f64| seconds > 0.0 && seconds < SHORT_S)
}

fn title(commands: &[Command]) -> String {
    commands.iter().map(|command| quote_short(command)).collect::<Vec<_>>().join("; ")
}

fn shown(heard: &[Reply]) -> String {
    heard.iter().map(Reply::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns the first difference, in words.
fn differ(commands: &[Command], theirs: &[Vec<Reply>], ours: &[Vec<Reply>]) -> Option<String> {
    let connection = theirs.iter().zip(ours).position(|(a, b)| a != b)?;
    let (theirs, ours) = (shown(&theirs[connection]), shown(&ours[connection]));
    Some(format!("{}\n  heard by connection {connection}\n  theirs: {theirs}\n  ours:   {ours}", title(commands)))
}
