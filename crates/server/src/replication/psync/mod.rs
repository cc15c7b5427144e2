//! A replica of a Redis: this server speaks to its master as a Redis would that follows it, with PSYNC.
//!
//! The commands of the master run in a session (`haypile_engine::Repeater`), so that records of this server's own come
//! of them: it can have replicas itself, and backups. Where in the master's stream its data stand is a row among them
//! (`haypile_store::Origin`), written with each command's effects, and alone where many commands had none. From there
//! it goes on, after a break and after a crash, for as long as the master's backlog reaches; else the master's data are
//! loaded anew (`load`). So they are where the master runs a script that is not here (`scripts`).

mod handshake;
mod load;
mod payload;
mod received;
mod request;
mod scripts;
mod selection;
#[cfg(test)]
mod testing;

use crate::remote::Remote;
use crate::replication::attempt::Attempt;
use crate::replication::state::Registered;
use crate::socket::Socket;
use crate::stream::peer_of;
use haypile_config::Selection;
use haypile_engine::{Engine, Link, Repeater, Repetition, Stopped};
use haypile_replication::psync::Answer;
use haypile_store::{Origin, Store};
use received::Received;
use std::cell::Cell;
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 256 << 10;

/// The time between looks whether the master is wanted still, while nothing comes.
const LOOK: Duration = Duration::from_millis(100);

/// The time between words to the master, which counts replicas that say nothing as gone.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);

/// Bytes of the stream after which the row of the origin is written although no command had an effect: the smallest
/// backlog that a Redis can have is 16 KiB, and such a record takes about a hundred bytes.
const NOTE_BYTES: u64 = 4 << 10;

/// The pause before a command is tried again that the store has no room for.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// The thread's place in the engine, and where the data stand.
#[derive(Default)]
pub struct Psync {
    repeater: Option<Repeater>,
    /// Further than the row of the origin, by commands that have changed nothing: in the store of this version.
    newest: Option<(u64, Origin)>,
    /// The last load has failed because its data cannot be held here.
    failed_load: bool,
    /// The scripts for which all data were asked for.
    asked: scripts::Asked,
}

impl Psync {
    /// Follows a Redis until the connection breaks, or the master is another one.
    ///
    /// # Errors
    /// The connection broke, a command was refused, or the master's data cannot be taken.
    pub fn follow(&mut self, attempt: &Attempt<'_>, mut remote: Remote, _registered: Registered<'_>) -> io::Result<()> {
        let engine = &attempt.replication.engine;
        let selection = &engine.settings.config().replication.selection.clone();
        let origin = if attempt.wants_copy() { None } else { self.origin(engine, selection)? };
        load::check(&engine.settings.config())?;
        let answer = handshake::ask(attempt, &mut remote, origin.as_ref())?;
        let (socket, read) = remote.into_parts();
        let (origin, read) = match answer {
            Answer::Continue { stream } => {
                let origin = origin.ok_or_else(|| invalid("it goes on where nothing has begun"))?;
                engine.repeat_commands().map_err(Error::other)?;
                (Origin { stream: stream.unwrap_or(origin.stream), ..origin }, read)
            }
            Answer::Load { stream, .. } if attempt.replication.is_own_stream(&*store_of(engine)?, &stream) => {
                // Each attempt costs the master a process of its own.
                self.failed_load = true;
                let why = "it follows this server, directly or by way of others, and has nothing else: a circle";
                return Err(Error::new(ErrorKind::Unsupported, why));
            }
            Answer::Load { stream, offset } => {
                let origin = Origin { stream, offset, database: 0 };
                // The data that are here go with the load: they are no part of that stream.
                self.newest = None;
                let loaded = load::run(attempt, &socket, read, origin, selection);
                let is_of_kind = |kind| loaded.as_ref().is_err_and(|error: &Error| error.kind() == kind);
                let has_no_room = is_of_kind(ErrorKind::StorageFull);
                self.failed_load = has_no_room || is_of_kind(ErrorKind::Unsupported);
                let was_for_scripts = match has_no_room {
                    true => self.asked.put_off_load(attempt.version),
                    false => (loaded.is_ok() || self.failed_load) && self.asked.end_load(attempt.version),
                };
                // Where the data cannot be held, the stream goes on, as far as it does without the scripts.
                if loaded.is_ok() || was_for_scripts {
                    attempt.forgo_copy();
                }
                let (origin, read) = loaded?;
                engine.repeat_commands().map_err(Error::other)?;
                (origin, read)
            }
        };
        tracing::info!("the commands of the master come, from byte {} on", origin.offset);
        let repeater = self.repeater.get_or_insert_with(|| Repeater::new(engine.clone()));
        let mut commands = Commands::new(attempt, repeater, &mut self.asked, (socket, read), origin, selection);
        let ended = commands.run();
        self.newest = Some((commands.version, commands.end()));
        ended
    }

