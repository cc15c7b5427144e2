//! The second kind of case: connections that hear of each other, by messages, keyspace events and MONITOR.
//!
//! A reply is not all that a connection gets here, so a step is compared as a whole: its commands are sent with a PING
//! behind them, then PING is sent on every other connection, and all that comes before the answers belongs to the step.
//! Steps are those of `sequence`, behind the mark [`Step::Channels`]; `cases` makes the sequences, `heard` says what
//! counts as equal.

mod cases;
mod heard;

pub use cases::generate;

use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::play::{Difference, Pair};
use super::sequence::{CONNECTIONS, Command, Sequence, Step};
use crate::client::{Client, Reply};
use crate::quoted::quote_short;
use heard::Hearing;

/// The time after which a reply counts as missing.
const SILENCE: Duration = Duration::from_secs(3);
/// The longest time until the clients of the case before are gone.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// Returns whether a sequence is of this kind.
pub fn is_of_channels(sequence: &[Step]) -> bool {
    sequence.first() == Some(&Step::Channels)
}

/// Plays a sequence from empty servers. An `Err` is a failure of the base or of this program.
pub(super) fn play(pair: &mut Pair, sequence: &Sequence) -> Result<Option<Difference>> {
    prepare(&mut pair.theirs.admin).context("preparing the base")?;
    if let Err(error) = prepare(&mut pair.ours.admin) {
        return Ok(Some(Difference { step: 0, text: format!("before the first step: {error:#}") }));
    }
    let mut theirs = Party::new(pair.theirs.port, sequence)?;
    let mut ours = Party::new(pair.ours.port, sequence)?;
    theirs.wait_known(&mut pair.theirs.admin).context("the base")?;
    ours.wait_known(&mut pair.ours.admin)?;
    for (number, step) in sequence.iter().enumerate() {
        let Step::Send { connection, commands } = step else { continue };
        let sentinel = format!("sentinel:{number}");
        let they_heard = theirs.step(*connection, commands, &sentinel).context("the base")?;
        pair.commands += commands.len() as u64;
        let text = match (they_heard, ours.step(*connection, commands, &sentinel)) {
            (Heard::All(they_heard), Ok(Heard::All(we_heard))) => {
                differ(commands, &theirs.hearing.normal(they_heard, commands), &{
                    ours.hearing.normal(we_heard, commands)
                })
            }
            // As where a subscriber has more to read than `client-output-buffer-limit` allows. The case ends here.
            (Heard::Closed(theirs), Ok(Heard::Closed(ours))) if theirs == ours => return Ok(None),
            (Heard::Closed(theirs), _) => Some(format!("{}: they close connection {theirs}", title(commands))),
            (_, Ok(Heard::Closed(ours))) => Some(format!("{}: we close connection {ours}", title(commands))),
            (_, Err(error)) => Some(format!("{}: {error:#}", title(commands))),
        };
        if let Some(text) = text {
            return Ok(Some(Difference { step: number, text }));
        }
    }
    Ok(None)
}

/// Empties a server, turns its events off, and waits until no client of the case before is subscribed any more.
fn prepare(admin: &mut Client) -> Result<()> {
    for command in [&["CONFIG", "SET", "notify-keyspace-events", ""][..], &["FLUSHALL"]] {
        let reply = admin.call(command)?;
        ensure!(reply.is_ok(), "{command:?} was answered by {reply}");
    }
    let begin = Instant::now();
    loop {
        let patterns = admin.command("PUBSUB NUMPAT")?;
        let channels = [admin.command("PUBSUB CHANNELS")?, admin.command("PUBSUB SHARDCHANNELS")?];
        if patterns.integer() == Some(0) && channels.iter().all(|names| names.elements() == Some(&[])) {
            return Ok(());
        }
        if begin.elapsed() > LEAVE_MAX {
            bail!("somebody is still subscribed: {patterns} {} {}", channels[0], channels[1]);
        }
        sleep(Duration::from_millis(1));
    }
}

