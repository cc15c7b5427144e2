//! The decision how a replica goes on: with the records behind its last one, or with a copy of its master's data.

use haypile_log::{Histories, History, Index};
use std::fmt;

/// The end of a log: its last record, and the history that this record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub history: History,
    pub index: Index,
}

impl Position {
    /// Returns where a server that follows says to stand: in the oldest history in which its data do. A master that
    /// went on from there does not know those which this server began since, without a record: when it was started
    /// after a crash, or led for a while.
    pub fn oldest(histories: &Histories, last: Index) -> Option<Position> {
        histories.standing(last).last().map(|history| Position { history, index: last })
    }
}

/// The way on that a master has for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// The records behind the replica's last one.
    Partial,
    /// A copy of everything, for this reason.
    Full(FullReason),
}

/// The reason why records alone do not lead from where a replica stands to where its master does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullReason {
    /// The replica has no record.
    Empty,
    /// The replica's history is none that the master knows to be a part of its own way.
    OtherHistory(History),
    /// The replica has records that the master's way does not have: both share those through this index.
    Beyond { shared: Index, index: Index },
    /// The replica has all that the master has, and more of the same history: the master itself follows, and has not
    /// caught up, or it has lost its end.
    Ahead { last: Index, index: Index },
    /// The master's log begins with this record: those that the replica lacks are gone.
    Purged { first: Index, index: Index },
}

impl FullReason {
    /// Returns the last record that both logs have, where the replica gives up those behind it; else 0.
    pub fn shared(&self) -> Index {
        match self {
            FullReason::Beyond { shared, .. } => *shared,
            FullReason::Ahead { last, .. } => *last,
            _ => Index(0),
        }
    }
}

impl fmt::Display for FullReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FullReason::Empty => f.write_str("the replica has no data yet"),
            FullReason::OtherHistory(history) => {
                write!(f, "the replica's history {history} is none that this log went through")
            }
            FullReason::Beyond { shared, index } => write!(
                f,
                "the replica's records from {} to {index} are none of this log's: another one went on without it",
                shared.next()
            ),
            FullReason::Ahead { last, index } => {
                write!(f, "the replica's last record is {index}, and this log's is {last}: the replica is ahead of it")
            }
            FullReason::Purged { first, index } => write!(
                f,
                "the replica's last record is {index}, and the oldest one that the log still has is {first}: see log-retention-size"
            ),
        }
    }
}

/// Decides what a master has for a replica that stands at `replica`.
///
/// `chain` are the histories of the master's log, `first` and `last` the oldest and the newest record that it has.
pub fn decide(chain: &Histories, first: Index, last: Index, replica: Position) -> Resync {
    let Position { history, index } = replica;
    let Some(shared) = chain.shared_through(history, index) else {
        let is_empty = index == Index(0);
        return Resync::Full(if is_empty { FullReason::Empty } else { FullReason::OtherHistory(history) });
    };
    if shared < index {
        return Resync::Full(FullReason::Beyond { shared, index });
    }
    // The newest history has no end: the log's own end is where the master's way ends.
    if last < index {
        return Resync::Full(FullReason::Ahead { last, index });
    }
    if index.next() < first {
        return Resync::Full(FullReason::Purged { first, index });
    }
    Resync::Partial
}

