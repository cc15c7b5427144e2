//! The replay of the log at open: one thread reads and checks records, some at a time; another locates the rows that
//! they write and prefetches them together, as for the requests of a pipeline, and then applies the records one by one.

use crate::apply::{ParsedEffects, parse};
use crate::memtable::{Change, Found, TOGETHER_MAX};
use crate::open::OpenError;
use crate::row::{Key, parse_meta_row, space_of};
use crate::store::Store;
use crate::value::Value;
use haypile_log::{ADVICE, Effect, HistoryStart, Index, Kind, Progress, Replay};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long the flushes that the replay waits for may go on failing. A flush may fail because a compaction has all room
/// just now, and gives it back.
const FAILING_MAX: Duration = Duration::from_secs(5);

/// How often replay tells its progress, in bytes of records.
const PROGRESS_BYTES: usize = 1 << 20;

/// Bytes of records in a batch, and one record more: enough to be worth the way to another thread.
const BATCH_BYTES: usize = 256 << 10;

/// Batches in flight between the thread that reads them and the one that applies them. A batch with a long record has
/// only that one.
const BATCHES: usize = 4;

/// A record's index and kind, when it was written, and where its body lies.
type Bounds = (Index, Kind, u64, Range<usize>);

/// Consecutive records. Batches are reused.
#[derive(Default)]
struct Batch {
    bodies: Vec<u8>,
    records: Vec<Bounds>,
    progress: Option<Progress>,
}

impl Store {
    /// Applies all records above the base, which may take long after a kill; the log takes appends afterwards.
    /// `lacking` is the first history that begins with loaded data which the base does not have.
    pub(crate) fn replay_all(
        &self,
        replay: &mut Replay,
        lacking: Option<HistoryStart>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), OpenError> {
        let (full, batches) = sync_channel(BATCHES);
        let (empty, emptied) = sync_channel(BATCHES);
        let read_from = &mut *replay;
        std::thread::scope(|scope| {
            scope.spawn(move || read(read_from, &full, &emptied));
            self.apply_batches(batches, empty, lacking, progress)
        })?;
        replay.finish().map_err(|error| OpenError(error.to_string()))
    }

    /// Applies the batches that arrive. Owns its ends of the channels: when it fails, the thread that reads stops too.
    fn apply_batches(
        &self,
        batches: Receiver<Result<Batch, OpenError>>,
        empty: SyncSender<Batch>,
        lacking: Option<HistoryStart>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(), OpenError> {
        let (mut untold, mut last) = (0, None);
        for batch in batches {
            let batch = batch?;
            for together in batch.records.chunks(TOGETHER_MAX) {
                self.replay_together(&batch.bodies, together, lacking)?;
                let flushes = !self.options.memory_only && !self.base.is_read_only();
                if flushes && self.memtable.active_bytes() > self.flush.memtable_bytes() {
                    self.flush.request();
                    self.wait_for_flush()?;
                }
            }
            untold += batch.bodies.len();
            last = batch.progress.or(last);
            if let Some(far) = batch.progress.filter(|_| untold >= PROGRESS_BYTES) {
                untold = 0;
                progress(far);
            }
            // The reader does not want the batch any more at the end.
            let _ = empty.send(if batch.is_long() { Batch::default() } else { batch });
        }
        if let Some(far) = last {
            progress(far);
        }
        Ok(())
    }

    /// Applies the records of a batch. Refuses records of a history that begins with data which the base does not have.
    fn replay_together(
        &self,
        bodies: &[u8],
        records: &[Bounds],
        lacking: Option<HistoryStart>,
    ) -> Result<(), OpenError> {
        let error = |index: Index, why: String| OpenError(format!("record {} of the log: {why}. {ADVICE}", index.0));
        // Of an engine without a base only the rest of its log is left.
        let is_applied = |kind: Kind| kind.has_effects() && !self.options.memory_only;
        let mut effects: Vec<Effect<'_>> = Vec::with_capacity(TOGETHER_MAX);
        let mut ends: SmallVec<[usize; TOGETHER_MAX]> = SmallVec::new();
        for (index, kind, _, body) in records {
            if is_applied(*kind) {
                let from = effects.len();
                parse(&bodies[body.clone()], |effect| effects.push(effect)).map_err(|why| error(*index, why))?;
                self.pass_over_dead(&mut effects, from);
            }
            ends.push(effects.len());
        }
        self.fetch(effects.iter().copied());
        let mut from = 0;
        for ((index, kind, time_ms, body), until) in records.iter().zip(ends) {
            if is_applied(*kind) {
                if let Some(start) = lacking.filter(|start| *index > start.after() && from < until) {
                    let what = "follows data that were loaded into the base behind record";
                    let why = format!("it {what} {}, and the base does not have them: it is older", start.after());
                    return Err(error(*index, why));
                }
                self.replay(&bodies[body.clone()], &effects[from..until], *index, *time_ms)
                    .map_err(|why| error(*index, why))?;
            } else {
                self.replayed.store(index.0, Ordering::Release);
            }
            from = until;
        }
        Ok(())
    }

    /// Takes out the effects on spaces that are dead: the base need not have had their rows.
    fn pass_over_dead(&self, effects: &mut Vec<Effect<'_>>, from: usize) {
        if self.databases.dead_count() == 0 {
            return;
        }
        effects.extract_if(from.., |effect| self.is_of_dead_space(effect)).for_each(drop);
    }

    /// Returns whether an effect is on a row of a space that is dead.
    pub(crate) fn is_of_dead_space(&self, effect: &Effect<'_>) -> bool {
        effect.key().and_then(space_of).is_some_and(|space| self.databases.is_dead(space))
    }

    /// Prefetches the rows of the user keys among these effects together, at most of the first `TOGETHER_MAX`.
    pub(crate) fn fetch<'e>(&self, effects: impl Iterator<Item = Effect<'e>>) {
        let mut keys: SmallVec<[Key<'_>; TOGETHER_MAX]> = SmallVec::new();
        let written = effects.filter_map(|effect| match effect {
            Effect::Put { key, .. } | Effect::Delete { key } => parse_meta_row(key),
            Effect::Patch { .. }
            | Effect::Splice { .. }
            | Effect::Count { .. }
            | Effect::Touch { .. }
            | Effect::Statement { .. } => None,
        });
        written.take(TOGETHER_MAX).for_each(|key| keys.push(key));
        self.memtable.prefetch(&keys, true);
    }

    /// Applies one record.
    fn replay<'r>(&self, body: &'r [u8], effects: &[Effect<'r>], index: Index, time_ms: u64) -> Result<(), String> {
        let before = self.replayed.load(Ordering::Acquire);
        debug_assert_eq!(index.0, before + 1, "records are replayed in their order, without gaps");
        let below = self.rows_below_changes(effects)?;
        let mut latches = self.latch_all(effects);
        let mut effects = ParsedEffects { body, effects, below };
        self.apply(index, &mut effects, &mut latches, self.written_at(time_ms));
        // Stored under the latches: a freeze has either the record and its index, or neither.
        self.replayed.store(index.0, Ordering::Release);
        Ok(())
    }

    /// Returns the rows that a record changes in part and does not write first: read before any latch is taken. Also
    /// those that are in the memtable, because the flush may take them from there at any time. Refuses a splice of a
    /// row of another length.
    pub(crate) fn rows_below_changes<'a>(
        &self,
        effects: &[Effect<'a>],
    ) -> Result<HashMap<&'a [u8], Option<Value>>, String> {
        let mut below = HashMap::new();
        if !effects.iter().any(|effect| Change::of(effect).is_some()) {
            return Ok(below);
        }
        // The lengths of rows that the record has written, after its effects so far.
        let mut lengths: HashMap<&[u8], usize> = HashMap::new();
        for effect in effects {
            let (key, length) = match *effect {
                Effect::Put { key, value } => (key, value.len()),
                Effect::Delete { key } => (key, 0),
                Effect::Count { .. } | Effect::Touch { .. } | Effect::Statement { .. } => continue,
                Effect::Patch { .. } | Effect::Splice { .. } => {
                    let (key, change) = Change::of(effect).expect("both are changes");
                    let before = match lengths.get(key) {
                        Some(length) => *length,
                        None => {
                            let row = self.row_below(key)?;
                            let length = row.as_ref().map_or(0, |row| row.len());
                            below.insert(key, row);
                            length
                        }
                    };
                    change.suits(before)?;
                    (key, change.len_after())
                }
            };
            lengths.insert(key, length);
        }
        Ok(below)
    }

