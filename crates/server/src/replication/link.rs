//! A replica's side: the thread that keeps the connection to the master, and applies what comes.
//!
//! One attempt after the other: connect, see who is there, say where the log ends, then take records until the
//! connection breaks, or fetch a copy. Nothing is decided here about histories: the master says how it goes on, and the
//! store refuses what does not come next.

use crate::datadir;
use crate::replication::attempt::{Attempt, look};
use crate::replication::connect::{Other, connect};
use crate::replication::feed::unexpected;
use crate::replication::fetch::Fetch;
use crate::replication::psync::Psync;
use crate::replication::state::Replication;
use crate::replication::tail;
use crate::replication::wire::{Incoming, Outgoing, show};
use crate::socket::Socket;
use haypile_commands::host::ClientType;
use haypile_engine::{Engine, FollowerLocks, Link, Told};
use haypile_log::{History, Index};
use haypile_replication::frame::Frame;
use haypile_replication::resync::Position;
use haypile_replication::{Manifest, Request, Sink};
use haypile_store::{FollowError, KeyEvent, Store, TOGETHER_MAX};
use std::io::{self, Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The pause before the next attempt: after the first failure, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pause after a load of a Redis's data that cannot be held: each costs the master a process of its own.
const LOAD_PAUSE: Duration = Duration::from_secs(15);

/// The time between looks whether there is something to acknowledge although nothing has come.
const LOOK: Duration = Duration::from_millis(100);

/// The directives of a selection.
const SELECTING: &str = "`replicaof-databases` and `replicaof-slots`";

/// The longest time between acknowledgements: a master counts replicas that say nothing as gone.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);

/// The pause before a record is offered again that the store has no room for.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// The difference of two clocks from which on it is told.
const SKEW_MS_MAX: i64 = 10_000;

/// Follows masters, one after the other, and leads where there is none; to the end of the server.
pub fn run(replication: &Replication) {
    let (mut pause, mut psync) = (PAUSE_MIN, Psync::default());
    // The version of the master that turned out to be in a history that the data have left.
    let mut elsewhere = None;
    // The version of the master of which it was said that the selection is not for it.
    let mut whole = None;
    while !replication.engine_is_closing() {
        let (master, version) = replication.wanted();
        if replication.engine.group.is_member() {
            // The group says whose records the data follow.
            replication.wait_for_change(version, Duration::from_secs(1));
            continue;
        }
        let Some(master) = master else {
            if let Err(why) = replication.engine.lead() {
                tracing::error!("the data cannot lead yet: {why}");
                replication.wait_for_change(version, PAUSE_MAX);
            } else {
                replication.wait_for_change(version, Duration::from_secs(1));
            }
            replication.tidy();
            replication.engine.look_at_replicas();
            replication.engine.look_at_link();
            pause = PAUSE_MIN;
            continue;
        };
        let (asks_plainly, is_elsewhere) = (elsewhere == Some(version), AtomicBool::new(false));
        let attempt = Attempt { replication, master: &master, version, asks_plainly, is_elsewhere };
        let before = attempt.last();
        let ended = attempt.run(&mut psync, &mut whole);
        // However the connection has ended, no record waits for room any more.
        attempt.note(|upstream| upstream.held = None);
        if attempt.is_elsewhere.load(Ordering::Relaxed) {
            elsewhere = Some(version);
        } else if ended.is_ok() {
            elsewhere = None;
        }
        // Without an error a copy is in place, behind which the next attempt goes on; or the master is another one.
        if let Err(error) = ended
            && attempt.goes_on()
        {
            let why = error.to_string();
            // A command that is refused now will hardly be taken the next moment.
            if error.kind() != ErrorKind::Unsupported && was_of_use(attempt.stood(), attempt.last() > before) {
                pause = PAUSE_MIN;
            }
            tracing::warn!("the master {}:{}: {why}", master.host, master.port);
            attempt.note(|upstream| upstream.link = Link::Connect(Some(why)));
            let after_load = psync.take_failed_load().then_some(LOAD_PAUSE);
            replication.wait_for_change(version, after_load.unwrap_or(pause));
            pause = (2 * pause).min(PAUSE_MAX);
        }
        replication.tidy();
    }
}

/// Returns whether a connection that has ended, and over which records came for so long, was of use: only then the next
/// attempt has a better chance than this one had.
fn was_of_use(stood: Option<Duration>, has_risen: bool) -> bool {
    stood.is_some_and(|stood| has_risen || stood > PAUSE_MAX)
}

impl Attempt<'_> {
    fn run(&self, psync: &mut Psync, whole: &mut Option<u64>) -> io::Result<()> {
        let engine = &*self.replication.engine;
        let (mut remote, registered, other) = connect(self.replication, self.master, self.version)?;
        self.note(|upstream| (upstream.link, upstream.heard) = (Link::Handshake, Some(Instant::now())));
        if other == Other::Redis {
            return psync.follow(self, remote, registered);
        }
        if !engine.settings.config().replication.selection.is_all() && whole.replace(self.version) != Some(self.version)
        {
            tracing::warn!("the master is a Haypile, which is followed as a whole: {SELECTING} are for a Redis");
        }
        engine.follow_master().map_err(Error::other)?;
        let at = {
            let store = engine.store().ok_or_else(|| Error::other("the data are not open"))?;
            self.replication.end_restored(&store)?;
            match self.wants_copy() {
                // The position of a server that has nothing.
                true => Position { history: History([0; 20]), index: Index(0) },
                false => self.position(&store),
            }
        };
        let config = engine.settings.config();
        let port = self.announced_port(&config);
        let address = Some(config.replication.announce_ip.clone()).filter(|address| !address.is_empty());
        let words = Request::Follow { port, address, at }.words();
        let words: Vec<&[u8]> =
            std::iter::once(&b"REPLCONF"[..]).chain(words.iter().map(|word| word.as_bytes())).collect();
        remote.send(&words)?;
        remote.flush()?;
        let (stream, read) = remote.into_parts();
        self.take(stream, read, at.history)
    }

    /// Returns where the data stand, as the master is told.
    fn position(&self, store: &Store) -> Position {
        let (history, index) = (store.history(), store.log().last());
        let oldest = Position::oldest(&store.log().histories(), index).filter(|_| !self.asks_plainly);
        oldest.unwrap_or(Position { history, index })
    }

    /// Takes the master's answer, and what follows; `asked` is the history in which this server said to stand.
    fn take(&self, stream: Socket, read: Vec<u8>, asked: History) -> io::Result<()> {
        let _shown = show(&self.replication.engine, ClientType::Master, &Arc::default(), &stream);
        stream.set_read_timeout(Some(self.replication.timeout()))?;
        let mut incoming = Incoming::new(stream.clone(), read);
        let out = Outgoing::new(stream.clone());
        loop {
            while let Some(frame) = incoming.next()? {
                self.note(|upstream| upstream.heard = Some(Instant::now()));
                match frame {
                    Frame::Continue => {
                        stream.set_read_timeout(Some(LOOK))?;
                        return Records::new(self, incoming, out, asked).run();
                    }
                    Frame::Copy { shared, manifest } => {
                        let manifest =
                            Manifest::decode(manifest).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
                        return self.fetch(&manifest, shared);
                    }
                    Frame::Heartbeat { .. } => {}
                    Frame::Refused(why) => return Err(Error::other(format!("it says: {why}"))),
                    other => return Err(unexpected(&other)),
                }
            }
            if incoming.silence() > self.replication.timeout() || !incoming.receive()? {
                return Err(Error::new(ErrorKind::TimedOut, "it does not answer"));
            }
        }
    }

    /// Fetches a copy and puts it in place of the data. The next attempt goes on from there.
    fn fetch(&self, manifest: &Manifest, shared: Index) -> io::Result<()> {
        let (files, bytes) = (manifest.files.len(), manifest.bytes());
        tracing::info!("fetching a copy of the master's data: {files} files, {bytes} bytes");
        let since = Instant::now();
        let engine = &*self.replication.engine;
        let dir = engine.settings.config().dir.clone();
        datadir::check_exchange(&dir).map_err(Error::other)?;
        Fetch::new(self.replication, self.master, self.version, manifest).run(&|| self.goes_on())?;
        let incoming = datadir::incoming_dir(&dir);
        let looked = look(&incoming).and_then(|looked| match looked.end.last {
            last if last == manifest.index => Ok(looked),
            last => Err(format!("its last record is {last}, and not {}", manifest.index)),
        });
        let looked = match looked {
            Ok(looked) => looked,
            Err(why) => {
                // No file of the copy is kept for the next attempt.
                std::fs::remove_dir_all(&incoming)?;
                return Err(Error::new(ErrorKind::InvalidData, format!("its copy cannot be used: {why}")));
            }
        };
        if let Some(store) = engine.store_arc() {
            tail::keep(&store, &looked, shared, &dir, &|| self.goes_on()).map_err(Error::other)?;
        }
        let mut put = Ok(());
        let installed = engine.put_copy(&mut || {
            // Until the copy is marked, the data are what they were: they are opened again then.
            put = match self.goes_on() {
                true => datadir::mark_incoming(&dir)?,
                false => Err("the master is another one by now".into()),
            };
            if put.is_ok() { datadir::adopt_incoming(&dir).map(drop) } else { Ok(()) }
        });
        installed.and(put).map_err(Error::other)?;
        self.forgo_copy();
        tracing::info!(
            "the copy is in place after {:.1} s: all through record {}",
            since.elapsed().as_secs_f64(),
            manifest.index
        );
        Ok(())
    }
}

