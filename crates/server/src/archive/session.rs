//! The log on its way to one archive, as long as that and the store stay the same.

use super::latest::{Latest, latest, now_ms};
use super::place::key_of;
use super::position;
use super::{Archiver, LOOK, RETRY};
use haypile_archive::{Archive, Chain, place_of};
use haypile_config::Archive as Wanted;
use haypile_log::{ChunkCut, Chunks, Index};
use std::time::{Duration, Instant};

/// Bytes of a chunk, about: a request to a store costs the same for less, and a chunk lies in memory.
const CHUNK_BYTES: usize = 7 << 20;

/// How often the file that says how far the log is archived is written.
const NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after a backup that failed the next one is tried.
const BACKUP_RETRY: Duration = Duration::from_secs(300);

pub struct Session<'a> {
    archiver: &'a Archiver,
    wanted: Wanted,
    archive: Archive,
    /// The version of the store that is archived.
    version: u64,
    /// Every record through this is in the archive, as far as the log had it.
    reached: Index,
    chunks: Option<Chunks>,
    /// Since when records wait.
    waiting: Option<Instant>,
    looked: Instant,
    noted: Instant,
    newest_backup: Option<Latest>,
    /// How many backups were made when `newest_backup` was looked for.
    backups_made: u64,
    /// A backup was asked for then.
    asked: Option<Instant>,
    /// Whether records were let go of behind the newest backup.
    lacks_records: bool,
}

impl<'a> Session<'a> {
    /// Opens the archive, and finds out how far the log is in it.
    ///
    /// # Errors
    /// A text for people.
    pub fn begin(archiver: &'a Archiver, wanted: &Wanted) -> Result<Session<'a>, String> {
        let engine = &archiver.engine;
        let place = place_of(&wanted.to, &wanted.options, &archiver.goes_on)?;
        let archive = Archive::open_or_begin(place, key_of(wanted.key_file.as_deref())?);
        let archive = archive.map_err(|error| error.to_string())?;
        let version = engine.store_version();
        let chain = archiver.chain().ok_or("the data are not open")?;
        let known = position::read(&engine.settings.config().dir).filter(|known| known.place == wanted.to);
        let known = known.and_then(|known| chain.position(known.history).map(|at| (at, known.through)));
        let newest = archive.newest_in(&chain, known).map_err(|error| error.to_string())?;
        let found = newest.map(|(at, name)| name.last.min(chain.end(at)));
        let reached = found.into_iter().chain(known.map(|(_, through)| through)).max();
        let newest_backup = latest(&archive, &chain).map_err(|error| error.to_string())?;
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
            version,
            reached: Index(0),
            chunks: None,
            waiting: None,
            looked: Instant::now(),
            noted: Instant::now(),
            newest_backup,
            backups_made,
            asked: None,
            lacks_records: false,
        };
        session.go_on_behind(reached)?;
        session.note_backup();
        Ok(session)
    }

