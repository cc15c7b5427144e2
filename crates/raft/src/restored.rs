//! Restored data: a member may begin with a part of the group's past, which an archive or a backup had, instead of a
//! copy of all. What makes that safe is here.
//!
//! Before such a member has a ballot, the leader compares the last record of the data with its own: only where both are
//! the same, and the group has agreed on it, the data are the group's past. And as the data may be an old state of a
//! member which has voted since, the new one votes for nobody until a record of a leader names it which the group did
//! not have when it was asked. Until then its answers say that it waits, and the leader does not make it a voter.

use crate::machine::{Fault, Machine};
use crate::member::{Member, damaged};
use haypile_log::{History, Index, Kind, Log, Next, Record, Through};
use raft::StateRole;
use raft::eraftpb::{Message, MessageType};
use std::fmt;

/// The priority in the answers of a member that waits to be named. Raft reads priorities of candidates alone.
const UNNAMED_PRIORITY: i64 = -1;

/// The last record of restored data, by all that tells it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRecord {
    pub index: Index,
    pub history: History,
    pub term: u64,
    pub entry: u64,
    kind: Kind,
    time_ms: u64,
    body_bytes: u64,
    body_crc: u32,
}

impl From<&Record<'_>> for LastRecord {
    fn from(record: &Record<'_>) -> LastRecord {
        let Record { index, history, term, entry, kind, time_ms, body, body_crc, .. } = *record;
        LastRecord { index, history, term, entry, kind, time_ms, body_bytes: body.len() as u64, body_crc }
    }
}

impl fmt::Display for LastRecord {
    /// Writes the record as [`parse`](LastRecord::parse) reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LastRecord { index, history, term, entry, kind, time_ms, body_bytes, body_crc } = self;
        write!(f, "{index} {history} {term} {entry} {} {time_ms} {body_bytes} {body_crc}", *kind as u8)
    }
}

impl LastRecord {
    /// Reads what a member says of its last record.
    pub fn parse(text: &str) -> Option<LastRecord> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [index, history, term, entry, kind, time_ms, body_bytes, body_crc] = parts[..] else { return None };
        let record = LastRecord {
            index: Index(index.parse().ok()?),
            history: History::parse(history)?,
            term: term.parse().ok()?,
            entry: entry.parse().ok()?,
            kind: Kind::from_number(kind.parse().ok()?)?,
            time_ms: time_ms.parse().ok()?,
            body_bytes: body_bytes.parse().ok()?,
            body_crc: body_crc.parse().ok()?,
        };
        (record.to_string() == text).then_some(record)
    }

    /// Returns the last record of a log that was opened.
    ///
    /// # Errors
    /// The log is damaged, or has no record: nothing tells then of which entry the data's last record is.
    pub fn of(log: &Log) -> Result<LastRecord, Fault> {
        let before = Index(log.last().0.saturating_sub(1));
        let mut reader = log.reader(before).through(Through::Written);
        match reader.next().map_err(|error| damaged(error.to_string()))? {
            Next::Record(record) => Ok(LastRecord::from(&record)),
            _ => Err(damaged("the restored data have no record of the log: restore them through a later one")),
        }
    }
}

/// The finding of a leader about the last record of restored data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The group has agreed on this record, and it is the last one of its entry.
    Same,
    /// The data are not of the group's past, or not such that a member can go on with them: a text for people.
    Refused(String),
    /// The leader cannot tell yet: a text for people.
    Unknown(String),
}

