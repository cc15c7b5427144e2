//! A replica's side: the thread that keeps the connection to the master, and applies what comes.
//!
//! One attempt after the other: connect, see who is there, say where the log ends, then take records until the
//! connection breaks, or fetch a copy. Nothing is decided here about histories: the master says how it goes on, and the
//! store refuses what does not come next.

use crate::datadir;
use crate::remote::Remote;
use crate::replication::feed::unexpected;
use crate::replication::fetch::Fetch;
use crate::replication::tail;
use crate::replication::wire::{Incoming, Outgoing};
use crate::replication::{Registered, Replication};
use haypile_engine::{FollowerLocks, Link, Master, Upstream};
use haypile_log::{History, HistoryStart, Index};
use haypile_replication::frame::{Frame, RecordFrame};
use haypile_replication::resync::Position;
use haypile_replication::{Hello, Manifest, Request, request};
use haypile_resp::Reply;
use haypile_store::{FollowError, Store};
use std::io::{self, Error, ErrorKind};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The pause before the next attempt: after the first failure, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The longest time to connect, and of each answer before the stream begins: a stop of the server waits for the first.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The time between looks whether there is something to acknowledge although nothing has come.
const LOOK: Duration = Duration::from_millis(100);

/// The pause before a record is offered again that the store has no room for.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Follows masters, one after the other, and leads where there is none; to the end of the server.
pub fn run(replication: &Replication) {
    let mut pause = PAUSE_MIN;
    while !replication.engine_is_closing() {
        let (master, version) = replication.wanted();
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
        let attempt = Attempt { replication, master: &master, version };
        // Without an error a copy is in place, behind which the next attempt goes on; or the master is another one.
        if let Err(error) = attempt.run()
            && attempt.goes_on()
        {
            let why = error.to_string();
            if attempt.was_connected() {
                pause = PAUSE_MIN;
            }
            tracing::warn!("the master {}:{}: {why}", master.host, master.port);
            attempt.note(|upstream| upstream.link = Link::Connect(Some(why)));
            replication.wait_for_change(version, pause);
            pause = (2 * pause).min(PAUSE_MAX);
        }
        replication.tidy();
    }
}