    /// Returns whether a load has failed since the last time.
    pub fn take_failed_load(&mut self) -> bool {
        std::mem::take(&mut self.failed_load)
    }

    /// Returns how far in a master's stream the data are, if they come from one and are the keys that are to be taken.
    fn origin(&self, engine: &Engine, selection: &Selection) -> io::Result<Option<Origin>> {
        let version = engine.store_version();
        let store = engine.store_arc().ok_or_else(|| Error::other("the data are not open"))?;
        let written = store.origin().map_err(Error::other)?;
        if written.is_some() && !selection::has_taken(&store, selection) {
            tracing::info!("the data of the master come anew: of its keys those of {selection} are taken from now on");
            return Ok(None);
        }
        let newest = self
            .newest
            .filter(|(of, newest)| *of == version && written.is_some_and(|written| written.offset <= newest.offset));
        Ok(newest.map_or(written, |(_, newest)| Some(newest)))
    }
}

/// The commands that come over a connection.
struct Commands<'a> {
    attempt: &'a Attempt<'a>,
    repeater: &'a mut Repeater,
    asked: &'a mut scripts::Asked,
    /// The session; there is none while a command waits for room.
    repetition: Option<Repetition>,
    socket: Socket,
    /// The position through which all commands have ended.
    origin: Origin,
    /// The keys that are taken.
    selection: &'a Selection,
    /// The offset at which the row of the origin was looked at last.
    noted: u64,
    /// Bytes of the stream from the origin on.
    received: Received,
    /// Bytes that are received at once.
    piece: Box<[u8]>,
    heard: Instant,
    acknowledged: Cell<Instant>,
    /// The version of the store that the commands run on.
    version: u64,
    /// Whether the log of the server was told that a command waits for room.
    is_held: bool,
}

