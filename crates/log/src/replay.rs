//! The records above the applied index, streamed at open; and the moment at which the log begins to take appends.
//!
//! Until the replay is finished nothing in the directory is changed, so a damaged log stays as it is.

use std::sync::Arc;
use std::thread;

use crate::error::{Damage, OpenError};
use crate::format::{Index, Kind};
use crate::listing::known_kind;
use crate::phase::Phase;
use crate::record::Record;
use crate::state::{Shared, State, Threads};
use crate::survey::Survey;
use crate::walk::{Bad, Walk};

/// How far a replay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done_bytes: u64,
    pub total_bytes: u64,
}

#[must_use = "the log takes appends when its replay is finished"]
pub struct Replay {
    shared: Arc<Shared>,
    threads: Arc<Threads>,
    survey: Survey,
    applied: Index,
    position: usize,
    walk: Option<Walk>,
    /// Bytes of the segments before the current one.
    passed_bytes: u64,
    total_bytes: u64,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Reading,
    AtEnd,
    Failed,
    Begun,
}

impl Replay {
    pub(crate) fn new(shared: Arc<Shared>, threads: Arc<Threads>, survey: Survey, applied: Index) -> Replay {
        let needed = survey.segments[survey.replay_from..].iter();
        let total_bytes = needed.filter(|held| held.last > applied).map(|held| held.end).sum();
        let position = survey.replay_from;
        Replay {
            shared,
            threads,
            survey,
            applied,
            position,
            walk: None,
            passed_bytes: 0,
            total_bytes,
            stage: Stage::Reading,
        }
    }

    pub fn progress(&self) -> Progress {
        let within = self.walk.as_ref().map_or(0, Walk::offset);
        Progress { done_bytes: self.passed_bytes + within, total_bytes: self.total_bytes }
    }

    /// The next record above `applied`. After an error there is nothing more.
    #[allow(clippy::should_implement_trait)] // the record borrows from the replay, which an Iterator cannot express
    pub fn next(&mut self) -> Option<Result<Record<'_>, OpenError>> {
        if self.stage != Stage::Reading {
            return None;
        }
        match self.find() {
            Ok(Some((kind, found))) => {
                let held = &self.survey.segments[self.position];
                let walk = self.walk.as_ref().expect("a record was just found in it");
                Some(Ok(Record {
                    index: found.header.index,
                    history: held.segment.header.start.history,
                    term: found.group.entry.term,
                    entry: found.group.entry.number,
                    kind,
                    time_ms: found.header.time_ms,
                    body: walk.body(&found),
                    body_crc: found.header.body_crc,
                    segment: held.segment.header.number,
                    offset: found.offset,
                }))
            }
            Ok(None) => {
                self.stage = Stage::AtEnd;
                None
            }
            Err(error) => {
                self.stage = Stage::Failed;
                Some(Err(error))
            }
        }
    }

    /// Ends the replay: the log takes appends from here on. Records that were not read are read over. Fails if
    /// `next` has failed.
    pub fn finish(&mut self) -> Result<(), OpenError> {
        while let Some(record) = self.next() {
            record?;
        }
        match self.stage {
            Stage::Reading | Stage::AtEnd => {}
            Stage::Failed => return Err(OpenError::Begin("its records could not be read to the end".into())),
            Stage::Begun => return Ok(()),
        }
        self.stage = Stage::Failed;
        self.begin()?;
        self.stage = Stage::Begun;
        Ok(())
    }

    fn find(&mut self) -> Result<Option<(Kind, crate::walk::Found)>, OpenError> {
        loop {
            let Some(held) = self.survey.segments.get(self.position) else { return Ok(None) };
            let segment = &held.segment;
            if held.last <= self.applied {
                self.position += 1;
                continue;
            }
            let walk = match &mut self.walk {
                Some(walk) => walk,
                none => {
                    let file = self.shared.files.open(&segment.path).map_err(OpenError::io(&segment.path))?;
                    none.insert(Walk::new(file, segment.header.salt, held.first, held.end))
                }
            };
            if walk.next_index() > held.last {
                self.passed_bytes += held.end;
                self.position += 1;
                self.walk = None;
                continue;
            }
            match walk.step().map_err(OpenError::io(&segment.path))? {
                Ok(found) if found.header.index <= self.applied => {}
                Ok(found) => return Ok(Some((known_kind(segment, found.header.kind)?, found))),
                Err(Bad { offset, index, reason }) => {
                    return Err(OpenError::Damage(Damage {
                        file: segment.path.clone(),
                        offset,
                        index,
                        reason: format!("{reason}, and a later segment goes on after record {}", held.last),
                    }));
                }
            }
        }
    }

    /// The first segment of this run.
    fn begin(&mut self) -> Result<(), OpenError> {
        let shared = &self.shared;
        let is_opening = |state: &State| match state.phase {
            Phase::Opening => Ok(()),
            _ => Err(OpenError::Begin("it was closed before its replay ended".into())),
        };
        is_opening(&shared.state.lock())?;
        let dir = &shared.options.dir;
        shared.files.create_dir_all(dir).map_err(OpenError::io(dir))?;
        if let Some(held) = self.survey.segments.last().filter(|_| self.survey.has_end) {
            // Before anything goes: the note may name a segment that is about to be swept.
            shared.begin_end(held.segment.header.start.history, self.survey.last, held.segment.header.number)?;
        }
        for path in &self.survey.sweep {
            shared.files.remove(path).map_err(OpenError::io(path))?;
        }
        let mut state = shared.state.lock();
        is_opening(&state)?;
        shared.recover(&mut state);
        if let Some(failure) = state.failure.clone().filter(|failure| !failure.full) {
            state.close();
            return Err(OpenError::Begin(failure.text));
        }
        shared.sync_end(&mut state);
        drop(state);
        let mut threads = self.threads.lock();
        let mut spawn = |name: &str, run: fn(&Shared)| -> Result<(), OpenError> {
            let shared = shared.clone();
            let thread = thread::Builder::new().name(name.into()).spawn(move || run(&shared));
            threads.push(thread.map_err(|error| OpenError::Begin(format!("no thread: {error}")))?);
            Ok(())
        };
        spawn("log-sync", Shared::sync_thread)?;
        spawn("log-write", Shared::write_thread)?;
        spawn("log-space", Shared::space_thread)
    }
}