/// Connects to a master, as a user that may replicate, and sees whether it can be followed. The connection ends when
/// the master is another one.
///
/// # Errors
/// Nobody answers, or somebody else.
pub fn connect<'r>(
    replication: &'r Replication,
    master: &Master,
    version: u64,
) -> io::Result<(Remote, Registered<'r>)> {
    let config = replication.engine.settings.config();
    let timeout = replication.timeout().min(ANSWER_MAX);
    let mut remote = Remote::connect(&master.host, master.port, timeout)?;
    let registered = replication.register(version, remote.handle()?)?;
    if !config.replication.masterauth.is_empty() {
        let words: Vec<&[u8]> = match config.replication.masteruser.is_empty() {
            true => vec![b"AUTH", &config.replication.masterauth],
            false => vec![b"AUTH", &config.replication.masteruser, &config.replication.masterauth],
        };
        if let Reply::Error(why) = remote.call(&words)? {
            return Err(Error::new(ErrorKind::PermissionDenied, format!("it refuses the password: {}", why)));
        }
    }
    let hello = match remote.call(&[b"REPLCONF", request::HELLO.as_bytes()])? {
        Reply::Array(words) => {
            let words: Option<Vec<&[u8]>> = words.iter().map(bulk).collect();
            words.and_then(|words| Hello::parse(&words))
        }
        Reply::Error(why) if why.contains("Unrecognized REPLCONF") || why.contains("syntax error") => {
            let why = "it is a Redis, which this server cannot follow yet";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        Reply::Error(why) => return Err(Error::other(format!("it answers: {}", why))),
        _ => None,
    };
    let hello =
        hello.ok_or_else(|| Error::new(ErrorKind::InvalidData, "it answers as no server that can be followed"))?;
    if let Some(why) = hello.objection(replication.node, config.databases) {
        return Err(Error::new(ErrorKind::Unsupported, format!("it cannot be followed: {why}")));
    }
    replication.set_upstream_nodes(hello.nodes);
    Ok((remote, registered))
}

fn bulk(reply: &Reply) -> Option<&[u8]> {
    match reply {
        Reply::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

/// One connection to a master.
struct Attempt<'a> {
    replication: &'a Replication,
    master: &'a Master,
    version: u64,
}

impl Attempt<'_> {
    fn goes_on(&self) -> bool {
        self.replication.is_wanted(self.version)
    }

    fn was_connected(&self) -> bool {
        self.replication.engine.replication.upstream().is_some_and(|upstream| upstream.link == Link::Connected)
    }

    fn note(&self, note: impl FnOnce(&mut Upstream)) {
        self.replication.engine.replication.note_upstream(self.master, note);
        self.replication.engine.look_at_link();
    }

    fn run(&self) -> io::Result<()> {
        let engine = &*self.replication.engine;
        engine.follow_master().map_err(Error::other)?;
        let (mut remote, _registered) = connect(self.replication, self.master, self.version)?;
        self.note(|upstream| (upstream.link, upstream.heard) = (Link::Handshake, Some(Instant::now())));
        let at = {
            let store = engine.store().ok_or_else(|| Error::other("the data are not open"))?;
            Position { history: store.history(), index: store.log().last() }
        };
        let config = engine.settings.config();
        let port = if config.replication.announce_port > 0 { config.replication.announce_port } else { config.port };
        let address = Some(config.replication.announce_ip.clone()).filter(|address| !address.is_empty());
        let words = Request::Follow { port, address, at }.words();
        let words: Vec<&[u8]> =
            std::iter::once(&b"REPLCONF"[..]).chain(words.iter().map(|word| word.as_bytes())).collect();
        remote.send(&words)?;
        remote.flush()?;
        let (stream, read) = remote.into_parts();
        self.take(stream, read)
    }

    /// Takes the master's answer, and what follows.
    fn take(&self, stream: TcpStream, read: Vec<u8>) -> io::Result<()> {
        stream.set_read_timeout(Some(self.replication.timeout()))?;
        let mut incoming = Incoming::new(stream.try_clone()?, read);
        let out = Outgoing::new(stream.try_clone()?);
        loop {
            while let Some(frame) = incoming.next()? {
                self.note(|upstream| upstream.heard = Some(Instant::now()));
                match frame {
                    Frame::Continue => {
                        stream.set_read_timeout(Some(LOOK))?;
                        return Records::new(self, incoming, out).run();
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
            if !incoming.receive()? {
                return Err(Error::new(ErrorKind::TimedOut, "it does not answer"));
            }
        }
    }

    /// Fetches a copy and puts it in place of the data. The next attempt goes on from there.
    fn fetch(&self, manifest: &Manifest, shared: Index) -> io::Result<()> {
        let (files, bytes) = (manifest.files.len(), manifest.bytes());
        tracing::info!("fetching a copy of the master's data: {files} files, {bytes} bytes");
        let since = Instant::now();
        self.note(|upstream| upstream.link = Link::Copy { done: 0, total: bytes });
        let engine = &*self.replication.engine;
        let (free, keep_free) = engine.store().map_or((None, 0), |store| store.disk_room());
        if free.is_some_and(|free| free < keep_free.saturating_add(bytes)) {
            return Err(Error::new(
                ErrorKind::StorageFull,
                format!("the disk has no room for a copy of {bytes} bytes"),
            ));
        }
        Fetch::new(self.replication, self.master, self.version, manifest).run(&|| self.goes_on())?;
        let dir = engine.settings.config().dir.clone();
        if shared > Index(0)
            && let Some(store) = engine.store_arc()
        {
            tail::save(&store, shared, &dir).map_err(Error::other)?;
        }
        datadir::complete_incoming(&dir).map_err(Error::other)?;
        engine.adopt_copy(&mut || datadir::adopt_incoming(&dir).map(drop)).map_err(Error::other)?;
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
    out: Outgoing,
    /// The history of the records that come.
    history: Option<History>,
    /// The last acknowledgement: written, synced, applied.
    acknowledged: [Index; 3],
    heard: Instant,
}

impl<'a> Records<'a> {
    fn new(attempt: &'a Attempt<'a>, incoming: Incoming, out: Outgoing) -> Records<'a> {
        let heard = Instant::now();
        Records { attempt, incoming, out, history: None, acknowledged: [Index(0); 3], heard }
    }

    fn run(mut self) -> io::Result<()> {
        let replication = self.attempt.replication;
        self.attempt.note(|upstream| upstream.link = Link::Connected);
        while self.attempt.goes_on() {
            // The data may be opened again in between: a store is kept for no longer than what has come.
            let store = replication.engine.store_arc().ok_or_else(|| Error::other("the data are not open"))?;
            self.apply(&store)?;
            store.log().write();
            self.acknowledge(&store)?;
            drop(store);
            if self.incoming.receive()? {
                self.heard = Instant::now();
            } else if self.heard.elapsed() > replication.timeout() {
                return Err(Error::new(ErrorKind::TimedOut, "it says nothing any more"));
            }
        }
        Ok(())
    }

    /// Applies all that has come.
    fn apply(&mut self, store: &Store) -> io::Result<()> {
        let locks = FollowerLocks::new(&self.attempt.replication.engine, store);
        while let Some(frame) = self.incoming.next()? {
            match frame {
                Frame::Record(record) => {
                    let history = *self.history.get_or_insert_with(|| store.history());
                    self.attempt.follow(store, record, history, &locks)?;
                }
                Frame::History(start) => {
                    self.attempt.adopt(store, start)?;
                    self.history = Some(start.history);
                }
                Frame::Heartbeat { written, .. } => {
                    let last = store.log().last();
                    self.attempt.note(|upstream| {
                        (upstream.heard, upstream.master_last) = (Some(Instant::now()), written);
                        if last >= written {
                            upstream.current = Some(Instant::now());
                        }
                    });
                }
                Frame::Refused(why) => return Err(Error::other(format!("it says: {why}"))),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }

    /// Tells the master how far this server is, if that has changed.
    fn acknowledge(&mut self, store: &Store) -> io::Result<()> {
        let log = store.log();
        let now = [log.written(), log.synced(), log.last()];
        if now != self.acknowledged || self.heard.elapsed() > Duration::from_secs(1) {
            self.acknowledged = now;
            let [written, synced, applied] = now;
            self.out.send(&Frame::Acknowledge { written, synced, applied })?;
            self.out.flush()?;
        }
        Ok(())
    }
}

impl Attempt<'_> {
    /// Applies a record, as soon as there is room for it.
    fn follow(
        &self,
        store: &Store,
        record: RecordFrame<'_>,
        history: History,
        locks: &FollowerLocks<'_>,
    ) -> io::Result<()> {
        self.when_there_is_room(|| store.follow(&record.of(history), locks))
    }

    fn adopt(&self, store: &Store, start: HistoryStart) -> io::Result<()> {
        self.when_there_is_room(|| store.adopt_history(start))
    }

    fn when_there_is_room(&self, mut take: impl FnMut() -> Result<(), FollowError>) -> io::Result<()> {
        let mut said = false;
        loop {
            match take() {
                Ok(()) => return Ok(()),
                Err(FollowError::Damaged(why)) => return Err(Error::new(ErrorKind::InvalidData, why)),
                Err(FollowError::Refused(why)) => {
                    if !std::mem::replace(&mut said, true) {
                        tracing::warn!("a record of the master has to wait: {why}");
                    }
                    if !self.goes_on() || self.replication.engine.store().is_none() {
                        return Err(Error::other(why));
                    }
                    std::thread::sleep(ROOM_PAUSE);
                }
            }
        }
    }
}