/// Compares the last record of restored data with the log of a leader, of which the group has agreed on the records
/// through `committed`.
pub fn compare(log: &Log, committed: Index, asked: &LastRecord) -> Compared {
    let index = asked.index;
    if asked.history != log.history() {
        return Compared::Refused(format!(
            "record {index} is of history {}, and the group's is {}",
            asked.history,
            log.history()
        ));
    }
    if index > committed {
        return Compared::Refused(format!("record {index} is beyond the group's, which end with {committed}"));
    }
    let mut reader = log.reader(Index(index.0.saturating_sub(1))).through(Through::Written);
    match reader.next() {
        Ok(Next::Record(record)) if LastRecord::from(&record) == *asked => {}
        Ok(Next::Record(record)) => {
            return Compared::Refused(format!(
                "record {index} of term {} is not the group's record {index}, which is of term {}",
                asked.term, record.term
            ));
        }
        Ok(Next::Gap(first)) => {
            return Compared::Refused(format!(
                "the leader's log begins with record {first}, behind record {index}: begin with an empty directory, or \
                 restore newer data"
            ));
        }
        Ok(Next::UpToDate) => return Compared::Unknown(format!("the leader has not written record {index} yet")),
        Err(error) => return Compared::Unknown(error.to_string()),
    }
    // A leader sends whole entries: a part of one would be taken for all of it.
    let mut end = index;
    while end < committed {
        match reader.next() {
            Ok(Next::Record(record)) if (record.term, record.entry) == (asked.term, asked.entry) => end = record.index,
            Ok(Next::Record(_)) => break,
            _ => return Compared::Unknown(format!("the leader has not written record {} yet", end.next())),
        }
    }
    if end != index {
        return Compared::Refused(format!(
            "record {index} is within entry {}, which ends with record {end}: restore the data through that one",
            asked.entry
        ));
    }
    Compared::Same
}

/// Whether a message is a follower's answer to the leader.
fn is_answer(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse)
}

impl<M: Machine> Member<M> {
    /// Whether a vote, for another member or for itself, is asked of a member that began with restored data and that no
    /// record of a leader has named since.
    pub(crate) fn is_unnamed_for(&self, message: &Message) -> bool {
        let asks = matches!(
            message.get_msg_type(),
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote | MessageType::MsgTimeoutNow
        );
        asks && self.ballot.unnamed().is_some()
    }

    /// Notes that a record of a leader names this member, when it is on the disk: a change of the members since, or
    /// those that there are behind what is committed by now, which may have come with a copy. At the entry that the
    /// leader has said, it had no such member, or a learner that was added for this one.
    pub(crate) fn note_named(&mut self) -> Result<(), Fault> {
        let Some(behind) = self.ballot.unnamed() else { return Ok(()) };
        let (raft, synced) = (&self.raw.raft, self.machine.log().synced());
        let entries = raft.store();
        let is_synced = |number: u64| entries.end_of(number).is_some_and(|end| end <= synced);
        let is_named =
            entries.changes_behind(behind).any(|(number, members)| members.get(raft.id).is_some() && is_synced(number));
        let applied = raft.raft_log.applied;
        let is_there = applied >= behind && self.configuration.get(raft.id).is_some() && is_synced(applied);
        if is_named || is_there {
            self.ballot.name()?;
        }
        Ok(())
    }

    /// Has a message to a leader say that this member waits to be named, if it does.
    pub(crate) fn say_unnamed(&self, mut message: Message) -> Message {
        if is_answer(&message) && self.ballot.unnamed().is_some() {
            message.priority = UNNAMED_PRIORITY;
        }
        message
    }