/// The records of a connection.
struct Records<'a> {
    attempt: &'a Attempt<'a>,
    incoming: Incoming,
    acknowledger: Acknowledger,
    /// The history that the master goes on in: the one in which this server said to stand, then those that it names.
    named: History,
    /// The named history, since the first record of it.
    history: Option<History>,
    /// Messages that had no room on their way to clients, since that was told.
    unheard: u64,
    /// Whether the log of the server was told that the clocks differ.
    skewed: bool,
}

impl<'a> Records<'a> {
    fn new(attempt: &'a Attempt<'a>, incoming: Incoming, out: Outgoing, asked: History) -> Records<'a> {
        let acknowledger = Acknowledger { out, last: None, classes: None };
        Records { attempt, incoming, acknowledger, named: asked, history: None, unheard: 0, skewed: false }
    }

    /// Checks that the first record of the history that the master goes on in belongs behind these data.
    fn check_first(attempt: &Attempt<'_>, named: History, at: &Place) -> io::Result<History> {
        let history = at.store.history();
        if named != history {
            // The master has not left that history: only a copy leads back to it.
            attempt.is_elsewhere.store(true, Ordering::Relaxed);
            let why = format!("it goes on in history {named}, which these data have left for {history}");
            return Err(Error::other(why));
        }
        Ok(history)
    }

    fn run(mut self) -> io::Result<()> {
        let replication = self.attempt.replication;
        self.attempt.note(|upstream| upstream.link = Link::Connected);
        while self.attempt.goes_on() {
            // The data may be opened again in between: a store is kept for no longer than what has come.
            let at = Place::of(&replication.engine)?;
            self.apply(&at)?;
            at.store.log().write();
            self.acknowledger.tell(&at.store)?;
            self.acknowledger.listen(replication.engine.classes_of_replica())?;
            drop(at);
            replication.tidy_when_due();
            if self.incoming.silence() > replication.timeout() {
                return Err(Error::new(ErrorKind::TimedOut, "it says nothing any more"));
            }
            self.incoming.receive()?;
        }
        Ok(())
    }

    /// Applies all that has come.
    fn apply(&mut self, at: &Place) -> io::Result<()> {
        let Records { attempt, incoming, acknowledger, named, history, unheard, skewed } = self;
        let replication = attempt.replication;
        let serves = || !replication.engine_is_closing();
        let locks = FollowerLocks::new(&replication.engine, &at.store, at.version, &serves);
        let mut together = Vec::with_capacity(TOGETHER_MAX);
        loop {
            let frame = incoming.next();
            if let Ok(Some(Frame::Record(record))) = frame {
                let of = match *history {
                    Some(history) => history,
                    None => *history.insert(Records::check_first(attempt, *named, at)?),
                };
                together.push(record.of(of));
                if together.len() < TOGETHER_MAX {
                    continue;
                }
            }
            if together.len() > 1 {
                at.store.prefetch_records(together.iter().copied());
            }
            for record in together.drain(..) {
                attempt.when_there_is_room(at, acknowledger, || at.store.follow(&record, &locks))?;
            }
            let Some(frame) = frame? else { return Ok(()) };
            match frame {
                Frame::Record(_) => {}
                Frame::History(start) => {
                    attempt.when_there_is_room(at, acknowledger, || at.store.follow_history(start))?;
                    (*named, *history) = (start.history, None);
                }
                Frame::Heartbeat { written, confirmed, time_ms, .. } => {
                    // If this server is to lead, that much is on more than its own disk.
                    at.store.log().confirm(confirmed);
                    if std::mem::take(unheard) > 0 {
                        tracing::warn!("messages of the master were dropped: the event loops are behind");
                    }
                    let last = at.store.log().last();
                    attempt.note(|upstream| {
                        (upstream.heard, upstream.master_last) = (Some(Instant::now()), written);
                        if last >= written {
                            upstream.current = Some(Instant::now());
                            // The heartbeat has not been lying here: its time is the master's of now.
                            upstream.clock_skew_ms = Some(skew_ms(time_ms));
                        }
                    });
                    if last >= written && skew_ms(time_ms).abs() > SKEW_MS_MAX && !std::mem::replace(skewed, true) {
                        let seconds = skew_ms(time_ms) / 1000;
                        tracing::warn!(
                            "the clock is {seconds} s ahead of the master's: keys expire at other times here"
                        );
                    }
                }
                Frame::Message { is_shard, channel, text } => {
                    let engine = &*replication.engine;
                    *unheard += u64::from(!engine.hear(&engine.message(is_shard, channel, text)));
                }
                Frame::Event { class, database, name, key } => {
                    let event = KeyEvent { class, database, name: name.into(), key: key.into() };
                    *unheard += u64::from(!replication.engine.hear(&Told::Event(event)));
                }
                Frame::Promote { index } => {
                    let last = at.store.log().last();
                    if last == index {
                        // Behind this the master may follow at any time, and gives up what this server does not have:
                        // all that it has acknowledged is to outlive this process, and this machine.
                        at.store.log().sync_through(index).map_err(|error| Error::other(error.to_string()))?;
                        acknowledger.say(&Frame::Promoted { index })?;
                        tracing::info!("the master hands over, behind record {last}");
                        replication.engine.take_over(attempt.master);
                        return Ok(());
                    }
                    acknowledger.say(&Frame::Refused(&format!("its last record is {last}, and not {index}")))?;
                }
                Frame::Refused(why) => return Err(Error::other(format!("it says: {why}"))),
                other => return Err(unexpected(&other)),
            }
        }
    }
}