    fn row_below(&self, row: &[u8]) -> Result<Option<Value>, String> {
        match self.memtable.row(row) {
            Found::Row(value, _) => Ok(Some(value)),
            Found::Deleted(_) => Ok(None),
            Found::Unknown if self.is_above_base(row) => Ok(None),
            Found::Unknown => self.base_value(row),
        }
    }

    /// Keeps the replay within the memtable's bound while the generation before is on its way to the base.
    fn wait_for_flush(&self) -> Result<(), OpenError> {
        let mut failing_since = None;
        while self.memtable.active_bytes() > self.flush.memtable_bytes() / 4 * 5 {
            if let Some(why) = self.flush.failure()
                && failing_since.get_or_insert_with(Instant::now).elapsed() > FAILING_MAX
            {
                let what = "there is more in the log than memory for it, and what was read so far cannot be flushed";
                return Err(OpenError(format!("{what}: {why}")));
            }
            self.flush.wait_for_progress(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Reads all records, until no thread takes them any more.
fn read(replay: &mut Replay, full: &SyncSender<Result<Batch, OpenError>>, emptied: &Receiver<Batch>) {
    let mut idle: Vec<Batch> = std::iter::repeat_with(Batch::default).take(BATCHES).collect();
    loop {
        let mut batch = match idle.pop() {
            Some(batch) => batch,
            None => match emptied.recv() {
                Ok(batch) => batch,
                Err(_) => return,
            },
        };
        let is_long = match batch.fill(replay) {
            Ok(true) => batch.is_long(),
            Ok(false) => return,
            Err(error) => return drop(full.send(Err(error))),
        };
        if full.send(Ok(batch)).is_err() {
            return;
        }
        while is_long && idle.len() < BATCHES {
            match emptied.recv() {
                Ok(batch) => idle.push(batch),
                Err(_) => return,
            }
        }
    }
}

impl Batch {
    /// Returns whether the batch's memory is too large to be kept.
    fn is_long(&self) -> bool {
        self.bodies.len() > 2 * BATCH_BYTES
    }

    /// Takes the next records; returns false if there are no more.
    fn fill(&mut self, replay: &mut Replay) -> Result<bool, OpenError> {
        self.bodies.clear();
        self.records.clear();
        while self.bodies.len() < BATCH_BYTES {
            let Some(record) = replay.next() else { break };
            let record = record.map_err(|error| OpenError(error.to_string()))?;
            let from = self.bodies.len();
            self.bodies.extend_from_slice(record.body);
            self.records.push((record.index, record.kind, record.time_ms, from..self.bodies.len()));
        }
        self.progress = Some(replay.progress());
        Ok(!self.records.is_empty())
    }
}
