//! A look at whether the log's files are still there. An open file outlives its name, so that without this look a log
//! whose directory was removed would take records that no start ever finds again.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::File;
use crate::log::Log;
use crate::phase::Phase;
use crate::segment::{Active, segment_name};
use crate::state::{Failure, Shared, State};

/// The outcome of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Why no records are taken: a file that the next start needs is gone.
    pub missing: Option<String>,
    /// Files that are gone and that no start needs; each is told once.
    pub unneeded: Vec<PathBuf>,
}

impl Log {
    /// Looks whether all files are there. While one is missing that the next start would need, nothing is appended; the
    /// log begins a new segment as soon as the base holds all that was in the lost ones. Does I/O.
    pub fn look(&self) -> Look {
        let shared = &*self.shared;
        let state = shared.state.lock();
        if !state.phase.is_live() {
            return Look::default();
        }
        let segments: Vec<u64> = state.segments.iter().map(|held| held.segment.header.number).collect();
        let active = state.active.as_ref().map(|active| (active.segment.clone(), active.file.clone()));
        drop(state);
        let dir = &shared.options.dir;
        let (names, has_dir) = match shared.files.list(dir) {
            Ok(names) => (names.into_iter().collect::<HashSet<_>>(), true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (HashSet::new(), false),
            // A directory that cannot be listed is not known to be gone.
            Err(_) => return Look { missing: shared.state.lock().missing_text(), unneeded: Vec::new() },
        };
        let mut gone: Vec<u64> =
            segments.into_iter().filter(|number| !names.contains(&segment_name(*number))).collect();
        if let Some((segment, file)) = active
            && !gone.contains(&segment.header.number)
            && !shared.is_at(&segment.path, &file)
        {
            gone.push(segment.header.number);
        }
        let mut unneeded = shared.look_at_end();
        let mut state = shared.state.lock();
        // Segments that were purged meanwhile are not missed.
        gone.retain(|number| state.segments.iter().any(|held| held.segment.header.number == *number));
        let is_active = |active: &Option<Active>, number| {
            active.as_ref().is_some_and(|active| active.segment.header.number == number)
        };
        gone.retain(|number| {
            let State { segments, active, applied, .. } = &mut *state;
            let position = segments.iter().position(|held| held.segment.header.number == *number);
            let position = position.expect("only those were kept that are there");
            let is_needed = segments[position].last > *applied || is_active(active, *number);
            if !is_needed {
                unneeded.push(segments.remove(position).segment.path.clone());
            }
            is_needed
        });
        let paths: Vec<String> = gone.iter().map(|number| shared.segment_path(*number).display().to_string()).collect();
        state.missing = (!paths.is_empty())
            .then(|| Failure { text: format!("{} was removed while the server runs", paths.join(", ")), full: false });
        let is_sound = matches!(state.phase, Phase::Running | Phase::Rotating);
        let all_applied = is_sound && state.applied >= state.written && state.held.is_empty();
        if has_dir && all_applied && gone.iter().all(|number| is_active(&state.active, *number)) && !gone.is_empty() {
            // The base holds all of it: a new segment goes on where the lost one ended.
            state.break_off();
            shared.sync_cv.notify_one();
        }
        shared.set_limit(&state);
        Look { missing: state.missing_text(), unneeded }
    }
}

impl Shared {
    /// Whether `path` is the name of this open file. What cannot be told counts as yes.
    fn is_at(&self, path: &Path, file: &Arc<dyn File>) -> bool {
        match self.files.open(path).and_then(|named| named.identity()) {
            Ok(named) => file.identity().ok().is_none_or(|identity| identity == named),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Makes the end file anew if it is gone; its path then.
    fn look_at_end(&self) -> Vec<PathBuf> {
        let Some(at) = self.options.end.as_ref().filter(|at| at.is_written) else { return Vec::new() };
        let Some(file) = self.end.lock().as_ref().map(|writer| writer.file()) else { return Vec::new() };
        if self.is_at(&at.path, &file) {
            return Vec::new();
        }
        *self.end.lock() = None;
        self.note_end(&mut self.state.lock());
        vec![at.path.clone()]
    }
}

impl State {
    pub(crate) fn missing_text(&self) -> Option<String> {
        self.missing.as_ref().map(|failure| failure.text.clone())
    }
}
