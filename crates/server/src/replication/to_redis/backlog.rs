//! The part of the log from which a Redis can go on: the stream's name, and places in it whose offsets are known.
//!
//! A record always says the same bytes, so one known place is enough: what lies behind it is found by reading on. The
//! place through which all who follow have acknowledged is kept in a file, for the next start. The stream has an id in
//! each history of the log, made from the history and a number that is the stream's own: so a replica that has seen
//! more than what a crash has left, or than what a master had that it did not follow, asks by an id whose end is known.

use super::commands::Point;
use crate::datadir;
use crate::replication::state::Replication;
use haypile_log::{DirectoryId, History, Hold, Index, Log, Next, Reader};
use haypile_store::Store;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Bytes of the stream between two places whose offsets are kept.
const APART_BYTES: u64 = 64 << 10;

/// Records between two such places: those that say nothing take their time to be passed, too.
const APART_RECORDS: u64 = 4096;

/// Places that are kept at most; then every other one goes.
const POINTS_MAX: usize = 4096;

/// The time between two writes of the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The first word of the file, with the version of its format.
const TITLE: &str = "haypile stream 1";

/// See the file's head.
pub struct Backlog {
    /// Makes the ids of the histories.
    salt: History,
    /// The store of this version says what it does.
    version: u64,
    /// The term in which a group's leader does.
    term: u64,
    /// Places behind which all is there, in their order; the first one is in the file.
    points: Vec<Point>,
    hold: Hold,
    saved: Instant,
    /// Through which record each replica has acknowledged, by the number of its connection.
    acknowledged: BTreeMap<u64, Index>,
    /// When the last replica has gone.
    left: Instant,
}

/// The place from which a replica goes on.
pub struct Resume {
    pub at: Point,
    /// What the record before that place says, as far as the replica lacks it.
    pub rest: Vec<u8>,
    pub hold: Hold,
    /// The id under which the stream goes on.
    pub id: String,
}

