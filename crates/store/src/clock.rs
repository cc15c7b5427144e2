//! When was a record appended? To the second for the last minutes, to a hundredth of its age for long ago, in a few kilobytes.
//!
//! Nothing on the way of a command writes here: once in a while somebody notes the log's last index with the time. Between
//! two notes the later one counts, so that nothing seems older than it is.

use haypile_log::Index;
use parking_lot::Mutex;

/// Notes that are kept. When they are full, those go that are closer to the one before than their age over `PRECISION`: some
/// 1,700 are left of a year, and 2,000 of ten.
const NOTES_MAX: usize = 4096;
const PRECISION: u64 = 128;

/// Between two notes.
const STEP_MS: u64 = 1000;

#[derive(Default)]
pub(crate) struct Clock {
    /// Indexes and times, both rising.
    notes: Mutex<Vec<(Index, u64)>>,
}

impl Clock {
    pub fn note(&self, last: Index, now_ms: u64) {
        let mut notes = self.notes.lock();
        if notes.last().is_some_and(|(index, at_ms)| *index >= last || *at_ms + STEP_MS > now_ms) {
            return;
        }
        if notes.len() >= NOTES_MAX {
            let mut kept_ms = None;
            notes.retain(|(_, at_ms)| {
                let is_far = kept_ms.is_none_or(|kept| (at_ms - kept) * PRECISION >= now_ms - kept);
                if is_far {
                    kept_ms = Some(*at_ms);
                }
                is_far
            });
        }
        notes.push((last, now_ms));
    }

    /// The time by which the record was there; `None` if it came after the last note.
    pub fn time_of(&self, index: Index) -> Option<u64> {
        let notes = self.notes.lock();
        let at = notes.partition_point(|(noted, _)| *noted < index);
        notes.get(at).map(|(_, at_ms)| *at_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_never_older_than_it_is_and_hardly_younger() {
        let clock = Clock::default();
        // Ten records a second for a day.
        const SECONDS: u64 = 86_400;
        for second in 0..SECONDS {
            clock.note(Index(second * 10), second * 1000);
        }
        for second in [1, 100, 5000, 60_000, 80_000, SECONDS - 300, SECONDS - 2] {
            let (appended_ms, age_ms) = (second * 1000 - 500, (SECONDS - second) * 1000);
            let told_ms = clock.time_of(Index(second * 10 - 5)).expect("it was noted");
            assert!(told_ms >= appended_ms, "second {second}: {told_ms}");
            assert!(told_ms - appended_ms <= 1000 + age_ms / 64, "second {second}: {told_ms}");
        }
        assert_eq!(clock.time_of(Index(SECONDS * 10)), None, "nothing was noted since");
        assert!(clock.notes.lock().len() <= NOTES_MAX);
    }

    #[test]
    fn where_nothing_is_appended_nothing_is_noted() {
        let clock = Clock::default();
        (0..100).for_each(|second| clock.note(Index(7), second * 1000));
        assert_eq!(clock.time_of(Index(7)), Some(0));
        assert_eq!(clock.notes.lock().len(), 1);
    }
}