impl<'a> Commands<'a> {
    fn new(
        attempt: &'a Attempt<'a>,
        repeater: &'a mut Repeater,
        asked: &'a mut scripts::Asked,
        (socket, read): (Socket, Vec<u8>),
        origin: Origin,
        selection: &'a Selection,
    ) -> Commands<'a> {
        let now = Instant::now();
        Commands {
            attempt,
            repeater,
            asked,
            repetition: None,
            socket,
            origin,
            selection,
            noted: origin.offset,
            received: Received::new(read),
            piece: vec![0; RECEIVE_BYTES].into(),
            heard: now,
            acknowledged: Cell::new(now),
            version: attempt.replication.engine.store_version(),
            is_held: false,
        }
    }

    fn run(&mut self) -> io::Result<()> {
        self.socket.set_read_timeout(Some(LOOK))?;
        self.acknowledge()?;
        self.attempt.note(|upstream| upstream.link = Link::Connected);
        let timeout = self.attempt.replication.timeout();
        while self.attempt.goes_on() {
            if self.attempt.replication.engine.store_version() != self.version {
                return Err(Error::other("the data were opened again"));
            }
            self.repeat()?;
            self.note_origin();
            let is_asked = self.repetition.as_ref().is_some_and(Repetition::take_question);
            if is_asked || self.acknowledged.get().elapsed() >= ACKNOWLEDGE {
                self.acknowledge()?;
            }
            self.tell();
            self.attempt.replication.tidy_when_due();
            if self.is_held {
                self.attempt.wait(ROOM_PAUSE);
            } else if !self.receive()? && self.heard.elapsed() > timeout {
                return Err(Error::new(ErrorKind::TimedOut, "it says nothing any more"));
            }
        }
        Ok(())
    }

    /// Ends the session; returns how far all commands have taken effect.
    fn end(&mut self) -> Origin {
        if let Some(repetition) = self.repetition.take() {
            self.repeater.end(repetition);
        }
        if let Err(why) = self.advance_origin(1) {
            match self.attempt.replication.engine_is_closing() {
                true => tracing::debug!("how far the data are in the master's stream is not noted: {why}"),
                false => tracing::warn!("how far the data are in the master's stream cannot be noted: {why}"),
            }
        }
        self.origin
    }

    /// Notes the origin among the data where it has moved on for long by commands that had no effect: else the master's
    /// backlog may not reach back to the last one that had any.
    fn note_origin(&mut self) {
        if self.origin.offset - self.noted >= NOTE_BYTES {
            self.noted = self.origin.offset;
            // A write that fails is tried again behind as many bytes, and at the end.
            let _ = self.advance_origin(NOTE_BYTES);
        }
    }

    /// Writes the origin among the data, if the one that is there lies so many bytes before it.
    fn advance_origin(&self, bytes: u64) -> Result<(), String> {
        let engine = &self.attempt.replication.engine;
        let Some(store) = engine.store_arc() else { return Ok(()) };
        // In this order: the version changes before a new store is in place, and an old one takes nothing.
        if engine.store_version() == self.version {
            store.advance_origin(&self.origin, bytes)?;
            store.log().write();
        }
        Ok(())
    }

    /// Runs all commands that have come as a whole.
    fn repeat(&mut self) -> io::Result<()> {
        let Commands { attempt, repeater, socket, origin, selection, acknowledged, .. } = self;
        let offset = origin.offset;
        let goes_on = || {
            // A command may wait for longer than the master bears silence.
            if acknowledged.get().elapsed() >= ACKNOWLEDGE {
                acknowledged.set(Instant::now());
                // The next read finds out if it fails.
                let _ = say(socket, offset);
            }
            attempt.goes_on()
        };
        let repetition = self.repetition.get_or_insert_with(|| {
            let handle = socket.clone();
            repeater.begin(origin, selection, peer_of(socket.tcp()), move || handle.shutdown())
        });
        let ran = repeater.run(repetition, self.received.rest(), &goes_on);
        let (done, database) = (repetition.done(), repetition.database());
        if let Some(store) = attempt.replication.engine.store() {
            store.log().write();
        }
        let ended = (done - origin.offset) as usize;
        (origin.offset, origin.database) = (done, database);
        self.received.take(*ran.as_ref().unwrap_or(&0), ended);
        match ran {
            Ok(_) => {
                if std::mem::take(&mut self.is_held) {
                    self.attempt.note(|upstream| upstream.held = None);
                }
                Ok(())
            }
            Err(why) => self.stop(why),
        }
    }

    /// Ends the session, of which the commands behind the origin have had no effect. Where one of them waits for room,
    /// it is tried again.
    fn stop(&mut self, why: Stopped) -> io::Result<()> {
        if let Some(repetition) = self.repetition.take() {
            self.repeater.end(repetition);
        }
        self.received.begin_again();
        let engine = &self.attempt.replication.engine;
        match why {
            Stopped::Unwanted => Ok(()),
            Stopped::Malformed => Err(invalid("it has sent what is no command")),
            Stopped::Unable(why) if engine.store().is_some_and(|store| store.refuses_writes()) => {
                if !std::mem::replace(&mut self.is_held, true) {
                    tracing::warn!("a command of the master has to wait: {why}");
                    self.attempt.note(|upstream| upstream.held = Some(why));
                }
                Ok(())
            }
            Stopped::Unable(_) if !self.attempt.goes_on() => Ok(()),
            Stopped::Unable(why) => Err(Error::other(format!("its commands cannot be taken now: {why}"))),
            Stopped::Refused { why, through } if scripts::lacks_script(&why) && self.asks_for_scripts(through) => {
                let words = request::first_words(self.received.all());
                self.attempt.note(|upstream| upstream.wants_copy = true);
                let why = format!("it runs a script that is not known here ({words}): all of its data are loaded anew");
                Err(Error::other(why))
            }
            Stopped::Refused { why, through } => {
                let words = request::first_words(self.received.all());
                let what = format!("what comes behind byte {} of its stream ({words})", self.origin.offset);
                if !engine.settings.config().replication.skips_refused {
                    let why = format!("{what} was refused, and nothing behind it has run: {why}");
                    return Err(Error::new(ErrorKind::Unsupported, why));
                }
                self.skip(through)?;
                tracing::warn!("left out of the master's commands: {what}, which was refused: {why}");
                self.attempt.note(|upstream| upstream.skipped += 1);
                Ok(())
            }
        }
    }

    /// Returns whether a load of all data may bring the scripts of what was refused, and notes that there is to be one.
    fn asks_for_scripts(&mut self, through: u64) -> bool {
        let refused = (through - self.origin.offset) as usize;
        let names = request::script_names(&self.received.all()[..refused]);
        self.asked.note(self.attempt.version, names)
    }

    /// Goes on behind what was refused, in the database that it has selected.
    fn skip(&mut self, through: u64) -> io::Result<()> {
        let databases = self.attempt.replication.engine.settings.config().databases;
        let skipped = (through - self.origin.offset) as usize;
        let database = self.received.skip(skipped).unwrap_or(self.origin.database);
        if database >= databases {
            let why = format!("its stream selects database {database}, and there are {databases}");
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        (self.origin.offset, self.origin.database) = (through, database);
        Ok(())
    }

    /// Receives more bytes; false if none have come for a moment.
    fn receive(&mut self) -> io::Result<bool> {
        match self.socket.read(&mut self.piece) {
            Ok(0) => Err(Error::new(ErrorKind::UnexpectedEof, "the other end has closed the connection")),
            Ok(read) => {
                self.received.add(&self.piece[..read]);
                self.heard = Instant::now();
                Ok(true)
            }
            Err(error) if is_pause(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Says to the master how far its commands have taken effect.
    fn acknowledge(&mut self) -> io::Result<()> {
        self.acknowledged.set(Instant::now());
        say(&self.socket, self.origin.offset)
    }

    /// Has INFO tell how far it is.
    fn tell(&self) {
        let (origin, heard, has_all) = (self.origin, self.heard, self.received.all().is_empty());
        self.attempt.replication.engine.replication.note_upstream(self.attempt.master, |upstream| {
            (upstream.origin, upstream.heard) = (Some(origin), Some(heard));
            if has_all {
                upstream.current = Some(Instant::now());
            }
        });
    }
}

/// Says to a master how far its commands have taken effect.
fn say(socket: &Socket, offset: u64) -> io::Result<()> {
    let (offset, mut words) = (offset.to_string(), Vec::new());
    haypile_resp::write::array_len(&mut words, 3);
    for word in [&b"REPLCONF"[..], b"ACK", offset.as_bytes()] {
        haypile_resp::write::bulk(&mut words, word);
    }
    socket.write_all(&words)
}

/// Returns whether a read has ended because nothing has come in time.
fn is_pause(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

/// Returns the store, for as long as a load takes.
fn store_of(engine: &Engine) -> io::Result<Arc<Store>> {
    engine.store_arc().ok_or_else(|| Error::other("the data are not open"))
}