impl Replication {
    /// Returns where a replica that has so many bytes of a stream goes on.
    ///
    /// # Errors
    /// A text that says why it needs all data.
    pub(super) fn resume(&self, store: &Store, version: u64, id: &str, had: u64) -> Result<Resume, String> {
        let term = self.term();
        let (salt, point) = {
            let backlog = self.backlog();
            let backlog = backlog.as_ref().filter(|backlog| backlog.is_of(version, term));
            let backlog = backlog.ok_or("this server has not told what it does until now")?;
            (backlog.salt, backlog.point_before(had).ok_or("the log does not go back so far")?)
        };
        let history = History::parse(&id.to_ascii_lowercase()).map(|id| mixed(id, salt));
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
            if !pass_next(&mut reader, &mut at, &mut rest).map_err(|error| error.to_string())? {
                return Err(format!("it has {had} bytes of the stream, this server {}", at.offset));
            }
        }
        let lacks = usize::try_from(at.offset - had).map_err(|error| error.to_string())?;
        rest.drain(..rest.len() - lacks.min(rest.len()));
        if histories.shared_through(history, at.index) != Some(at.index) {
            return Err("it has gone on elsewhere than this server".into());
        }
        Ok(Resume { at, rest, hold, id: mixed(log.history(), salt).to_string() })
    }

    /// Begins the stream, if it has not begun; returns a record behind which all is in it.
    pub(super) fn begin_backlog(&self, store: &Store, version: u64) -> Result<Index, String> {
        let _one_at_a_time = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let term = self.term();
        if let Some(backlog) = self.backlog().as_ref().filter(|backlog| backlog.is_of(version, term)) {
            return Ok(backlog.points[0].index);
        }
        // One that is there still is another term's: nobody is to end it from here on.
        *self.backlog() = None;
        let hold = store.log().hold();
        let index = self.engine.begin_to_state()?;
        let (points, acknowledged) = (vec![Point { index, offset: 0, database: None }], BTreeMap::new());
        let (saved, left) = (Instant::now(), Instant::now());
        let mut backlog = Backlog { salt: History(random()), version, term, points, hold, saved, acknowledged, left };
        backlog.hold.advance(index.max(backlog.hold.after()));
        self.save_backlog(&backlog);
        tracing::info!("behind record {index} the log says what is done, for a Redis that follows");
        *self.backlog() = Some(backlog);
        Ok(index)
    }

    /// Returns the place behind a record, which the stream has begun before, and the stream's id there.
    pub(super) fn point_at(&self, store: &Store, version: u64, index: Index) -> Result<(Point, String), String> {
        let term = self.term();
        let (salt, mut at) = {
            let backlog = self.backlog();
            let backlog = backlog.as_ref().filter(|backlog| backlog.is_of(version, term));
            let backlog = backlog.ok_or("the stream has ended")?;
            let point = backlog.points.iter().rfind(|point| point.index <= index);
            (backlog.salt, *point.ok_or("the stream has begun behind the copy")?)
        };
        let (mut reader, mut out) = (store.log().reader(at.index), Vec::new());
        while at.index < index {
            out.clear();
            if !pass_next(&mut reader, &mut at, &mut out).map_err(|error| error.to_string())? {
                return Err(format!("record {} cannot be read yet", at.index.next()));
            }
        }
        Ok((at, mixed(store.log().history(), salt).to_string()))
    }

    /// Notes a place that a feed has come to.
    pub(super) fn note_point(&self, version: u64, at: Point) {
        if let Some(backlog) = self.backlog().as_mut().filter(|backlog| backlog.version == version) {
            backlog.add(at);
        }
    }

    /// Notes a replica, and what it has acknowledged: what all have is let go of.
    pub(super) fn note_redis(&self, version: u64, number: u64, through: Index) {
        let mut backlog = self.backlog();
        let Some(backlog) = backlog.as_mut().filter(|backlog| backlog.version == version) else { return };
        backlog.acknowledged.insert(number, through);
        let all = backlog.acknowledged.values().min().copied().unwrap_or(through);
        let passed = backlog.points.iter().rposition(|point| point.index <= all).unwrap_or(0);
        if passed > 0 && backlog.saved.elapsed() >= SAVE_INTERVAL {
            backlog.points.drain(..passed);
            backlog.saved = Instant::now();
            // In this order: what the file names is there.
            if self.save_backlog(backlog) {
                let first = backlog.points[0].index;
                backlog.hold.advance(first.max(backlog.hold.after()));
            }
        }
    }

    /// Notes that a replica has gone.
    pub(super) fn forget_redis(&self, number: u64) {
        if let Some(backlog) = self.backlog().as_mut() {
            backlog.acknowledged.remove(&number);
            backlog.left = Instant::now();
        }
    }

    /// Ends the stream where it is another store's, where nobody has followed for as long as it is kept, or where it
    /// keeps too much of the log.
    pub(in crate::replication) fn tidy_backlog(&self, store: &Store) {
        let (version, term) = (self.version(), self.term());
        let kept_s = self.engine.settings.config().replication.backlog_ttl_s;
        let mut backlog = self.backlog();
        let Some(found) = backlog.as_ref() else { return };
        let is_left = found.acknowledged.is_empty();
        let why = match () {
            () if !found.is_of(version, term) => "the data are others by now".to_owned(),
            () if is_left && kept_s > 0 && found.left.elapsed() > Duration::from_secs(kept_s) => {
                format!("none has for {kept_s} seconds")
            }
            () if is_left => match self.is_too_much(store, found.hold.kept_bytes()) {
                Some(why) => format!("who might come back is {why}"),
                None => return,
            },
            () => return,
        };
        tracing::info!("the log says no more what is done for a Redis that follows: {why}");
        let is_of_store = found.version == version;
        // In this order: what the file names is said, also by whoever starts after a crash.
        self.remove_backlog();
        if is_of_store {
            self.engine.end_to_state();
        }
        *backlog = None;
    }

    /// Ends the stream where a store is about to serve that does not say what it does.
    pub(in crate::replication) fn expect_stated(&self, store: &Store) {
        if !store.states() {
            *self.backlog() = None;
            self.remove_backlog();
        }
    }

    /// Goes on with the stream of an earlier process, before anything runs.
    pub fn restore_backlog(&self, store: &Store) {
        let kept = store.log().take_kept();
        let path = datadir::stream_file(&self.engine.settings.config().dir);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => return tracing::warn!("{}: {error}", path.display()),
        };
        match self.restored(store, &text, kept) {
            Ok(backlog) => {
                let at = backlog.points[0];
                store.begin_to_state();
                tracing::info!("a Redis that has followed may go on behind record {}", at.index);
                *self.backlog() = Some(backlog);
            }
            Err(why) => {
                tracing::info!("a Redis that has followed needs all data: {why}");
                self.remove_backlog();
            }
        }
    }

    fn restored(&self, store: &Store, text: &str, kept: Option<Hold>) -> Result<Backlog, String> {
        if store.follows() || self.engine.group.is_member() {
            return Err("the data are another server's".into());
        }
        let (salt, history, at) = parse(text).ok_or("the file of the stream cannot be read")?;
        let log = store.log();
        // Two holds, of which the first one was there before anything could go.
        let hold = log.hold_after(at.index).ok_or("the log does not go back so far")?;
        drop(kept);
        if log.histories().shared_through(history, at.index) != Some(at.index) {
            return Err("the data are others by now".into());
        }
        let (saved, left) = (Instant::now(), Instant::now());
        let (points, acknowledged, term) = (vec![at], BTreeMap::new(), self.term());
        // The version that the store is going to have.
        let version = self.version() + 1;
        Ok(Backlog { salt, version, term, points, hold, saved, acknowledged, left })
    }

    /// Notes the version of the store with which an earlier process's stream goes on.
    pub fn keep_backlog(&self) {
        let version = self.version();
        self.backlog().iter_mut().for_each(|backlog| backlog.version = version);
    }

    /// Writes the stream's first place down; returns whether it is on the disk.
    fn save_backlog(&self, backlog: &Backlog) -> bool {
        let dir = self.engine.settings.config().dir.clone();
        let Some(history) = self.engine.store().map(|store| store.log().history()) else { return false };
        match write(&dir, &format(backlog.salt, history, &backlog.points[0])) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("how far a Redis has followed cannot be noted: {error}");
                false
            }
        }
    }

    fn remove_backlog(&self) {
        let dir = &self.engine.settings.config().dir;
        let path = datadir::stream_file(dir);
        match std::fs::remove_file(&path).and_then(|()| datadir::sync_dir(dir)) {
            Err(error) if error.kind() != ErrorKind::NotFound => tracing::warn!("{}: {error}", path.display()),
            _ => {}
        }
    }

    /// Returns the term of the group that this server leads; 0 outside of one.
    pub(super) fn term(&self) -> u64 {
        self.engine.group.facts().map_or(0, |facts| facts.term)
    }
}