    /// Notes of an answer to this leader whether its sender waits to be named. A learner that has nearly all has
    /// answered in the term of its leader: what it was in an earlier one does not count.
    pub(crate) fn note_unnamed(&mut self, message: &Message) {
        let raft = &self.raw.raft;
        let is_to_leader = raft.state == StateRole::Leader && raft.term == message.term;
        if !is_answer(message) || !is_to_leader || raft.prs().get(message.from).is_none() {
            return;
        }
        match message.priority == UNNAMED_PRIORITY {
            true => _ = self.unnamed.insert(message.from),
            false => _ = self.unnamed.remove(&message.from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Change, Configuration};
    use crate::trial::{Data, ELECTION_TICKS, data, hear, keep_change, keep_records, message, restored};
    use raft::INVALID_ID;

    /// Returns a log of entries of two records each, all synced: of term 1 through entry 3, then of term 2.
    fn log_of(entries: u64) -> Data {
        let data = data();
        for entry in 1..=entries {
            let term = if entry <= 3 { 1 } else { 2 };
            keep_records(&data, (term, entry), 2);
        }
        data.log().write();
        data.node().sync();
        data
    }

    fn refused(leader: &Data, committed: u64, asked: &LastRecord) -> String {
        match compare(leader.log(), Index(committed), asked) {
            Compared::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_last_record_is_read_as_it_is_written() {
        let last = LastRecord::of(log_of(4).log()).expect("it has records");
        assert_eq!((last.index, last.term, last.entry), (Index(8), 2, 4));
        let text = last.to_string();
        assert_eq!(LastRecord::parse(&text), Some(last));
        for other in ["", "8", &text[1..], &text[..text.len() - 1], &format!("{text} 1"), &format!("0{text}")] {
            assert_ne!(LastRecord::parse(other), LastRecord::parse(&text), "{other}");
        }
        assert!(matches!(LastRecord::of(data().log()), Err(Fault::Damaged(_))), "there is no record");
    }

    #[test]
    fn the_past_of_a_group_is_what_it_has_agreed_on() {
        let leader = log_of(6);
        let last = |entries| LastRecord::of(log_of(entries).log()).expect("it has records");
        for entries in 1..=6 {
            assert_eq!(compare(leader.log(), Index(12), &last(entries)), Compared::Same, "{entries}");
        }
        assert!(refused(&leader, 10, &last(6)).contains("record 12 is beyond the group's, which end with 10"));
        assert!(refused(&leader, 12, &last(7)).contains("beyond"));
        let asked = last(3);
        let other = LastRecord { history: History([3; 20]), ..asked.clone() };
        assert!(refused(&leader, 12, &other).contains("is of history 0303"));
        let within = LastRecord { index: Index(5), ..asked.clone() };
        let why = refused(&leader, 12, &within);
        assert!(why.contains("record 5 is within entry 3, which ends with record 6"), "{why}");
        for forked in [
            LastRecord { term: 2, ..asked.clone() },
            LastRecord { entry: 4, ..asked.clone() },
            LastRecord { time_ms: 7, ..asked.clone() },
            LastRecord { body_crc: 7, ..asked.clone() },
            LastRecord { body_bytes: 7, ..asked.clone() },
            LastRecord { kind: Kind::Effects, ..asked },
        ] {
            assert!(refused(&leader, 12, &forked).contains("is not the group's record 6"), "{forked:?}");
        }
    }

    #[test]
    fn who_begins_with_restored_data_votes_for_nobody_until_a_leader_names_it() {
        // The data name the member, as they are of a time before it was removed.
        let mut member = restored(log_of(3), 1, 4);
        let mut leader = log_of(3);
        leader.apply(Index(6)).expect("nothing is broken");
        leader.lead(1, 4);
        let request = || Message { index: 9, log_term: 9, ..message(MessageType::MsgRequestVote, 3, 5) };
        let pre_vote = || Message { index: 9, log_term: 9, ..message(MessageType::MsgRequestPreVote, 3, 5) };
        let asks = |member: &mut Member<Data>| {
            hear(member, pre_vote());
            hear(member, request());
            hear(member, message(MessageType::MsgTimeoutNow, 2, 1));
            (0..4 * ELECTION_TICKS).for_each(|_| member.tick().expect("nothing is broken"));
            let said: Vec<_> = member.take_outgoing().into_iter().filter(|message| message.is_vote()).collect();
            (said.len(), member.ballot.vote().vote, member.leader())
        };
        assert_eq!(asks(&mut member), (0, 0, INVALID_ID));
        let founders = Configuration::parse("1@a:1,2@b:1,3@c:1,4@d:1,5@e:1").expect("these are members");
        let without = founders.changed_by(&Change::Remove { id: 1 }).expect("there are others").settled();
        keep_change(&mut leader, &mut member, (1, 4), &without);
        assert_eq!(asks(&mut member), (0, 0, 2), "the record names others");
        let address = "a:9".to_owned();
        let with = without.changed_by(&Change::Add { id: 1, address }).expect("it is no member");
        keep_change(&mut leader, &mut member, (1, 5), &with);
        assert_eq!(member.ballot.unnamed(), None);
        (0..4 * ELECTION_TICKS).for_each(|_| member.tick().expect("nothing is broken"));
        hear(&mut member, request());
        assert_eq!(member.ballot.vote().vote, 3, "it votes as any member that begins");
    }
}