/// The outcome of a step on one server.
enum Heard {
    /// The replies that each connection heard.
    All(Vec<Vec<Reply>>),
    /// The connection that the server has closed.
    Closed(usize),
}

/// All connections to one server.
struct Party {
    clients: Vec<Client>,
    hearing: Hearing,
    /// Whether some connection may ask to be told of keys: of those with a prefix it hears behind the replies of the
    /// round, so behind the first answer to a PING.
    may_track: bool,
}

impl Party {
    fn new(port: u16, sequence: &Sequence) -> Result<Party> {
        let clients: Vec<Client> =
            (0..CONNECTIONS).map(|_| Client::connect(port, SILENCE)).collect::<io::Result<_>>()?;
        let ports = clients.iter().map(Client::local_port).collect::<io::Result<_>>()?;
        let tracks = |command: &Command| command.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"tracking"));
        let may_track =
            sequence.iter().any(|step| matches!(step, Step::Send { commands, .. } if commands.iter().any(tracks)));
        Ok(Party { clients, hearing: Hearing { ports }, may_track })
    }

    /// Waits until CLIENT LIST has all connections, which a busy machine may accept late.
    fn wait_known(&self, admin: &mut Client) -> Result<()> {
        let begin = Instant::now();
        loop {
            let list = admin.command("CLIENT LIST")?;
            let list = String::from_utf8_lossy(list.bytes().unwrap_or_default()).into_owned();
            let is_known = |port: &u16| list.contains(&format!(":{port} "));
            if self.hearing.ports.iter().all(is_known) {
                return Ok(());
            }
            ensure!(begin.elapsed() < LEAVE_MAX, "not all connections are there:\n{list}");
            sleep(Duration::from_millis(1));
        }
    }

    /// Sends commands on one connection and returns what each connection hears.
    fn step(&mut self, sender: usize, commands: &[Command], sentinel: &str) -> Result<Heard> {
        let mut heard: Vec<Vec<Reply>> = self.clients.iter().map(|_| Vec::new()).collect();
        commands.iter().for_each(|command| self.clients[sender].push(command));
        // The others are asked one after the other: a client in MONITOR hears of those PINGs, too.
        let others = (0..self.clients.len()).filter(|other| *other != sender);
        for connection in std::iter::once(sender).chain(others) {
            match self.hear(connection, sentinel)? {
                Some(replies) => heard[connection] = replies,
                None => return Ok(Heard::Closed(connection)),
            }
        }
        let may_track = self.may_track;
        for (connection, heard) in heard.iter_mut().enumerate().filter(|_| may_track) {
            match self.hear(connection, "again")? {
                Some(replies) => heard.extend(replies),
                None => return Ok(Heard::Closed(connection)),
            }
        }
        Ok(Heard::All(heard))
    }

    /// Sends the sentinel behind all pending commands, and reads everything up to its answer; `None` if the server
    /// closes the connection instead.
    fn hear(&mut self, connection: usize, sentinel: &str) -> Result<Option<Vec<Reply>>> {
        self.clients[connection].push(&["PING", sentinel]);
        self.clients[connection].flush()?;
        let is_answer = |reply: &Reply| match reply {
            Reply::Array(items) | Reply::Push(items) => {
                matches!(&items[..], [word, text]
                    if word.bytes() == Some(b"pong") && text.bytes() == Some(sentinel.as_bytes()))
            }
            other => other.bytes() == Some(sentinel.as_bytes()),
        };
        let mut heard = Vec::new();
        loop {
            match self.clients[connection].read() {
                Ok(reply) if is_answer(&reply) => return Ok(Some(heard)),
                Ok(reply) => heard.push(reply),
                Err(error) if is_closed(&error) => return Ok(None),
                Err(error) => bail!("connection {connection} heard {} and then {error}", shown(&heard)),
            }
        }
    }
}

/// Whether the other side has closed the connection, with or without unread bytes.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
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
