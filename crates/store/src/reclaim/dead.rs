//! Dead objects in the base, counted by range of slots, and which ranges are worth a compaction.
//!
//! The count is of what died. Compactions that come by themselves drop dead rows too and tell nobody, so that a few of
//! the counted objects are kept as a sample: the share of these that still has rows says what is left of the count.

use super::jobs::slots_range;
use super::orphan::Orphan;
use crate::row::{Family, RowKey, SLOTS, Space};
use std::collections::BTreeMap;
use std::ops::Range;

/// Slots whose dead bytes are counted together.
pub(super) const RANGE_SLOTS: usize = 64;
const RANGES: usize = SLOTS / RANGE_SLOTS;

/// The dead bytes from which a space is looked at.
pub(super) const DEAD_BYTES_MIN: u64 = 8 << 20;

/// The least bytes of the base that are compacted together: about a file, since files are rewritten whole.
const WINDOW_BYTES: u64 = 64 << 20;

/// Sampled objects of a range: a window has sixteen ranges in a base of 1 GiB, fewer in larger ones and all 256 in a
/// small one, and each object of a sample is a read.
const SAMPLE: usize = 3;

/// The families in which an object has its elements.
pub(super) const ELEMENTS: [Family; 2] = [Family::Data, Family::Score];

/// Dead objects by space and range of slots.
#[derive(Default)]
pub(super) struct DeadObjects {
    ranges: BTreeMap<(Space, usize), Counted>,
}

#[derive(Default)]
struct Counted {
    bytes: u64,
    objects: u64,
    sample: Vec<Orphan>,
}

/// Neighbouring ranges of slots of a space, with their dead bytes and all bytes that the base has of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub space: Space,
    ranges: Range<usize>,
    dead: u64,
    all: u64,
}

impl Window {
    fn dead_share(&self) -> f64 {
        self.dead as f64 / self.all.max(1) as f64
    }

    /// Returns whether so large a share of the window is dead that it is worth a compaction.
    pub fn is_ripe(&self, share: f64) -> bool {
        self.dead >= DEAD_BYTES_MIN && self.dead_share() >= share
    }

    /// Returns the rows of a family in it.
    pub fn rows(&self, family: Family) -> (RowKey, RowKey) {
        let (from, _) = slots_range(family, self.space, self.ranges.start);
        let (_, until) = slots_range(family, self.space, self.ranges.end - 1);
        (from, until)
    }
}

