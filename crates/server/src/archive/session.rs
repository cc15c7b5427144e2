//! The log on its way to one archive, as long as that and the store stay the same.

use super::latest::{Latest, latest, now_ms};
use super::place::key_of;
use super::position::{self, Position};
use super::{Archiver, LOOK, RETRY, hold_all};
use haypile_archive::{Archive, Chain, Error, place_of};
use haypile_config::Archive as Wanted;
use haypile_log::{ChunkCut, Chunks, Index};
use std::time::{Duration, Instant};

/// Bytes of a chunk, about: a request to a store costs the same for less, and a chunk lies in memory.
const CHUNK_BYTES: usize = 7 << 20;

/// How often the file that says how far the log is archived is written.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after a backup that failed the next one is tried.
const BACKUP_RETRY: Duration = Duration::from_secs(300);

/// Times of `archive-interval` between two looks for the newest backup. After each that has gone they are twice as
/// many: two servers that remove each other's make no more.
const LOST_LOOK: u32 = 10;

/// The most of these times.
const LOST_LOOK_MAX: u32 = 10 << 10;

pub struct Session<'a> {
    archiver: &'a Archiver,
    wanted: Wanted,
    archive: Archive,
    /// The generation and the version of the store that is archived.
    generation: u64,
    version: u64,
    /// Every record through this is in the archive, as far as the log had it.
    reached: Index,
    chunks: Option<Chunks>,
    /// The moment since which records wait to be archived.
    waiting: Option<Instant>,
    /// The moment when a server that does not write looked last at what others have written; None before the first
    /// look.
    looked: Option<Instant>,
    noted: Instant,
    newest_backup: Option<Latest>,
    /// The moment when `newest_backup` was looked for last.
    seen: Instant,
    /// Times of `archive-interval` until the next look for `newest_backup`.
    looks: u32,
    /// The number of backups that were made when `newest_backup` was looked for.
    backups_made: u64,
    /// The moment when this process made its last backup, as far as the session saw it.
    made: Option<Instant>,
    /// The moment when a backup was asked for.
    asked: Option<Instant>,
    /// Whether records were let go of behind the newest backup.
    lacks_records: bool,
    /// Whether this server has written since it leads.
    has_written: bool,
}