/// Returns by how many milliseconds this server's clock is ahead of another one's.
fn skew_ms(time_ms: u64) -> i64 {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    now_ms - i64::try_from(time_ms).unwrap_or(0)
}

impl Attempt<'_> {
    /// Has the store take something, as soon as there is room for it. The master hears of this server meanwhile.
    fn when_there_is_room(
        &self,
        at: &Place,
        acknowledger: &mut Acknowledger,
        mut take: impl FnMut() -> Result<(), FollowError>,
    ) -> io::Result<()> {
        let mut said = false;
        loop {
            match take() {
                Ok(()) => {
                    if said {
                        self.note(|upstream| upstream.held = None);
                    }
                    return Ok(());
                }
                Err(FollowError::Damaged(why)) => return Err(Error::new(ErrorKind::InvalidData, why)),
                Err(FollowError::Refused(why)) => {
                    if !self.goes_on() || self.replication.version() != at.version {
                        return Err(Error::other(why));
                    }
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!("a record of the master has to wait: {why}");
                        self.note(|upstream| upstream.held = Some(why));
                    }
                    self.replication.tidy_when_due();
                    acknowledger.tell(&at.store)?;
                    self.replication.wait_for_change(self.version, ROOM_PAUSE);
                }
            }
        }
    }
}