impl DeadObjects {
    /// Counts an object that has so many bytes in the base.
    pub fn add(&mut self, orphan: Orphan, bytes: u64) {
        let range = usize::from(orphan.slot.0) / RANGE_SLOTS;
        let counted = self.ranges.entry((orphan.space, range)).or_default();
        counted.bytes += bytes;
        counted.objects += 1;
        // Each counted object is in the sample with the same likelihood; ids are spread as random numbers are.
        let at = (orphan.id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % counted.objects;
        if counted.sample.len() < SAMPLE {
            counted.sample.push(orphan);
        } else if let Some(place) = counted.sample.get_mut(at as usize) {
            *place = orphan;
        }
    }

    /// Returns all counted bytes.
    pub fn bytes(&self) -> u64 {
        self.ranges.values().map(|counted| counted.bytes).sum()
    }

    /// Returns the counted bytes by range, of the spaces that have enough to be looked at.
    pub fn counts(&self) -> BTreeMap<Space, BTreeMap<usize, u64>> {
        let mut spaces: BTreeMap<Space, BTreeMap<usize, u64>> = BTreeMap::new();
        for ((space, range), counted) in &self.ranges {
            spaces.entry(*space).or_default().insert(*range, counted.bytes);
        }
        spaces.retain(|_, ranges| ranges.values().sum::<u64>() >= DEAD_BYTES_MIN);
        spaces
    }

    /// Returns the sample of a window.
    pub fn sample(&self, window: &Window) -> Vec<Orphan> {
        self.of(window).flat_map(|counted| counted.sample.iter().copied()).collect()
    }

    /// Notes which objects of a window's sample still have rows, and returns the window with what is dead then.
    pub fn on_sampled(&mut self, window: &Window, has_rows: impl Fn(&Orphan) -> bool) -> Window {
        for range in window.ranges.clone() {
            let Some(counted) = self.ranges.get_mut(&(window.space, range)) else { continue };
            let before = counted.sample.len().max(1) as f64;
            counted.sample.retain(&has_rows);
            let left = counted.sample.len() as f64 / before;
            counted.bytes = (counted.bytes as f64 * left) as u64;
            counted.objects = (counted.objects as f64 * left) as u64;
        }
        self.ranges.retain(|_, counted| counted.objects > 0);
        Window { dead: self.of(window).map(|counted| counted.bytes).sum(), ..window.clone() }
    }

    /// Forgets what is counted in a window.
    pub fn forget(&mut self, window: &Window) {
        self.ranges.retain(|(space, range), _| *space != window.space || !window.ranges.contains(range));
    }

    /// Forgets what is counted in a space.
    pub fn forget_space(&mut self, space: Space) {
        self.ranges.retain(|(other, _), _| *other != space);
    }

    fn of(&self, window: &Window) -> impl Iterator<Item = &Counted> {
        self.ranges
            .range((window.space, window.ranges.start)..(window.space, window.ranges.end))
            .map(|(_, counted)| counted)
    }
}

/// Divides spaces into windows, and returns those that would be worth a compaction at this dead share, if the counts
/// are right; the ripest one first. `bytes_in` asks the base for the bytes of a range.
pub(super) fn ripe_windows(
    counts: &BTreeMap<Space, BTreeMap<usize, u64>>,
    share: f64,
    bytes_in: impl Fn(&[u8], &[u8]) -> u64,
) -> Vec<Window> {
    let mut windows = Vec::new();
    for (&space, dead) in counts {
        let all = |range: usize| -> u64 {
            let ranges = ELEMENTS.map(|family| slots_range(family, space, range));
            ranges.iter().map(|(from, until)| bytes_in(from, until)).sum()
        };
        let begin = windows.len();
        let mut open = Window { space, ranges: 0..0, dead: 0, all: 0 };
        for range in 0..RANGES {
            open.ranges.end = range + 1;
            open.dead += dead.get(&range).copied().unwrap_or(0);
            open.all += all(range);
            if open.all >= WINDOW_BYTES {
                let next = Window { space, ranges: range + 1..range + 1, dead: 0, all: 0 };
                windows.push(std::mem::replace(&mut open, next));
            }
        }
        // The rest at the end is no window of its own, unless it is the only one.
        match windows[begin..].last_mut() {
            Some(last) => {
                last.ranges.end = RANGES;
                last.dead += open.dead;
                last.all += open.all;
            }
            None => windows.push(open),
        }
    }
    windows.retain(|window| window.is_ripe(share));
    windows.sort_by(|a, b| b.dead_share().total_cmp(&a.dead_share()));
    windows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{ObjectId, Slot, home_slot};

    const SPACE: Space = Space(3);
    const MIB: u64 = 1 << 20;

    fn orphan(id: u64, slot: u16) -> Orphan {
        Orphan { space: SPACE, slot: Slot(slot), id: ObjectId(id) }
    }

    /// Counts one object of a MiB in each of some ranges.
    fn dead(ranges: Range<usize>, objects: u64) -> DeadObjects {
        let mut dead = DeadObjects::default();
        for range in ranges {
            (0..objects).for_each(|id| dead.add(orphan(range as u64 * 1000 + id, (range * RANGE_SLOTS) as u16), MIB));
        }
        dead
    }

    /// A base that has so many bytes in each range of slots, all of them in one family.
    fn even(bytes: u64) -> impl Fn(&[u8], &[u8]) -> u64 {
        move |from, _| {
            let is_data = Family::of(from) == Some(Family::Data);
            if is_data && home_slot(from).is_some() { bytes } else { 0 }
        }
    }

    #[test]
    fn neighbouring_ranges_are_one_window_as_large_as_a_file() {
        let counted = dead(0..RANGES, 2);
        let windows = ripe_windows(&counted.counts(), 0.25, even(4 * MIB));
        assert_eq!(windows.len(), 16, "1 GiB in windows of 64 MiB");
        assert!(windows.iter().all(|window| window.dead == 32 * MIB && window.all == 64 * MIB), "{windows:?}");
        let windows = ripe_windows(&counted.counts(), 0.25, even(5 * MIB));
        assert_eq!(windows.iter().map(|window| window.ranges.end).max(), Some(RANGES), "no slot is left out");
        assert_eq!(ripe_windows(&counted.counts(), 0.6, even(4 * MIB)), [], "half of it is dead");
    }

    #[test]
    fn a_small_space_is_one_window_and_little_is_not_looked_at() {
        let windows = ripe_windows(&dead(0..8, 1).counts(), 0.25, even(MIB / 16));
        assert_eq!(windows, [Window { space: SPACE, ranges: 0..RANGES, dead: 8 * MIB, all: 16 * MIB }]);
        assert!(dead(0..7, 1).counts().is_empty());
    }

    #[test]
    fn the_ripest_window_comes_first() {
        let mut counted = dead(0..32, 2);
        (0..16).for_each(|range| (0..2).for_each(|id| counted.add(orphan(id, range * 64), MIB)));
        let windows = ripe_windows(&counted.counts(), 0.25, even(4 * MIB));
        assert_eq!(windows.iter().map(|window| window.ranges.clone()).collect::<Vec<_>>(), [0..16, 16..32]);
    }

    #[test]
    fn what_compactions_have_dropped_is_no_longer_counted() {
        let mut counted = dead(0..RANGES, 20);
        let windows = ripe_windows(&counted.counts(), 0.25, even(4 * MIB));
        let window = &windows[0];
        assert_eq!(counted.sample(window).len(), 16 * SAMPLE);
        let half = counted.on_sampled(window, |orphan| orphan.id.0 % 2 == 0);
        assert!(half.dead > window.dead / 3 && half.dead < window.dead / 3 * 2, "{} of {}", half.dead, window.dead);
        let gone = counted.on_sampled(window, |_| false);
        assert_eq!((gone.dead, counted.sample(window).len()), (0, 0));
        let others = counted.bytes();
        assert_eq!(others, (RANGES as u64 - 16) * 20 * MIB, "other windows keep theirs");
        counted.forget(&windows[1]);
        assert_eq!(counted.bytes(), others - 16 * 20 * MIB);
        counted.forget_space(SPACE);
        assert_eq!(counted.bytes(), 0);
    }

    #[test]
    fn a_sample_is_of_all_that_was_counted() {
        let mut counted = DeadObjects::default();
        (0..64_000).for_each(|id| counted.add(orphan(id, (id % 64 * 64) as u16), MIB));
        let windows = ripe_windows(&counted.counts(), 0.0, even(MIB));
        let sample = counted.sample(&windows[0]);
        assert_eq!(sample.len(), 64 * SAMPLE);
        let late = sample.iter().filter(|orphan| orphan.id.0 >= 32_000).count();
        assert!((60..132).contains(&late), "half of {} died late: {late}", sample.len());
    }
}