/// Returns the last record that a log which is given up has in common with the one that takes its place: what lies
/// behind is nowhere else. None where the two have no history in common.
///
/// Records of one history are the same in both logs, also where one of them has loaded other data since.
pub fn common_through((own, own_last): (&Histories, Index), (other, other_last): (&Histories, Index)) -> Option<Index> {
    let end = |chain: &Histories, at: usize, last: Index| {
        chain.starts().get(at + 1).map_or(last, |next| next.after().min(last))
    };
    own.starts().iter().enumerate().rev().find_map(|(at, start)| {
        let there = other.starts().iter().rposition(|other| other.history == start.history)?;
        Some(end(own, at, own_last).min(end(other, there, other_last)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::{HistoryStart, Origin};

    fn name(number: u8) -> History {
        History([number; 20])
    }

    /// One; two, behind record 5; three, behind 8.
    fn chain() -> Histories {
        chain_of(&[(1, Origin::Nothing), (2, Origin::Fork(name(1), Index(5))), (3, Origin::Fork(name(2), Index(8)))])
    }

    fn chain_of(starts: &[(u8, Origin)]) -> Histories {
        starts.iter().map(|(number, origin)| HistoryStart { history: name(*number), origin: *origin }).collect()
    }

    #[test]
    fn what_a_log_has_for_itself_begins_behind_the_last_common_history() {
        let fork = |parent, after| Origin::Fork(name(parent), Index(after));
        let check = |rule: &str, own: &[(u8, Origin)], own_last, other_last, expected: Option<u64>| {
            let common = common_through((&chain_of(own), Index(own_last)), (&chain(), Index(other_last)));
            assert_eq!(common, expected.map(Index), "{rule}");
        };
        let nothing = (1, Origin::Nothing);
        check("the same log", &[nothing, (2, fork(1, 5)), (3, fork(2, 8))], 10, 10, Some(10));
        check("a log that is behind", &[nothing], 4, 10, Some(4));
        check("a log that went on in its own history", &[nothing], 9, 10, Some(5));
        check("one that was killed then, and began another history", &[nothing, (7, fork(1, 9))], 12, 10, Some(5));
        check("and once more", &[nothing, (7, fork(1, 9)), (8, fork(7, 9))], 9, 10, Some(5));
        check("one that was killed with nothing for itself", &[nothing, (7, fork(1, 5))], 5, 10, Some(5));
        check("one that was killed before the other one went on", &[nothing, (7, fork(1, 3))], 6, 10, Some(3));
        check("a fork before the first record", &[nothing, (7, fork(1, 0))], 6, 10, Some(0));
        check("the other one has lost its end", &[nothing, (2, fork(1, 5)), (3, fork(2, 8))], 12, 10, Some(10));
        check("other data were loaded here", &[nothing, (7, Origin::Loaded(Index(4)))], 6, 10, Some(4));
        check("other data from the beginning", &[(9, Origin::Nothing), (7, fork(9, 2))], 6, 10, None);
        check("no data at all", &[], 0, 10, None);
    }

    #[test]
    fn what_was_replaced_by_a_load_is_the_other_logs_past() {
        let loaded = chain_of(&[(1, Origin::Nothing), (2, Origin::Loaded(Index(6)))]);
        let own = chain_of(&[(1, Origin::Nothing)]);
        assert_eq!(common_through((&own, Index(6)), (&loaded, Index(9))), Some(Index(6)));
        assert_eq!(common_through((&own, Index(8)), (&loaded, Index(9))), Some(Index(6)));
    }

    #[test]
    fn records_alone_are_enough_wherever_the_ways_are_one() {
        let at = |history, index| Position { history: name(history), index: Index(index) };
        let check = |replica, first, expected| {
            assert_eq!(decide(&chain(), Index(first), Index(10), replica), expected, "{replica:?}, log from {first}");
        };
        let beyond = |shared, index| Resync::Full(FullReason::Beyond { shared: Index(shared), index: Index(index) });
        let purged = |first, index| Resync::Full(FullReason::Purged { first: Index(first), index: Index(index) });
        check(at(9, 0), 1, Resync::Full(FullReason::Empty));
        check(at(1, 0), 1, Resync::Partial);
        check(at(1, 5), 1, Resync::Partial);
        check(at(1, 6), 1, beyond(5, 6));
        check(at(2, 5), 6, Resync::Partial);
        check(at(2, 5), 7, purged(7, 5));
        check(at(2, 9), 1, beyond(8, 9));
        check(at(3, 10), 11, Resync::Partial);
        check(at(3, 11), 1, Resync::Full(FullReason::Ahead { last: Index(10), index: Index(11) }));
        check(at(9, 3), 1, Resync::Full(FullReason::OtherHistory(name(9))));
    }

    #[test]
    fn the_reasons_say_what_to_look_at() {
        let reason = FullReason::Beyond { shared: Index(5), index: Index(9) };
        assert!(reason.to_string().contains("from 6 to 9"), "{reason}");
        let reason = FullReason::Purged { first: Index(7), index: Index(5) };
        assert!(reason.to_string().contains("is 5") && reason.to_string().contains("is 7"), "{reason}");
    }
}