    /// Holds the log behind a record; behind the first one that is there if what follows on the record is gone.
    fn go_on_behind(&mut self, reached: Option<Index>) -> Result<(), String> {
        let store = self.archiver.engine.store().ok_or("the data are not open")?;
        let log = store.log();
        let first = log.stats().first;
        let oldest = Index(first.0.saturating_sub(1));
        // What an archive has beyond the log is another server's, which this one follows.
        let wanted = reached.unwrap_or(oldest).min(log.last());
        let (hold, through) = match log.hold_after(wanted) {
            Some(hold) => (hold, wanted),
            None => (log.hold_after(oldest).ok_or("the log's oldest records have just gone")?, oldest),
        };
        if through > wanted {
            let hole = (wanted.next(), through);
            tracing::warn!("records {} to {} were not archived and are gone: a backup is made", hole.0, hole.1);
            self.archiver.engine.archiving.note(|facts| facts.hole = Some(hole));
            self.lacks_records = true;
        }
        self.archiver.state().hold = Some(hold);
        (self.reached, self.chunks) = (through, None);
        self.archiver.engine.archiving.note(|facts| facts.through = through);
        self.note_position(true);
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
            self.archiver.engine.archiving.note(|facts| {
                if facts.state != state {
                    (facts.state, facts.failure) = (state, String::new());
                }
            });
            match writes {
                true => self.write(pause)?,
                false => self.watch()?,
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
                    *pause = RETRY;
                    self.advance(chunk.last);
                    self.archiver.engine.archiving.note(|facts| {
                        facts.chunks += 1;
                        facts.bytes += chunk.bytes.len() as u64;
                    });
                }
                ChunkCut::UpToDate => return Ok(()),
                ChunkCut::Gap(_) => return self.go_on_behind(Some(self.reached)),
            }
        }
        Ok(())
    }

    /// Looks how far another server has come that writes to the archive.
    fn watch(&mut self) -> Result<(), String> {
        self.chunks = None;
        if self.looked.elapsed() < Duration::from_secs(self.wanted.interval_s) {
            return Ok(());
        }
        self.looked = Instant::now();
        let chain = self.archiver.chain().ok_or("the data are not open")?;
        let known = (0..chain.starts().len()).rfind(|at| chain.starts()[*at].after() <= self.reached);
        let newest = self.archive.newest_in(&chain, known.map(|at| (at, self.reached)));
        if let Some((at, name)) = newest.map_err(|error| error.to_string())? {
            let last = self.archiver.engine.store().map_or(Index(0), |store| store.log().last());
            self.advance(name.last.min(chain.end(at)).min(last).max(self.reached));
        }
        Ok(())
    }

    /// Lets go of what is in the archive.
    fn advance(&mut self, through: Index) {
        assert!(through >= self.reached, "what was archived stays");
        self.reached = through;
        if let Some(hold) = self.archiver.state().hold.as_mut() {
            hold.advance(through.max(hold.after()));
        }
        self.archiver.engine.archiving.note(|facts| facts.through = through);
        self.note_position(false);
    }

    fn note_position(&mut self, at_once: bool) {
        if !at_once && self.noted.elapsed() < NOTE_INTERVAL {
            return;
        }
        self.noted = Instant::now();
        if let Some(store) = self.archiver.engine.store() {
            self.archiver.note_position(&store, &self.wanted.to, self.reached);
        }
    }

    /// Asks for a backup where one is due.
    fn want_backup(&mut self, writes: bool) -> Result<(), String> {
        let facts = self.archiver.engine.archiving.facts();
        if facts.backup.made != self.backups_made {
            self.backups_made = facts.backup.made;
            self.lacks_records = false;
            self.find_backup()?;
        }
        let interval_ms = self.wanted.backup_interval_s.saturating_mul(1000);
        let is_old = |backup: &Latest| interval_ms > 0 && now_ms().saturating_sub(backup.made_ms) >= interval_ms;
        let is_due = self.lacks_records || self.newest_backup.as_ref().is_none_or(is_old);
        let was_asked = self.asked.is_some_and(|asked| asked.elapsed() < BACKUP_RETRY);
        if writes && is_due && !was_asked {
            // Another server may have made one since.
            self.find_backup()?;
            let is_due = self.lacks_records || self.newest_backup.as_ref().is_none_or(is_old);
            let mut state = self.archiver.state();
            if is_due && !state.backs_up && !state.wants_backup {
                state.wants_backup = true;
                self.asked = Some(Instant::now());
                self.archiver.changed.notify_all();
            }
        }
        Ok(())
    }

    fn find_backup(&mut self) -> Result<(), String> {
        let chain = self.archiver.chain().ok_or("the data are not open")?;
        self.newest_backup = latest(&self.archive, &chain).map_err(|error| error.to_string())?;
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

impl Archiver {
    /// Returns the histories of the data; None while they are not open.
    pub(super) fn chain(&self) -> Option<Chain> {
        let store = self.engine.store()?;
        Some(Chain::new(store.log().histories().starts()))
    }
}
