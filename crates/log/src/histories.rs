//! The chain of histories that a log went through, in each segment's header, so that it outlives what is purged.
//!
//! A base, a copy and the note of the log's end say of themselves at which record of which history they stand; the
//! chain answers whether that lies on the way that this log has gone. Pure bookkeeping: no I/O.

use crate::format::{ANCESTORS_MAX, History, HistoryStart, Index, Origin};

/// The place at which a base says that it stands: the record up to which it holds everything, and that record's
/// history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The last record that the base holds, with all before it; 0 where it holds nothing.
    pub index: Index,
    /// The history of that record; None where it is not known, and so not compared.
    pub history: Option<History>,
}

impl From<Index> for Applied {
    fn from(index: Index) -> Applied {
        Applied { index, history: None }
    }
}

/// How histories followed each other, the oldest first.
///
/// Invariant: where histories begin never decreases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histories {
    starts: Vec<HistoryStart>,
}

impl FromIterator<HistoryStart> for Histories {
    /// Collects histories, the oldest first.
    ///
    /// # Panics
    /// The histories do not begin in their order.
    fn from_iter<I: IntoIterator<Item = HistoryStart>>(starts: I) -> Histories {
        let mut histories = Histories::default();
        starts.into_iter().for_each(|start| histories.push(start));
        histories
    }
}

impl Histories {
    /// Returns the histories, the oldest first. The oldest one may have had predecessors that are not known any more.
    pub fn starts(&self) -> &[HistoryStart] {
        &self.starts
    }

    /// Returns the history that records are appended to; None of a log that has none yet.
    pub fn newest(&self) -> Option<HistoryStart> {
        self.starts.last().copied()
    }

    /// Returns the history of the record with this index; None where the chain does not reach back that far.
    pub fn of(&self, index: Index) -> Option<History> {
        self.starts.iter().rfind(|start| start.after() < index).map(|start| start.history)
    }

    /// Returns the history that a base names which holds everything through `index`: that of the record, unless data
    /// were loaded behind it.
    pub fn stamp(&self, index: Index) -> Option<History> {
        let loaded = (0..self.starts.len()).rfind(|at| self.is_loaded(*at) && self.starts[*at].after() == index);
        match loaded {
            Some(at) => Some(self.starts[at].history),
            None if index == Index(0) => self.starts.first().map(|start| start.history),
            None => self.of(index),
        }
    }

    /// Returns the last index that this log shares with one that stands at `index` of `history`. That one can go on
    /// with this log's records if the answer is its own index. None where they share nothing that is known, or where
    /// data were loaded behind it: it needs a copy of the whole.
    pub fn shared_through(&self, history: History, index: Index) -> Option<Index> {
        let at = self.position(history)?;
        let is_behind_load = (at + 1..self.starts.len()).any(|later| self.is_loaded(later));
        (!is_behind_load && !self.is_abandoned(at) && index >= self.starts[at].after()).then(|| index.min(self.end(at)))
    }