/// A store, and its version: records are for no other.
struct Place {
    store: Arc<Store>,
    version: u64,
}

impl Place {
    fn of(engine: &Engine) -> io::Result<Place> {
        // In this order: a store that is exchanged in between has a later version, and takes nothing.
        let version = engine.store_version();
        let store = engine.store_arc().ok_or_else(|| Error::other("the data are not open"))?;
        Ok(Place { store, version })
    }
}

/// Tells the master how far this server is.
struct Acknowledger {
    out: Outgoing,
    /// The last acknowledgement: the indexes that are written, synced, and applied; and its time.
    last: Option<([Index; 3], Instant)>,
    /// The classes of events that the master was asked for.
    classes: Option<u32>,
}

impl Acknowledger {
    /// Tells it where that has changed, and once a second.
    fn tell(&mut self, store: &Store) -> io::Result<()> {
        let log = store.log();
        let now = [log.written(), log.synced(), log.last()];
        if self.last.is_some_and(|(last, since)| last == now && since.elapsed() < ACKNOWLEDGE) {
            return Ok(());
        }
        self.last = Some((now, Instant::now()));
        let [written, synced, applied] = now;
        self.say(&Frame::Acknowledge { written, synced, applied })
    }

    /// Asks for events of keys of these classes, if others were asked for before.
    fn listen(&mut self, classes: u32) -> io::Result<()> {
        if self.classes.replace(classes) == Some(classes) {
            return Ok(());
        }
        self.say(&Frame::Listen { classes })
    }

    fn say(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.out.send(frame)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_was_of_use_shortens_the_pause() {
        let ms = |ms| Some(Duration::from_millis(ms));
        assert!(!was_of_use(None, true), "a copy came, and no record behind it");
        assert!(!was_of_use(ms(0), false) && !was_of_use(ms(2000), false), "it ended at once");
        assert!(was_of_use(ms(0), true), "records have come");
        assert!(was_of_use(ms(2001), false), "it stood");
    }

    #[test]
    fn the_difference_of_clocks_has_its_sign_whatever_a_master_says() {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis() as u64;
        assert!(skew_ms(now_ms).abs() < 5_000);
        assert!((7_195_000..7_205_000).contains(&skew_ms(now_ms - 7_200_000)), "two hours ahead of it");
        assert!((-7_205_000..-7_195_000).contains(&skew_ms(now_ms + 7_200_000)));
        assert!(skew_ms(0) > 0 && skew_ms(u64::MAX) > 0 && skew_ms(i64::MAX as u64) < 0);
    }
}
