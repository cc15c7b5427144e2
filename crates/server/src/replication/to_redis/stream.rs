//! The stream of commands for those who follow and are no Haypile: how it begins, is gone on with, and ends.

use super::backlog::{self, Backlog};
use super::commands::{Point, is_unsaid};
use super::file;
use crate::datadir;
use crate::replication::state::Replication;
use haypile_log::{Histories, History, Hold, Index, Log, Next, Reader};
use haypile_store::{Mode, Stop, Store, UNSAID};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two writes of the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The place from which a replica goes on.
pub struct Resume {
    pub at: Point,
    /// The commands of the record before that place, as far as the replica lacks them.
    pub rest: Vec<u8>,
    pub hold: Hold,
    /// The id under which the stream goes on.
    pub id: String,
}

/// A replica's place among those who follow the stream, until it is dropped: what it has not acknowledged is kept.
pub struct Seat<'r> {
    replication: &'r Replication,
    number: u64,
    /// The stream that it follows. One that begins anew has another one.
    salt: History,
    /// The replica has all data, and may come back for what is behind them.
    has_followed: AtomicBool,
}

impl Seat<'_> {
    /// Whether the stream goes on, and this server is still the one that has told it.
    pub fn goes_on(&self) -> bool {
        let (version, term) = (self.replication.version(), self.replication.term());
        let backlog = self.replication.backlog();
        backlog.as_ref().is_some_and(|backlog| backlog.salt == self.salt && backlog.is_of(version, term))
    }

    /// Notes a place that the replica was sent.
    pub fn note_point(&self, at: Point) {
        if let Some(backlog) = self.replication.backlog().as_mut().filter(|backlog| backlog.salt == self.salt) {
            backlog.add(at);
        }
    }

    /// Notes through where the replica has acknowledged: what all have is let go of.
    pub fn acknowledge(&self, through: Index) {
        let mut backlog = self.replication.backlog();
        let Some(backlog) = backlog.as_mut().filter(|backlog| backlog.salt == self.salt) else { return };
        self.has_followed.store(true, Ordering::Relaxed);
        backlog.acknowledged.insert(self.number, through);
        let all = backlog.needed(self.replication.kept_for()).unwrap_or(through);
        let Some(passed) = backlog.points.iter().rfind(|point| point.index <= all).copied() else { return };
        if passed.index <= backlog.kept.index || backlog.saved.elapsed() < SAVE_INTERVAL {
            return;
        }
        let before = std::mem::replace(&mut backlog.kept, passed);
        backlog.saved = Instant::now();
        let Some(store) = self.replication.engine.store() else { return };
        // In this order: what the file names is there.
        match self.replication.save_backlog(&store, backlog) {
            true => backlog.hold.advance(passed.index.max(backlog.hold.after())),
            false => backlog.kept = before,
        }
    }

    /// Ends the stream, because a record says nothing of what it does: whoever follows gets all data.
    pub fn void(&self) {
        self.replication.void_backlog(self.salt);
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(backlog) = self.replication.backlog().as_mut().filter(|backlog| backlog.salt == self.salt) {
            backlog.leave(self.number, self.has_followed.load(Ordering::Relaxed));
        }
    }
}

impl Replication {
    /// Returns how long the log is kept for a replica that has gone; None for as long as there is room.
    fn kept_for(&self) -> Option<Duration> {
        let kept_s = self.engine.settings.config().replication.backlog_ttl_s;
        (kept_s > 0).then(|| Duration::from_secs(kept_s))
    }