impl<'a> Session<'a> {
    /// Opens the archive, and finds out how far the log is in it.
    ///
    /// # Errors
    /// A text for people.
    pub fn begin(archiver: &'a Archiver, wanted: &Wanted) -> Result<Session<'a>, String> {
        let engine = &archiver.engine;
        let (generation, version) = (archiver.state().generation, engine.store_version());
        let known = position::read(&engine.settings.config().dir).filter(|known| known.place == wanted.to);
        let archive = open(archiver, wanted, known.as_ref())?;
        // The last record before the chain, and both before the names: what comes meanwhile may be of another history.
        let last = archiver.engine.store().map_or(Index(0), |store| store.log().last());
        let chain = archiver.chain().ok_or("the data are not open")?;
        let known = known.filter(|known| known.archive.is_empty() || known.archive == archive.id());
        let known = known.and_then(|known| known.in_chain(&chain));
        let newest = archive.newest_in(&chain, known).map_err(|error| error.to_string())?;
        let newest_backup = latest(&archive, &chain).map_err(|error| error.to_string())?;
        let found = newest.map(|(at, name)| name.last.min(chain.end(at)).min(last));
        // The archive says how far it has the log; this server's word counts where it has nothing of it. A backup may
        // be further: what leads from an older one to it is archived nevertheless.
        let reached = found.or(known.map(|(_, through)| through));
        if found.is_none() && newest_backup.is_none() {
            let catalog = archive.catalog().map_err(|error| error.to_string())?;
            let is_ours = |starts: &Chain| starts.starts().iter().any(|start| chain.position(start.history).is_some());
            let has_others = catalog.newest().is_some_and(|(_, newest)| !is_ours(&newest));
            if has_others {
                return Err(format!(
                    "the archive at {} is that of other data: choose another place, or empty this one",
                    archive.name()
                ));
            }
        }
        let backups_made = engine.archiving.facts().backup.made;
        let mut session = Session {
            archiver,
            wanted: wanted.clone(),
            archive,
            generation,
            version,
            reached: Index(0),
            chunks: None,
            waiting: engine.archiving.facts().waiting,
            looked: None,
            noted: Instant::now(),
            newest_backup,
            seen: Instant::now(),
            looks: LOST_LOOK,
            backups_made,
            made: None,
            asked: None,
            lacks_records: false,
            has_written: archiver.writes(),
        };
        session.go_on_behind(reached)?;
        session.look_for_hole(&chain)?;
        session.note_backup();
        Ok(session)
    }

    /// Holds the log behind a record; behind the first one that is there if what follows on the record is gone.
    fn go_on_behind(&mut self, reached: Option<Index>) -> Result<(), String> {
        let store = self.archiver.engine.store().ok_or("the data are not open")?;
        let log = store.log();
        let oldest = Index(log.stats().first.0.saturating_sub(1));
        // Records that an archive has beyond the log are another server's, which this one follows.
        let wanted = reached.unwrap_or(oldest).min(log.last());
        let (hold, through) = match log.hold_after(wanted) {
            Some(hold) => (hold, wanted),
            None => hold_all(log),
        };
        if through > wanted {
            let hole = (wanted.next(), through);
            tracing::warn!("records {} to {} were not archived and are gone: a backup is made", hole.0, hole.1);
            self.archiver.engine.archiving.note(|facts| facts.hole = Some(hole));
            // At once, however short ago another one was asked for.
            (self.lacks_records, self.asked) = (true, None);
        }
        let mut state = self.archiver.state();
        if state.generation != self.generation {
            return Err("the data were opened again".into());
        }
        state.hold = Some(hold);
        drop(state);
        (self.reached, self.chunks) = (through, None);
        self.archiver.engine.archiving.note(|facts| facts.through = through);
        self.note_position(true);
        Ok(())
    }

    /// Finds out whether records are missing between the newest backup and what is archived: then another one is due.
    fn look_for_hole(&mut self, chain: &Chain) -> Result<(), String> {
        let Some(backup) = &self.newest_backup else { return Ok(()) };
        let reach = self.archive.reach(chain, backup.furthest).map_err(|error| error.to_string())?;
        self.lacks_records = reach < self.reached;
        if self.lacks_records {
            let hole = (reach.next(), self.reached);
            self.archiver.engine.archiving.note(|facts| facts.hole = facts.hole.or(Some(hole)));
        }
        Ok(())
    }

    /// Writes the log as it grows, until the archive or the store is another one. Sets `pause` back where the archive
    /// takes something.
    ///
    /// # Errors
    /// A text for people: the archive refuses.
    pub fn run(&mut self, pause: &mut Duration) -> Result<(), String> {
        while self.goes_on() {
            let writes = self.archiver.writes();
            let state = if writes { "writing" } else { "watching" };
            // The work that failed has to succeed before the archive counts as well again.
            let waits = if writes { self.waiting.is_some() } else { self.looked.is_none() };
            let mut is_failing = false;
            self.archiver.engine.archiving.note(|facts| {
                is_failing = !facts.failure.is_empty() && waits;
                facts.state = if is_failing { "failing" } else { state };
            });
            if !is_failing {
                self.archiver.note_recovery();
            }
            if writes && !std::mem::replace(&mut self.has_written, writes) {
                self.find_backup()?;
                let chain = self.archiver.chain().ok_or("the data are not open")?;
                self.look_for_hole(&chain)?;
            }
            match writes {
                true => self.write(pause)?,
                false => {
                    self.has_written = false;
                    self.watch(pause)?;
                }
            }
            self.archiver.bound_log();
            self.want_backup(writes)?;
            self.archiver.wait(LOOK);
        }
        self.note_position(true);
        Ok(())
    }

    fn goes_on(&self) -> bool {
        let archiver = self.archiver;
        archiver.goes_on() && archiver.engine.store_version() == self.version && archiver.wanted() == self.wanted
    }

    /// Writes the records that have waited long enough, or are enough.
    fn write(&mut self, pause: &mut Duration) -> Result<(), String> {
        let (last, lag_bytes) = match self.archiver.engine.store() {
            Some(store) => (store.archivable(), store.log().bytes_after(self.reached)),
            None => return Ok(()),
        };
        if last <= self.reached {
            self.waiting = None;
        } else {
            let since = *self.waiting.get_or_insert_with(Instant::now);
            if lag_bytes >= CHUNK_BYTES as u64 || since.elapsed() >= Duration::from_secs(self.wanted.interval_s) {
                self.write_through(last, pause)?;
                self.waiting = None;
            }
        }
        let waiting = self.waiting;
        self.archiver.engine.archiving.note(|facts| facts.waiting = waiting);
        Ok(())
    }

    /// Writes the records through `last` that are on the disk.
    fn write_through(&mut self, last: Index, pause: &mut Duration) -> Result<(), String> {
        while self.goes_on() {
            if self.chunks.is_none() {
                let store = self.archiver.engine.store().ok_or("the data are not open")?;
                self.chunks = Some(store.log().chunks(self.reached));
            }
            let chunks = self.chunks.as_mut().expect("it was just made");
            let cut = chunks.next(last, CHUNK_BYTES).map_err(|error| {
                self.chunks = None;
                error.to_string()
            })?;
            match cut {
                ChunkCut::Chunk(chunk) => {
                    assert_eq!(chunk.first, self.reached.next(), "chunks follow each other");
                    if let Err(error) = self.archive.put_chunk(&chunk) {
                        self.chunks = None;
                        return Err(error.to_string());
                    }
                    // A directory that was unmounted meanwhile takes chunks as well.
                    self.archive.is_still_there().map_err(|error| error.to_string())?;
                    *pause = RETRY;
                    self.archiver.note_recovery();
                    self.archiver.engine.archiving.note(|facts| {
                        facts.chunks += 1;
                        facts.bytes += chunk.bytes.len() as u64;
                    });
                    // Behind that: whoever sees the record there finds its bytes counted.
                    self.advance(chunk.last);
                }
                ChunkCut::UpToDate => return Ok(()),
                ChunkCut::Gap(_) => return self.go_on_behind(Some(self.reached)),
            }
            self.archiver.bound_log();
        }
        Ok(())
    }

    /// Looks how far another server has come that writes to the archive. Sets `pause` back where the archive answers.
    fn watch(&mut self, pause: &mut Duration) -> Result<(), String> {
        self.chunks = None;
        if self.looked.is_some_and(|looked| looked.elapsed() < Duration::from_secs(self.wanted.interval_s)) {
            return Ok(());
        }
        // Of a directory that was unmounted nothing is there, as where nobody writes.
        self.archive.is_still_there().map_err(|error| error.to_string())?;
        let last = self.archiver.engine.store().map_or(Index(0), |store| store.log().last());
        let chain = self.archiver.chain().ok_or("the data are not open")?;
        let known = (0..chain.starts().len()).rfind(|at| chain.starts()[*at].after() <= self.reached);
        let newest = self.archive.newest_in(&chain, known.map(|at| (at, self.reached)));
        if let Some((at, name)) = newest.map_err(|error| error.to_string())? {
            let through = name.last.min(chain.end(at)).min(last).max(self.reached);
            if through > self.reached {
                self.waiting = None;
                self.advance(through);
            }
        }
        let last = self.archiver.engine.store().map_or(Index(0), |store| store.archivable());
        self.waiting = if last > self.reached { Some(*self.waiting.get_or_insert_with(Instant::now)) } else { None };
        let waiting = self.waiting;
        self.archiver.engine.archiving.note(|facts| facts.waiting = waiting);
        (self.looked, *pause) = (Some(Instant::now()), RETRY);
        Ok(())
    }

    /// Lets go of what is in the archive.
    fn advance(&mut self, through: Index) {
        assert!(through >= self.reached, "what was archived stays");
        self.reached = through;
        let mut state = self.archiver.state();
        let is_same = state.generation == self.generation;
        if let Some(hold) = state.hold.as_mut().filter(|_| is_same) {
            hold.advance(through.max(hold.after()));
        }
        drop(state);
        self.archiver.engine.archiving.note(|facts| facts.through = through);
        self.note_position(false);
    }

    fn note_position(&mut self, at_once: bool) {
        if !at_once && self.noted.elapsed() < NOTE_INTERVAL {
            return;
        }
        self.noted = Instant::now();
        // Under the lock no other store is attached: the position is the one of this store's log.
        let state = self.archiver.state();
        if state.generation == self.generation
            && self.archiver.engine.store_version() == self.version
            && let Some(store) = self.archiver.engine.store()
        {
            self.archiver.note_position(&store, &self.wanted.to, self.archive.id(), self.reached);
        }
    }

    /// Asks for a backup where one is due.
    fn want_backup(&mut self, writes: bool) -> Result<(), String> {
        let facts = self.archiver.engine.archiving.facts();
        if facts.backup.made != self.backups_made {
            (self.backups_made, self.made) = (facts.backup.made, Some(Instant::now()));
            self.find_backup()?;
            let chain = self.archiver.chain().ok_or("the data are not open")?;
            self.look_for_hole(&chain)?;
        }
        if writes && self.seen.elapsed() >= Duration::from_secs(self.wanted.interval_s) * self.looks {
            self.look_for_lost()?;
        }
        let is_under_way = {
            let orders = self.archiver.orders();
            orders.backs_up || orders.wants_backup
        };
        if is_under_way {
            return Ok(());
        }
        let interval_ms = self.wanted.backup_interval_s.saturating_mul(1000);
        let made_before_ms = self.made.map(|made| made.elapsed().as_millis() as u64);
        let is_old = |backup: &Latest| is_old(backup.made_ms, now_ms(), made_before_ms, interval_ms);
        let is_due = self.lacks_records || self.newest_backup.as_ref().is_none_or(is_old);
        let was_asked = self.asked.is_some_and(|asked| asked.elapsed() < BACKUP_RETRY);
        if writes && is_due && !was_asked {
            // Another server may have made one since.
            self.find_backup()?;
            let is_due = self.lacks_records || self.newest_backup.as_ref().is_none_or(is_old);
            let mut orders = self.archiver.orders();
            if is_due && !orders.backs_up && !orders.wants_backup {
                orders.wants_backup = true;
                self.asked = Some(Instant::now());
                self.archiver.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Finds out whether the newest backup is in the archive still: others that write there may have removed it. Then
    /// another one is due at once.
    fn look_for_lost(&mut self) -> Result<(), String> {
        // Of a directory that was unmounted nothing is there.
        self.archive.is_still_there().map_err(|error| error.to_string())?;
        let before = self.newest_backup.clone();
        self.find_backup()?;
        let is_older = |before: &Latest| self.newest_backup.as_ref().is_none_or(|now| now.made_ms < before.made_ms);
        if let Some(Latest { name, .. }) = before.filter(is_older) {
            tracing::warn!("the backup {name} has gone from the archive: another one is made");
            (self.asked, self.made, self.lacks_records) = (None, None, true);
            self.looks = (self.looks * 2).min(LOST_LOOK_MAX);
        }
        Ok(())
    }

    fn find_backup(&mut self) -> Result<(), String> {
        let chain = self.archiver.chain().ok_or("the data are not open")?;
        self.newest_backup = latest(&self.archive, &chain).map_err(|error| error.to_string())?;
        self.seen = Instant::now();
        self.note_backup();
        Ok(())
    }

    fn note_backup(&self) {
        if let Some(Latest { name, made_ms, .. }) = self.newest_backup.clone() {
            self.archiver.engine.archiving.note(|facts| {
                (facts.backup.last, facts.backup.last_s) = (name, made_ms / 1000);
            });
        }
    }
}

/// Whether the newest backup is old enough for another one, where this process made its last one so long ago.
///
/// A backup of the future is one of a clock that was wrong: then the time since the last one of this process counts.
fn is_old(made_ms: u64, now_ms: u64, made_before_ms: Option<u64>, interval_ms: u64) -> bool {
    let age_ms = now_ms.checked_sub(made_ms).or(made_before_ms);
    interval_ms > 0 && age_ms.is_none_or(|age_ms| age_ms >= interval_ms)
}

/// Opens an archive; begins one where there is none and this server knows of none.
pub(super) fn open(archiver: &Archiver, wanted: &Wanted, known: Option<&Position>) -> Result<Archive, String> {
    let place = place_of(&wanted.to, &wanted.options, &archiver.goes_on)?;
    let key = key_of(wanted.key_file.as_deref())?;
    let expects_one = known.is_some_and(|known| !known.archive.is_empty());
    let opened = match expects_one {
        true => Archive::open(place, key),
        false => Archive::open_or_begin(place, key),
    };
    opened.map_err(|error| match error {
        Error::NoArchive(_) => format!(
            "{error} any more: is the place mounted? To begin another one there, make 'archive-to' empty, and name the \
             place again"
        ),
        error => error.to_string(),
    })
}

impl Archiver {
    /// Returns the histories of the data; None while they are not open.
    pub(super) fn chain(&self) -> Option<Chain> {
        let store = self.engine.store()?;
        Some(Chain::new(store.log().histories().starts()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_go_on_behind_a_clock_that_was_wrong() {
        for (made_ms, now_ms, made_before_ms, expected) in [
            (1000, 1500, None, false),
            (1000, 2000, None, true),
            (1000, 2000, Some(10), true),
            (9000, 2000, None, true),
            (9000, 2000, Some(999), false),
            (9000, 2000, Some(1000), true),
        ] {
            assert_eq!(
                is_old(made_ms, now_ms, made_before_ms, 1000),
                expected,
                "{made_ms} {now_ms} {made_before_ms:?}"
            );
            assert!(!is_old(made_ms, now_ms, made_before_ms, 0), "none are wanted by time");
        }
    }
}