    /// Returns the histories in which a log that ends with `last` stands, the newest first: its newest one, and those
    /// that only others without a record came behind. Its data are what they are in each.
    pub fn standing(&self, last: Index) -> impl Iterator<Item = History> + '_ {
        let before = move |at: &usize| {
            let (parent, after) = self.starts[*at].parent()?;
            let parent = self.position(parent).filter(|parent| parent < at)?;
            (after == last && self.starts[parent + 1..=*at].iter().all(|start| start.after() == last)).then_some(parent)
        };
        std::iter::successors(self.starts.len().checked_sub(1), before).map(|at| self.starts[at].history)
    }

    /// Returns the chain as it was when `history` was the newest.
    pub(crate) fn through(&self, history: History) -> Histories {
        let count = self.position(history).map_or(self.starts.len(), |at| at + 1);
        Histories { starts: self.starts[..count].to_vec() }
    }

    /// Returns a history and where it comes from.
    pub(crate) fn start_of(&self, history: History) -> Option<HistoryStart> {
        self.position(history).map(|at| self.starts[at])
    }

    /// Appends a history. One that is the newest already is not appended again.
    pub(crate) fn push(&mut self, start: HistoryStart) {
        let Some(newest) = self.newest() else { return self.starts.push(start) };
        assert!(start.after() >= newest.after(), "histories begin in their order");
        if start.history != newest.history {
            self.starts.push(start);
        }
    }

    /// Appends what the header of the next segment knows beyond this chain.
    pub(crate) fn extend(&mut self, ancestors: &[HistoryStart], start: HistoryStart) {
        for next in ancestors.iter().chain([&start]) {
            let is_next = self.newest().is_none_or(|newest| next.after() >= newest.after());
            if is_next && self.position(next.history).is_none() {
                self.starts.push(*next);
            }
        }
        debug_assert!(self.starts.is_sorted_by_key(HistoryStart::after), "histories begin in their order");
    }

    /// Returns what a segment's header keeps beside the newest history.
    pub(crate) fn ancestors(&self) -> Vec<HistoryStart> {
        let Some((_, ancestors)) = self.starts.split_last() else { return Vec::new() };
        ancestors[ancestors.len().saturating_sub(ANCESTORS_MAX)..].to_vec()
    }

    /// Returns the first history that begins with loaded data which a base does not have.
    pub(crate) fn lacking(&self, applied: Applied) -> Option<HistoryStart> {
        let stands = applied.history.and_then(|history| self.position(history));
        let lacks = |at: usize| {
            let after = self.starts[at].after();
            // A base that holds nothing names no history.
            let is_before = after == applied.index && (applied.index == Index(0) || applied.history.is_some());
            self.is_loaded(at) && (applied.index < after || is_before && stands.is_none_or(|stands| stands < at))
        };
        (0..self.starts.len()).find(|at| lacks(*at)).map(|at| self.starts[at])
    }

    /// Returns what a history follows on where the load that it begins with never came to be.
    pub(crate) fn origin_without(&self, loaded: HistoryStart) -> Origin {
        let before = self.position(loaded.history).and_then(|at| self.starts[..at].last());
        before.map_or(Origin::Nothing, |before| Origin::Fork(before.history, loaded.after()))
    }

    /// Returns whether a base or a log that claims to stand at `index` of `history` can have got there with the records
    /// of this log. Claims about records before the chain's beginning are not known to be wrong.
    pub(crate) fn may_stand(&self, history: History, index: Index) -> bool {
        match self.position(history) {
            Some(at) => (self.starts[at].after()..=self.end(at)).contains(&index),
            None => self.is_before(index),
        }
    }

    /// Whether a base, which names the history of its applied record, [may stand](Self::may_stand) there.
    pub(crate) fn may_be_applied(&self, history: History, index: Index) -> bool {
        let is_at_start = |at: usize| self.starts[at].after() == index && index > Index(0) && !self.is_loaded(at);
        self.may_stand(history, index) && !self.position(history).is_some_and(is_at_start)
    }

    /// Whether what is known of histories begins behind this record.
    fn is_before(&self, index: Index) -> bool {
        self.starts.first().is_none_or(|oldest| oldest.origin != Origin::Nothing && index <= oldest.after())
    }

    fn position(&self, history: History) -> Option<usize> {
        self.starts.iter().rposition(|start| start.history == history)
    }

    /// The last index of a history.
    fn end(&self, at: usize) -> Index {
        self.starts.get(at + 1).map_or(Index(u64::MAX), HistoryStart::after)
    }

    fn is_loaded(&self, at: usize) -> bool {
        matches!(self.starts[at].origin, Origin::Loaded(_)) && !self.is_abandoned(at)
    }

    /// Whether a load never came to be: the next history goes on with what was before.
    fn is_abandoned(&self, at: usize) -> bool {
        let HistoryStart { history, origin } = self.starts[at];
        let next = self.starts.get(at + 1).map(|next| next.origin);
        matches!(origin, Origin::Loaded(_)) && matches!(next, Some(Origin::Fork(parent, _)) if parent != history)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u8) -> History {
        History([number; 20])
    }

    /// One; two, behind record 5; three, behind 5, too; a load behind 8 that never came to be; four; a load behind 9.
    fn chain() -> Histories {
        let origins = [
            Origin::Nothing,
            Origin::Fork(name(1), Index(5)),
            Origin::Fork(name(2), Index(5)),
            Origin::Loaded(Index(8)),
            Origin::Fork(name(3), Index(8)),
            Origin::Loaded(Index(9)),
        ];
        let mut chain = Histories::default();
        (1..).zip(origins).for_each(|(number, origin)| chain.push(HistoryStart { history: name(number), origin }));
        chain
    }

    #[test]
    fn each_record_has_its_history() {
        let chain = chain();
        let of = |index| chain.of(Index(index)).map(|history| history.0[0]);
        let found: Vec<_> = (0..12).map(of).collect();
        let expected = [0, 1, 1, 1, 1, 1, 3, 3, 3, 5, 6, 6].map(|number| (number > 0).then_some(number));
        assert_eq!(found, expected);
        let stamps = [0, 5, 8, 9, 10].map(|index| chain.stamp(Index(index)).unwrap().0[0]);
        assert_eq!(stamps, [1, 1, 3, 6, 6], "the base that took the load names it");
    }

    #[test]
    fn whoever_stands_elsewhere_does_not_belong_here() {
        let chain = chain();
        for (history, index, stands, applied) in [
            (1, 0, true, true),
            (1, 5, true, true),
            (1, 6, false, false),
            (2, 5, true, false),
            (3, 5, true, false),
            (3, 8, true, true),
            (3, 9, false, false),
            (6, 9, true, true),
            (6, 1000, true, true),
            (7, 3, false, false),
        ] {
            assert_eq!(chain.may_stand(name(history), Index(index)), stands, "{history} {index}");
            assert_eq!(chain.may_be_applied(name(history), Index(index)), applied, "{history} {index}");
        }
        let applied = |index, history: Option<u8>| Applied { index: Index(index), history: history.map(name) };
        let lacks = |index, history| chain.lacking(applied(index, history)).map(|start| start.history.0[0]);
        assert_eq!([lacks(0, None), lacks(8, Some(3)), lacks(9, Some(5))], [Some(6); 3]);
        assert_eq!([lacks(9, Some(6)), lacks(10, Some(6)), lacks(9, None)], [None; 3]);
    }

    #[test]
    fn what_two_logs_share_ends_where_one_left_the_other_and_before_a_load() {
        let mut chain = chain();
        assert_eq!(chain.shared_through(name(3), Index(7)), None, "data were loaded since");
        assert_eq!(chain.shared_through(name(6), Index(20)), Some(Index(20)));
        chain.starts.truncate(3);
        let shared = |history, index| chain.shared_through(name(history), Index(index)).map(|index| index.0);
        assert_eq!([shared(1, 3), shared(1, 5), shared(1, 7)], [Some(3), Some(5), Some(5)]);
        assert_eq!([shared(2, 5), shared(2, 9), shared(3, 9)], [Some(5), Some(5), Some(9)]);
        assert_eq!([shared(9, 3), shared(3, 4)], [None; 2]);
    }

    #[test]
    fn histories_without_a_record_are_left_again() {
        let mut chain = chain();
        let standing =
            |chain: &Histories, last| -> Vec<u8> { chain.standing(Index(last)).map(|history| history.0[0]).collect() };
        assert_eq!(standing(&chain, 9), [6], "data were loaded");
        chain.starts.truncate(3);
        assert_eq!((standing(&chain, 8), standing(&chain, 5)), (vec![3], vec![3, 2, 1]));
        // Four goes on where one ended, as if two and three had never been.
        chain.push(HistoryStart { history: name(4), origin: Origin::Fork(name(1), Index(5)) });
        assert_eq!((standing(&chain, 5), standing(&chain, 6)), (vec![4, 1], vec![4]));
        assert_eq!(chain.of(Index(6)), Some(name(4)));
        for history in 1..=4 {
            assert_eq!(chain.shared_through(name(history), Index(5)), Some(Index(5)), "{history}");
        }
        assert_eq!(chain.shared_through(name(2), Index(7)), Some(Index(5)));
    }

    #[test]
    fn a_header_keeps_the_newest_histories() {
        let mut chain = Histories::default();
        chain.push(HistoryStart { history: name(0), origin: Origin::Nothing });
        for number in 1..=250u8 {
            let origin = Origin::Fork(name(number - 1), Index(u64::from(number)));
            chain.push(HistoryStart { history: name(number), origin });
        }
        let kept = chain.ancestors();
        assert_eq!((kept.len(), kept.last()), (ANCESTORS_MAX, chain.starts.get(249)));
        let mut again = Histories::default();
        again.extend(&kept, chain.newest().unwrap());
        assert_eq!(again.starts(), &chain.starts[250 - ANCESTORS_MAX..]);
        assert!(again.may_be_applied(name(77), Index(5)), "it is too long ago to tell");
        again.extend(&kept, chain.newest().unwrap());
        assert_eq!(again.starts().len(), ANCESTORS_MAX + 1);
    }
}
