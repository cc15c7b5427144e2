//! The survey of the directory at open: which segments count, up to where, and whether a missing file may be missing.
//!
//! Nothing is changed here. The rule: the first bad place ends the log, unless a record at or behind that place is
//! known to have been synced, by some group that is still readable, by the end file, or because the base holds it; then
//! it is damage, and an error that says where. What is cut off is reported.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::end::{End, Noted, read_end};
use crate::error::{Damage, OpenError};
use crate::files::{File, Files, read_exact_at, write_all_at};
use crate::format::{Entry, History, HistoryStart, Index, Origin, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::histories::{Applied, Histories};
use crate::listing::{first_index, known_kind, list, open_segment};
use crate::options::Options;
use crate::segment::{Held, Segment, segment_name};
use crate::walk::{Bad, Behind, Walk, highest_mark};

/// Bytes that are written again at a time.
const WRITE_BYTES: usize = 1 << 20;

/// The end of a log that was found behind its last whole record, and is cut off. It was not known to be synced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: PathBuf,
    pub offset: u64,
    /// Bytes from the end of the last record to the last byte that is not zero.
    pub bytes: u64,
    /// The last record that counts.
    pub last: Index,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { file, offset, bytes, last } = self;
        write!(f, "{bytes} bytes behind record {last}, in {} from offset {offset} on", file.display())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Survey {
    /// The segments with records that count, and the last one even if it has none.
    pub segments: Vec<Held>,
    /// The histories that the segments tell of; that of the last segment is the newest.
    pub histories: Histories,
    /// The first history that begins with loaded data which the base does not have.
    pub lacking: Option<HistoryStart>,
    /// The last record; 0 if there is none.
    pub last: Index,
    /// The entry that the last record belongs to; none where the last segment has no record.
    pub entry: Entry,
    /// No record has a later time than this.
    pub time_ms: u64,
    pub clean: bool,
    /// The offset in the last segment of the first group that no later one knew to be synced.
    pub unsynced_from: u64,
    /// Files without any record that counts or ever will.
    pub sweep: Vec<PathBuf>,
    pub next_number: u64,
    /// Position in `segments` of the first one that replay needs.
    pub replay_from: usize,
    pub cut: Option<Cut>,
    /// Whether there is an end file.
    pub has_end: bool,
}

/// A record that the log has to reach, and why.
struct Known {
    index: Index,
    why: String,
}

/// The damage of a directory whose end file is gone: the end of the log may be, too, or all of it.
fn unnoted(path: &Path) -> Damage {
    Damage {
        file: path.to_owned(),
        offset: 0,
        index: Index(1),
        reason: "the note of how far the log reaches is missing, so that more may be".into(),
    }
}

impl Survey {
    pub(crate) fn of(options: &Options, applied: Applied) -> Result<Survey, OpenError> {
        let mut survey = Survey {
            segments: Vec::new(),
            histories: Histories::default(),
            lacking: None,
            last: Index(0),
            entry: Entry::default(),
            time_ms: 0,
            clean: false,
            unsynced_from: SEGMENT_HEADER_BYTES,
            sweep: Vec::new(),
            next_number: 1,
            replay_from: 0,
            cut: None,
            has_end: false,
        };
        let end = survey.read_end(options)?;
        survey.has_end = end.is_some();
        let listing = list(&*options.files, &options.dir)?;
        survey.sweep = listing.unfinished;
        let is_listed = |number| listing.segments.iter().any(|(listed, _)| *listed == number);
        let end_is_listed = end.is_none_or(|end| is_listed(end.segment));
        // Segments that follow their predecessor and have no first group: never used, or torn in their first write.
        let mut unused: Vec<(Arc<Segment>, u64)> = Vec::new();
        for (number, path) in listing.segments {
            survey.next_number = number + 1;
            let (segment, file) = open_segment(&*options.files, number, path)?;
            let bytes = file.len().map_err(OpenError::io(&segment.path))?;
            match first_index(&segment, &*file).map_err(OpenError::io(&segment.path))? {
                Some(first) => {
                    survey.sweep.extend(unused.drain(..).map(|(unused, _)| unused.path.clone()));
                    survey.push(Held {
                        segment: Arc::new(segment),
                        first,
                        last: Index(u64::MAX),
                        end: bytes,
                        bytes,
                    })?;
                }
                None => unused.push((Arc::new(segment), bytes)),
            }
        }
        let known = known(options, applied.index, end);
        survey.find_end(&options.dir, &*options.files, &unused, &known)?;
        if let Some(keep) = options.keep_through {
            survey.cut_behind(keep, &*options.files)?;
        }
        if let Some(end) = end.filter(|_| !end_is_listed) {
            survey.refuse_missing(&options.dir, end.segment)?;
        }
        survey.sweep.extend(unused.iter().map(|(segment, _)| segment.path.clone()));
        survey.find_replay_start(applied.index)?;
        survey.tell_histories(applied, end)?;
        Ok(survey)
    }

    fn read_end(&self, options: &Options) -> Result<Option<End>, OpenError> {
        let Some(at) = &options.end else { return Ok(None) };
        let Some(Noted { end, .. }) = read_end(&*options.files, &at.path)? else {
            return if at.is_expected { Err(OpenError::Damage(unnoted(&at.path))) } else { Ok(None) };
        };
        if end.directory != at.directory {
            let (found, expected) = (end.directory, at.directory);
            return Err(OpenError::Mixed { path: at.path.clone(), found, expected });
        }
        Ok(Some(end))
    }

    /// Records went to segment `number`, which is not listed: it may be gone only if a later one has records.
    fn refuse_missing(&self, dir: &Path, number: u64) -> Result<(), OpenError> {
        if self.segments.last().is_some_and(|held| held.segment.header.number > number) {
            return Ok(());
        }
        Err(OpenError::Damage(Damage {
            file: dir.join(segment_name(number)),
            offset: 0,
            index: self.last.next(),
            reason: "it is missing, and records were written to it".into(),
        }))
    }

    /// Puts together what the segments say of histories, and refuses what did not get here with their records. Of
    /// segments that the replay does not need a power failure may have left any, so that they are not asked.
    fn tell_histories(&mut self, applied: Applied, end: Option<End>) -> Result<(), OpenError> {
        for held in &self.segments[self.replay_from..] {
            let SegmentHeader { start, ancestors, .. } = &held.segment.header;
            self.histories.extend(ancestors, *start);
        }
        if let Some(history) = applied.history
            && !self.histories.may_be_applied(history, applied.index)
        {
            return Err(self.foreign(applied.index, history, "the base"));
        }
        if let Some(End { history, synced, .. }) = end
            && !self.histories.may_stand(history, synced)
        {
            return Err(self.foreign(synced, history, "the note of the log's end"));
        }
        self.lacking = self.histories.lacking(applied);
        Ok(())
    }

    /// The error of a log in which the record with this index is known to be of another history.
    fn foreign(&self, index: Index, history: History, who: &str) -> OpenError {
        let held = self.segments.iter().rfind(|held| held.first <= index && index <= held.last);
        let held = held.or(self.segments.get(self.replay_from)).expect("what has histories has segments");
        let here = self.histories.of(index).map_or_else(|| "no history".to_owned(), |here| format!("history {here}"));
        OpenError::Damage(Damage {
            file: held.segment.path.clone(),
            offset: 0,
            index,
            reason: format!("here it is of {here}, and {who} has it of history {history}: they do not belong together"),
        })
    }

    fn push(&mut self, held: Held) -> Result<(), OpenError> {
        if let Some(before) = self.segments.last_mut() {
            if held.first < before.first {
                return Err(OpenError::Damage(Damage {
                    file: held.segment.path.clone(),
                    offset: SEGMENT_HEADER_BYTES,
                    index: held.first,
                    reason: format!("it begins before its predecessor, which begins with record {}", before.first),
                }));
            }
            before.last = Index(held.first.0 - 1);
            if before.last < before.first {
                self.sweep.push(before.segment.path.clone());
                self.segments.pop();
            }
        }
        self.segments.push(held);
        Ok(())
    }

    /// Walks the last segment to its end, and looks at what lies behind.
    fn find_end(
        &mut self,
        dir: &Path,
        files: &dyn Files,
        unused: &[(Arc<Segment>, u64)],
        known: &Known,
    ) -> Result<(), OpenError> {
        let Some(tail) = self.segments.last_mut() else { return refuse_nothing(dir, unused, known) };
        let segment = tail.segment.clone();
        let io_error = || OpenError::io(&segment.path);
        let file = files.open(&segment.path).map_err(io_error())?;
        let mut walk = Walk::new(file.clone(), segment.header.salt, tail.first, tail.bytes);
        // Where the last record ends, or the mark of a clean stop behind it.
        let mut good_end = SEGMENT_HEADER_BYTES;
        // A segment that supersedes was made when all before it was there.
        let mut time_ms = if segment.header.first.0 > 0 { segment.header.created_ms } else { 0 };
        let mut entry = Entry::default();
        // Groups above the newest mark: at most what the writer was allowed to leave unsynced.
        let mut unsynced = VecDeque::new();
        let mut next = walk.next_index();
        let mut bad = loop {
            match walk.step().map_err(io_error())? {
                Ok(found) => {
                    known_kind(&segment, found.header.kind)?;
                    // An entry of a consensus group is there as a whole, or it is not.
                    if found.group.entry == Entry::default() || walk.offset() == found.group_end() {
                        (good_end, next) = (walk.offset(), walk.next_index());
                        entry = found.group.entry;
                        time_ms = found.header.time_ms;
                    }
                    if found.header.index == found.group.first {
                        unsynced.push_back((found.group.first, found.group_start));
                        while unsynced.front().is_some_and(|(first, _)| *first <= found.group.synced) {
                            unsynced.pop_front();
                        }
                    }
                }
                Err(bad) => break bad,
            }
        };
        if next < bad.index {
            bad = Bad { offset: good_end, index: next, reason: bad.reason };
        }
        let marked = walk.marked();
        let clean = marked.is_some();
        // The mark says that all before it was synced.
        let first_unsynced = unsynced.front().filter(|_| !clean);
        self.unsynced_from = first_unsynced.map_or(bad.offset, |(_, start)| *start);
        if bad.index <= known.index {
            return Err(damage(&segment.path, &bad, format!("{}, and {}", bad.reason, known.why)));
        }
        tail.last = Index(bad.index.0 - 1);
        tail.end = marked.unwrap_or(bad.offset);
        if !clean {
            self.cut = cut_off(files, &*file, tail, good_end, &bad, unused)?;
        }
        self.clean = clean;
        (self.last, self.entry) = (tail.last, entry);
        self.time_ms = time_ms;
        Ok(())
    }

    /// Takes back the records behind `keep`.
    fn cut_behind(&mut self, keep: Index, files: &dyn Files) -> Result<(), OpenError> {
        if self.last <= keep {
            return Ok(());
        }
        while self.last > keep {
            let has_others = self.segments.len() > 1;
            let tail = self.segments.last_mut().expect("a log with records has segments");
            if tail.first > keep && has_others {
                let gone = self.segments.pop().expect("it was just looked at");
                self.sweep.push(gone.segment.path.clone());
                let tail = self.segments.last().expect("there are two");
                (self.last, self.unsynced_from) = (tail.last, u64::MAX);
                continue;
            }
            let segment = tail.segment.clone();
            let file = files.open(&segment.path).map_err(OpenError::io(&segment.path))?;
            let mut walk = Walk::new(file, segment.header.salt, tail.first, tail.end);
            while walk.next_index() <= keep {
                match walk.step().map_err(OpenError::io(&segment.path))? {
                    Ok(found) => self.time_ms = found.header.time_ms,
                    Err(bad) => return Err(damage(&segment.path, &bad, bad.reason.into())),
                }
            }
            (tail.last, tail.end, self.last) = (keep, walk.offset(), keep);
        }
        let tail = self.segments.last().expect("a log with records has segments");
        self.unsynced_from = self.unsynced_from.min(tail.end);
        (self.clean, self.cut) = (false, None);
        Ok(())
    }

    /// Writes the newest records once more where they are, and syncs them. After a crash of the process alone, they may
    /// be in the page cache only; and if a sync failed just before, the kernel takes them for written.
    pub(crate) fn write_end_again(&self, files: &dyn Files) -> Result<(), OpenError> {
        let Some(tail) = self.segments.last() else { return Ok(()) };
        let write_again = || -> io::Result<()> {
            let file = files.open(&tail.segment.path)?;
            let mut buf = vec![0; WRITE_BYTES.min((tail.end - self.unsynced_from) as usize)];
            let mut offset = self.unsynced_from;
            while offset < tail.end {
                let wanted = (tail.end - offset).min(buf.len() as u64) as usize;
                if read_exact_at(&*file, &mut buf[..wanted], offset)? < wanted {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                write_all_at(&*file, &buf[..wanted], offset)?;
                offset += wanted as u64;
            }
            file.sync()
        };
        write_again().map_err(OpenError::io(&tail.segment.path))
    }

    fn find_replay_start(&mut self, applied: Index) -> Result<(), OpenError> {
        let Some(oldest) = self.segments.first() else { return Ok(()) };
        match self.segments.iter().rposition(|held| held.first <= applied.next()) {
            Some(position) => {
                self.replay_from = position;
                Ok(())
            }
            None => Err(OpenError::Damage(Damage {
                file: oldest.segment.path.clone(),
                offset: SEGMENT_HEADER_BYTES,
                index: applied.next(),
                reason: format!("the log begins with record {}, the base ends with {applied}", oldest.first),
            })),
        }
    }
}

/// Refuses a log without any segment that has records, where records are known to have been there.
fn refuse_nothing(dir: &Path, unused: &[(Arc<Segment>, u64)], known: &Known) -> Result<(), OpenError> {
    let damage =
        |file: PathBuf, offset, reason| Err(OpenError::Damage(Damage { file, offset, index: Index(1), reason }));
    match unused.first() {
        // The first segment of all names its first record.
        Some((segment, _)) => {
            damage(segment.path.clone(), SEGMENT_HEADER_BYTES, "its predecessors are missing".to_owned())
        }
        None if known.index.0 > 0 => damage(dir.to_owned(), 0, format!("there is no segment, and {}", known.why)),
        None => Ok(()),
    }
}

fn damage(file: &Path, bad: &Bad, reason: String) -> OpenError {
    OpenError::Damage(Damage { file: file.to_owned(), offset: bad.offset, index: bad.index, reason })
}

/// Returns what is cut off behind the last whole record of `tail`, which ends at `good_end`, where the log was not
/// stopped cleanly; None where nothing was written there.
///
/// # Errors
/// [`OpenError::Damage`] where what is there, or is missing there, shows that the `bad` place was synced.
fn cut_off(
    files: &dyn Files,
    file: &dyn File,
    tail: &Held,
    good_end: u64,
    bad: &Bad,
    unused: &[(Arc<Segment>, u64)],
) -> Result<Option<Cut>, OpenError> {
    let segment = &tail.segment;
    let mut behind =
        highest_mark(file, segment.header.salt, good_end, bad.index).map_err(OpenError::io(&segment.path))?;
    let mut bytes = behind.end - good_end;
    for (later, _) in unused {
        let more = behind_spare(files, later, bad.index)?;
        behind.mark = behind.mark.max(more.mark);
        bytes += more.end - SEGMENT_HEADER_BYTES;
    }
    if bad.index <= behind.mark {
        let reason = format!("{}, and all through record {} was synced", bad.reason, behind.mark);
        return Err(damage(&segment.path, bad, reason));
    }
    // A file has its allocated length before it gets its name, and only a clean stop shortens it.
    let mut segments = unused.iter().map(|(segment, bytes)| (segment, *bytes)).chain([(segment, tail.bytes)]);
    if let Some((short, found)) = segments.find(|(segment, found)| *found < segment.header.allocated_bytes) {
        let reason = format!("the file has {found} of its {} bytes: it was cut off", short.header.allocated_bytes);
        let at = Damage { file: short.path.clone(), offset: found, index: bad.index, reason };
        return Err(OpenError::Damage(at));
    }
    Ok((bytes > 0).then(|| Cut { file: segment.path.clone(), offset: good_end, bytes, last: tail.last }))
}

/// Returns the record that the log has to reach: all that the base or a backup holds was synced before.
fn known(options: &Options, applied: Index, end: Option<End>) -> Known {
    let (complete, synced) = (options.complete_through, end.map_or(Index(0), |end| end.synced));
    let ends = [
        Known { index: complete, why: format!("all through record {complete} was synced") },
        Known { index: synced, why: format!("all through record {synced} was synced") },
        Known { index: applied, why: format!("the base holds all through record {applied}") },
    ];
    ends.into_iter().max_by_key(|known| known.index).expect("there are three")
}

/// Looks into a segment that has no first group: its first write may have been torn, and a later one not.
fn behind_spare(files: &dyn Files, spare: &Segment, expected: Index) -> Result<Behind, OpenError> {
    let file = files.open(&spare.path).map_err(OpenError::io(&spare.path))?;
    let behind = highest_mark(&*file, spare.header.salt, SEGMENT_HEADER_BYTES, expected);
    behind.map_err(OpenError::io(&spare.path))
}

/// Returns the origin of the history of an open log; None if the history that was found goes on.
pub(crate) fn origin_at_open(survey: &Survey, follows: bool) -> Option<Origin> {
    let Some(newest) = survey.histories.newest() else { return Some(Origin::Nothing) };
    match survey.lacking {
        // The load never came to be, and nothing was written since.
        Some(loaded) if survey.last == loaded.after() => Some(survey.histories.origin_without(loaded)),
        _ => (!survey.clean && !follows).then_some(Origin::Fork(newest.history, survey.last)),
    }
}