impl Backlog {
    fn is_of(&self, version: u64, term: u64) -> bool {
        (self.version, self.term) == (version, term)
    }

    /// Returns the last known place at which a replica with so many bytes has not been beyond: the first one with that
    /// very offset, if there is one.
    fn point_before(&self, had: u64) -> Option<Point> {
        let at = self.points.partition_point(|point| point.offset < had);
        let exact = self.points.get(at).filter(|point| point.offset == had);
        exact.or_else(|| at.checked_sub(1).and_then(|at| self.points.get(at))).copied()
    }

    /// Adds a place, if it is far enough behind the last one.
    fn add(&mut self, at: Point) {
        let last = self.points.last().copied().unwrap_or(at);
        if at.offset < last.offset + APART_BYTES && at.index.0 < last.index.0 + APART_RECORDS {
            return;
        }
        if self.points.len() == POINTS_MAX {
            let mut number = 0;
            // The first one is in the file.
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.points.push(at);
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

/// Makes an id of a history, or the history of an id.
fn mixed(one: History, other: History) -> History {
    History(std::array::from_fn(|at| one.0[at] ^ other.0[at]))
}

fn random() -> [u8; 20] {
    let (first, second) = (DirectoryId::random().0, DirectoryId::random().0);
    std::array::from_fn(|at| if at < first.len() { first[at] } else { second[at - first.len()] })
}

/// Returns the file's text.
fn format(salt: History, history: History, at: &Point) -> String {
    let database = at.database.map_or("none".into(), |database| database.to_string());
    let (index, offset) = (at.index, at.offset);
    format!("{TITLE}\nsalt {salt}\nhistory {history}\nrecord {index}\noffset {offset}\ndatabase {database}\nend\n")
}

/// Reads the file's text.
fn parse(text: &str) -> Option<(History, History, Point)> {
    let mut lines = text.lines();
    (lines.next()? == TITLE).then_some(())?;
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let (salt, history) = (History::parse(value("salt")?)?, History::parse(value("history")?)?);
    let (index, offset) = (Index(value("record")?.parse().ok()?), value("offset")?.parse().ok()?);
    let database = match value("database")? {
        "none" => None,
        number => Some(number.parse().ok()?),
    };
    (lines.next()? == "end").then_some((salt, history, Point { index, offset, database }))
}

/// Returns the record behind which an earlier process's log is to be kept, if a Redis has followed it.
pub fn kept_after(dir: &Path) -> Option<Index> {
    let text = std::fs::read_to_string(datadir::stream_file(dir)).ok()?;
    parse(&text).map(|(_, _, at)| at.index)
}

fn write(dir: &Path, text: &str) -> io::Result<()> {
    let (path, fresh) = (datadir::stream_file(dir), dir.join("haypile.stream.new"));
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path)?;
    datadir::sync_dir(dir)
}

/// Returns the log's last record that a Redis may be sent: of a group, the last one that it has agreed on.
pub(super) fn sendable(log: &Log, is_member: bool) -> Index {
    if is_member { log.confirmed() } else { log.durable() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_comes_back_as_it_was_written() {
        let (salt, history) = (History([0x5a; 20]), History([7; 20]));
        for database in [None, Some(0), Some(15)] {
            let at = Point { index: Index(12), offset: 345, database };
            let text = format(salt, history, &at);
            assert_eq!(parse(&text), Some((salt, history, at)));
            for cut in 0..text.len() - 1 {
                assert_eq!(parse(&text[..cut]), None, "cut off at {cut}");
            }
        }
        assert_eq!(parse("haypile stream 2\n"), None);
    }

    #[test]
    fn an_id_and_a_history_make_each_other() {
        let (history, salt) = (History([0x33; 20]), History(random()));
        let id = mixed(history, salt);
        assert_eq!(mixed(id, salt), history);
        assert_ne!(id, history);
    }
}
