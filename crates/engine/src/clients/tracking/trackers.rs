//! The clients that track, by session, and who listens to which prefixes.

use super::keys::{Reader, Readers};
use super::{Stale, Tracker};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Default)]
pub(super) struct Trackers {
    pub by_session: HashMap<u64, Arc<Tracker>, RandomState>,
    pub by_prefix: HashMap<Box<[u8]>, Vec<u64>, RandomState>,
    /// The lengths of all prefixes, each with how many there are.
    lengths: BTreeMap<usize, usize>,
}

impl Trackers {
    pub fn listeners(&self, name: &[u8]) -> impl Iterator<Item = &Arc<Tracker>> {
        let lengths = self.lengths.range(..=name.len());
        let prefixes = lengths.filter_map(|(&end, _)| self.by_prefix.get(&name[..end]));
        prefixes.flatten().filter_map(|session| self.by_session.get(session))
    }

    /// Returns whether the reply to a read is still to be made.
    pub fn is_under_way(&self, reader: &Reader) -> bool {
        let tracker = self.by_session.get(&reader.session);
        tracker.is_some_and(|tracker| reader.read > tracker.progress.answered.load(Ordering::Acquire))
    }

    /// Returns those who are to hear of keys that have left the table.
    pub fn stale(&self, displaced: Vec<(Box<[u8]>, Readers)>) -> Vec<Stale> {
        let of_key = |(name, readers): (Box<[u8]>, Readers)| {
            let trackers = readers.into_iter().filter_map(|reader| self.by_session.get(&reader.session).cloned());
            trackers.map(move |tracker| Stale { tracker, keys: vec![name.clone()] })
        };
        displaced.into_iter().flat_map(of_key).collect()
    }

    pub fn add(&mut self, tracker: Arc<Tracker>) {
        for prefix in &tracker.options.prefixes {
            let listeners = self.by_prefix.entry(prefix[..].into()).or_default();
            if listeners.is_empty() {
                *self.lengths.entry(prefix.len()).or_default() += 1;
            }
            listeners.push(tracker.session);
        }
        self.by_session.insert(tracker.session, tracker);
    }

    pub fn remove(&mut self, session: u64) -> Option<Arc<Tracker>> {
        let tracker = self.by_session.remove(&session)?;
        for prefix in &tracker.options.prefixes {
            let Some(listeners) = self.by_prefix.get_mut(&prefix[..]) else { continue };
            listeners.retain(|&listener| listener != session);
            if listeners.is_empty() {
                self.by_prefix.remove(&prefix[..]);
                let count = self.lengths.get_mut(&prefix.len()).expect("it was counted");
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&prefix.len());
                }
            }
        }
        Some(tracker)
    }
}