    /// Takes a seat for a replica: all behind `at`, or behind what the file names, is kept for it.
    fn take_seat(&self, backlog: &mut Backlog, number: u64, at: Option<Index>) -> Seat<'_> {
        backlog.acknowledged.insert(number, at.unwrap_or(backlog.kept.index));
        Seat { replication: self, number, salt: backlog.salt, has_followed: AtomicBool::new(false) }
    }

    /// Returns where a replica that has so many bytes of a stream goes on.
    ///
    /// # Errors
    /// A text that says why it needs all data.
    pub(super) fn resume(
        &self,
        store: &Store,
        version: u64,
        number: u64,
        (id, had): (&str, u64),
    ) -> Result<(Seat<'_>, Resume), String> {
        let term = self.term();
        let (seat, point) = {
            let mut backlog = self.backlog();
            let backlog = backlog.as_mut().filter(|backlog| backlog.is_of(version, term));
            let backlog = backlog.ok_or("this server has not told what it does until now")?;
            let point = backlog.point_before(had).ok_or("the log does not go back so far")?;
            (self.take_seat(backlog, number, Some(point.index)), point)
        };
        let history = History::parse(&id.to_ascii_lowercase()).map(|id| backlog::mixed(id, seat.salt));
        let history = history.ok_or("the id is none of this server's")?;
        let (log, mut at, mut rest) = (store.log(), point, Vec::new());
        let hold = log.hold_after(point.index).ok_or("the log does not go back so far any more")?;
        let mut reader = log.reader(point.index);
        let histories = log.histories();
        if !histories.starts().iter().any(|start| start.history == history) {
            return Err("the id is none of this server's".into());
        }
        while at.offset < had {
            rest.clear();
            if !self.pass(&seat, &mut reader, &mut at, &mut rest)? {
                return Err(format!("it has {had} bytes of the stream, this server {}", at.offset));
            }
        }
        let lacks = usize::try_from(at.offset - had).map_err(|error| error.to_string())?;
        rest.drain(..rest.len() - lacks.min(rest.len()));
        if !is_on_the_way(&histories, history, at.index) {
            return Err("it has gone on elsewhere than this server".into());
        }
        let id = backlog::mixed(log.history(), seat.salt).to_string();
        self.backlog().iter_mut().for_each(|backlog| backlog.come_back(at.index));
        Ok((seat, Resume { at, rest, hold, id }))
    }

    /// Begins the stream, if it has not begun. Returns the replica's seat, and a record behind which all is in it.
    pub(super) fn begin_backlog(&self, store: &Store, version: u64, number: u64) -> Result<(Seat<'_>, Index), String> {
        let _one_at_a_time = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let term = self.term();
        if let Some(backlog) = self.backlog().as_mut().filter(|backlog| backlog.is_of(version, term)) {
            let index = backlog.kept.index;
            return Ok((self.take_seat(backlog, number, None), index));
        }
        // One that is there still is another term's: nobody is to end it from here on.
        *self.backlog() = None;
        let hold = store.log().hold();
        let index = self.engine.begin_to_state(version)?;
        let kept = Point { index, offset: 0, database: None };
        let (saved, left) = (Instant::now(), Instant::now());
        let (salt, points, acknowledged) = (History(backlog::random()), vec![kept], BTreeMap::new());
        let departed = Vec::new();
        let mut backlog =
            Backlog { salt, version, term, points, kept, hold, saved, acknowledged, departed, left, is_void: false };
        backlog.hold.advance(index.max(backlog.hold.after()));
        self.save_backlog(store, &backlog);
        tracing::info!("behind record {index} the log says what is done, for a Redis that follows");
        let seat = self.take_seat(&mut backlog, number, None);
        *self.backlog() = Some(backlog);
        Ok((seat, index))
    }

    /// Returns the place behind a record, which the stream has begun before, and the stream's id there.
    pub(super) fn point_at(&self, seat: &Seat<'_>, store: &Store, index: Index) -> Result<(Point, String), String> {
        let mut at = {
            let backlog = self.backlog();
            let backlog = backlog.as_ref().filter(|backlog| backlog.salt == seat.salt);
            let point = backlog.ok_or("the stream has ended")?.points.iter().rfind(|point| point.index <= index);
            *point.ok_or("the stream has begun behind the copy")?
        };
        let (mut reader, mut out) = (store.log().reader(at.index), Vec::new());
        while at.index < index {
            out.clear();
            if !self.pass(seat, &mut reader, &mut at, &mut out)? {
                return Err(format!("record {} cannot be read yet", at.index.next()));
            }
        }
        Ok((at, backlog::mixed(store.log().history(), seat.salt).to_string()))
    }

    fn pass(&self, seat: &Seat<'_>, reader: &mut Reader, at: &mut Point, out: &mut Vec<u8>) -> Result<bool, String> {
        pass_next(reader, at, out).map_err(|error| {
            if is_unsaid(&error) {
                seat.void();
            }
            error.to_string()
        })
    }

    /// Ends the stream where it is another store's, where nobody has followed for as long as it is kept, or where it
    /// keeps too much of the log.
    pub fn tidy_backlog(&self, store: &Store) {
        let (version, term) = (self.version(), self.term());
        let kept_s = self.engine.settings.config().replication.backlog_ttl_s;
        let mut backlog = self.backlog();
        let Some(found) = backlog.as_mut() else { return };
        if self.is_too_much(store, found.hold.kept_bytes()).is_some() {
            // Replicas that are there are looked at one by one.
            found.departed.clear();
        }
        let is_left = found.acknowledged.is_empty();
        let why = if found.is_void {
            "a record says nothing".to_owned()
        } else if !found.is_of(version, term) {
            "the data are others by now".to_owned()
        } else if !is_left {
            return;
        } else if kept_s > 0 && found.left.elapsed() > Duration::from_secs(kept_s) {
            format!("none has for {kept_s} seconds")
        } else if let Some(why) = self.is_too_much(store, found.hold.kept_bytes()) {
            format!("who might come back is {why}")
        } else {
            return;
        };
        if found.version == version && self.end_to_state(store).is_err() {
            // All goes on until the log has room.
            return;
        }
        tracing::info!("the log says no more what is done for a Redis that follows: {why}");
        *backlog = None;
    }

    /// Ends the stream of this store, for whoever starts after a crash, too.
    ///
    /// # Errors
    /// The log has no room.
    fn end_to_state(&self, store: &Store) -> Result<(), Stop> {
        // Where records go on to say what they do, it is enough that the file goes.
        let is_said = store.states_for_readers() && self.remove_backlog();
        if store.makes_records() && !is_said {
            // The thread of a group's messages comes here: it waits for nothing.
            store.put_statement(UNSAID, Mode::Memory)?;
        }
        self.remove_backlog();
        store.end_to_state();
        Ok(())
    }

    /// Has nobody go on with the stream of this name; it ends at the next look, unless another one begins before.
    fn void_backlog(&self, salt: History) {
        if let Some(backlog) = self.backlog().as_mut().filter(|backlog| backlog.salt == salt && !backlog.is_void) {
            tracing::info!("a record says nothing of what it does: a Redis that follows gets all data");
            backlog.is_void = true;
        }
    }

    /// Ends the stream where a store is about to serve that does not say what it does.
    pub fn expect_stated(&self, store: &Store) {
        if store.is_to_be_told() || !datadir::stream_file(&self.engine.settings.config().dir).exists() {
            return;
        }
        *self.backlog() = None;
        if let Err(stop) = self.end_to_state(store) {
            tracing::warn!("that the log says no more what is done cannot be noted: {stop:?}");
            self.remove_backlog();
        }
    }

    /// Returns whether an id is one of the stream that this server tells, and so a master that has it follows this
    /// server.
    pub fn is_own_stream(&self, store: &Store, id: &[u8]) -> bool {
        let Some(id) = std::str::from_utf8(id).ok().and_then(History::parse) else { return false };
        let Some(salt) = self.backlog().as_ref().map(|backlog| backlog.salt) else { return false };
        let history = backlog::mixed(id, salt);
        store.log().histories().starts().iter().any(|start| start.history == history)
    }

    /// Ends the stream that an earlier process has left to a store that follows: records of a Haypile are to come
    /// behind its last one, and that master has a stream of its own.
    ///
    /// # Errors
    /// The file cannot be removed: no record may come that says nothing.
    pub fn end_restored(&self, store: &Store) -> io::Result<()> {
        if !store.follows() || !store.is_to_be_told() {
            return Ok(());
        }
        if !self.remove_backlog() {
            return Err(io::Error::other("the file of the stream to a Redis cannot be removed"));
        }
        tracing::info!("a Redis that has followed gets all data from the master, which is a Haypile");
        *self.backlog() = None;
        store.end_to_state();
        Ok(())
    }

    /// Goes on with the stream of an earlier process, before anything runs. Where the data follow, the stream goes on
    /// as soon as they lead or repeat the commands of a Redis, and ends where they turn out to be others.
    pub fn restore_backlog(&self, store: &Store) {
        let held = store.log().take_kept();
        let path = datadir::stream_file(&self.engine.settings.config().dir);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return tracing::warn!("{}: {error}", path.display()),
        };
        match self.restored(store, &text, held) {
            Ok(backlog) => {
                let at = backlog.points[0];
                store.begin_to_state();
                // In the newest history: the log knows no more of them than so many starts begin.
                self.save_backlog(store, &backlog);
                tracing::info!("a Redis that has followed may go on behind record {}", at.index);
                *self.backlog() = Some(backlog);
            }
            Err(why) => {
                tracing::info!("a Redis that has followed needs all data: {why}");
                if self.end_to_state(store).is_err() {
                    self.remove_backlog();
                }
            }
        }
    }

    fn restored(&self, store: &Store, text: &str, held: Option<Hold>) -> Result<Backlog, String> {
        if self.engine.group.is_member() {
            return Err("the data are a group's".into());
        }
        let (salt, history, at) = file::parse(text).ok_or("the file of the stream cannot be read")?;
        let log = store.log();
        // Two holds, of which the first one was there before anything could go.
        let hold = log.hold_after(at.index).ok_or("the log does not go back so far")?;
        drop(held);
        if !is_on_the_way(&log.histories(), history, at.index) {
            return Err("the data are others by now".into());
        }
        let (saved, left) = (Instant::now(), Instant::now());
        let (points, kept, acknowledged, term) = (vec![at], at, BTreeMap::new(), self.term());
        // The version that the store is going to have.
        let version = self.version() + 1;
        // A replica that has followed may come back.
        let departed = vec![(at.index, left)];
        let is_void = false;
        Ok(Backlog { salt, version, term, points, kept, hold, saved, acknowledged, departed, left, is_void })
    }

    /// Notes the version of the store with which an earlier process's stream goes on.
    pub fn keep_backlog(&self) {
        let version = self.version();
        self.backlog().iter_mut().for_each(|backlog| backlog.version = version);
    }

    /// Writes down through where the stream is let go of; returns whether it is on the disk.
    fn save_backlog(&self, store: &Store, backlog: &Backlog) -> bool {
        if self.engine.group.is_member() {
            // A new term's stream is another one.
            return true;
        }
        let dir = self.engine.settings.config().dir.clone();
        match file::write(&dir, &file::format(backlog.salt, store.log().history(), &backlog.kept)) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("how far a Redis has followed cannot be noted: {error}");
                false
            }
        }
    }

    /// Removes the file of the stream; returns whether it is gone for sure.
    fn remove_backlog(&self) -> bool {
        if self.engine.group.is_member() {
            return true;
        }
        let dir = &self.engine.settings.config().dir;
        let path = datadir::stream_file(dir);
        match std::fs::remove_file(&path).and_then(|()| datadir::sync_dir(dir)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!("{}: {error}", path.display());
                false
            }
            _ => true,
        }
    }

    /// Returns the term of the group that this server leads; 0 outside of one.
    pub(super) fn term(&self) -> u64 {
        self.engine.group.facts().map_or(0, |facts| facts.term)
    }
}

/// Goes on behind the next record, if it is there; returns whether it was.
pub(super) fn pass_next(reader: &mut Reader, at: &mut Point, out: &mut Vec<u8>) -> io::Result<bool> {
    match reader.next().map_err(|error| io::Error::other(error.to_string()))? {
        Next::Record(record) => at.pass(record.index, record.kind, record.body, out).map(|()| true),
        Next::UpToDate => Ok(false),
        Next::Gap(first) => Err(io::Error::other(format!("the log begins with {first}"))),
    }
}

/// Whether whoever was in `history` last, or on the way to it, and stands behind this record, has nothing that the log
/// does not have.
fn is_on_the_way(histories: &Histories, history: History, index: Index) -> bool {
    let Some(start) = histories.starts().iter().find(|start| start.history == history) else { return false };
    let index = index.max(start.after());
    histories.shared_through(history, index) == Some(index)
}

/// Returns the log's last record that a Redis may be sent: of a group, the last one that it has agreed on.
pub fn sendable(log: &Log, is_member: bool) -> Index {
    if is_member { log.confirmed() } else { log.durable() }
}
