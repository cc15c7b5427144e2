//! Does what Raft asks for, one Ready after the other: stores the ballot, puts entries into the log or takes them back,
//! and lets messages leave when what they say is on the disk.

use crate::ballot::Vote;
use crate::configuration::Configuration;
use crate::loader::Outgoing;
use crate::machine::{Fault, Machine};
use crate::member::{Member, Unpersisted, damaged};
use crate::reads::pack;
use crate::wire::{EntryRecord, travels};
use haypile_log::{EntrySpan, Index, Kind, Record};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::{Ready, StateRole};
use std::sync::Arc;

impl<M: Machine> Member<M> {
    /// Tells Raft what is on the disk, and lets messages leave that rest on it.
    pub(crate) fn release_persisted(&mut self) {
        let synced = self.machine.log().synced();
        while let Some(first) = self.unpersisted.pop_front_if(|first| first.through <= synced) {
            self.raw.on_persist_ready(first.number);
            self.send(first.messages);
        }
    }

    pub(crate) fn handle(&mut self, mut ready: Ready) -> Result<(), Fault> {
        if let Some(hard) = ready.hs() {
            let vote = Vote { term: hard.term, vote: hard.vote };
            if vote != self.ballot.vote() {
                self.ballot.store(vote)?;
            }
        }
        let installed = self.take_installed(ready.snapshot());
        let entries = ready.take_entries();
        self.take_back(entries.first().map(|entry| entry.index))?;
        let through = self.take_entries(&entries)?;
        self.send(ready.take_messages());
        ready.take_read_states().iter().for_each(|state| self.on_read_state(state));
        let rests_on_log = |message: &Message| {
            !matches!(message.get_msg_type(), MessageType::MsgHeartbeatResponse | MessageType::MsgReadIndex)
        };
        let (messages, others) = ready.take_persisted_messages().into_iter().partition(rests_on_log);
        // An answer to a heartbeat rests on the ballot alone, and a question on nothing.
        self.send(others);
        let before = self.unpersisted.back().map_or(Index(0), |last| last.through);
        let through = through.unwrap_or(before).max(before);
        let number = ready.number();
        self.unpersisted.push_back(Unpersisted { number, through, messages });
        let committed = ready.take_committed_entries();
        self.raw.advance_append_async(ready);
        if let Some(last) = installed {
            // A copy was on the disk before it was put in place.
            self.raw.on_persist_ready(number);
            self.raw.advance_apply_to(last);
        }
        if let Some(last) = committed.last() {
            self.carry_out_changes(&committed)?;
            self.raw.advance_apply_to(last.index);
        }
        Ok(())
    }

    /// Takes back what has turned out not to hold: entries that others come in the place of, from number `from` on, and
    /// all that a former leader has done since what its group agreed on.
    fn take_back(&mut self, from: Option<u64>) -> Result<(), Fault> {
        let served =
            self.serves.is_some_and(|term| self.raw.raft.state != StateRole::Leader || self.raw.raft.term != term);
        let entries = self.raw.raft.store();
        let stays = from.map_or(entries.last(), |from| entries.last().min(from - 1));
        // A leader's newest entries come out of Raft for the first time.
        let stays = if self.serves.is_some() && !served { entries.last() } else { stays };
        if !served && stays == entries.last() {
            return Ok(());
        }
        let keep = entries.end_of(stays).expect("what is committed is never taken back");
        let commit = self.raw.raft.raft_log.committed.min(stays);
        let committed = entries.end_of(commit).expect("what is committed is known");
        if served {
            self.reads.led.end_lease();
        }
        // The records that stay have to be there when the log is opened again.
        self.machine.log().sync_through(keep).map_err(|error| Fault::Refused(error.to_string()))?;
        assert!(keep >= self.committed, "what is committed is never taken back: {keep}, {}", self.committed);
        self.machine.rebuild(keep, committed.max(self.committed))?;
        assert_eq!(self.machine.log().last(), keep, "the log ends with what stays");
        if served {
            self.serves = None;
            self.changing = None;
            self.proposed.clear();
            self.proofs.clear();
            self.asked = None;
        }
        self.raw.raft.mut_store().truncate(stays + 1);
        // An acknowledgement of what is gone would be a lie.
        for waiting in self.unpersisted.iter_mut().filter(|waiting| waiting.through > keep) {
            waiting.messages.clear();
            waiting.through = keep;
        }
        // The log that was opened knows nothing of what the group has agreed on.
        self.committed = Index(0);
        Ok(())
    }

    /// Puts entries that come out of Raft into the log, where they are not there already; returns the last record.
    fn take_entries(&mut self, entries: &[Entry]) -> Result<Option<Index>, Fault> {
        let mut through = None;
        for entry in entries {
            let (span, change) = match self.proposed.pop_front() {
                Some(span) => {
                    assert_eq!((span.term, span.number), (entry.term, entry.index), "entries come out as they went in");
                    (span, if span.changes_members { self.changing.take() } else { None })
                }
                None if self.raw.raft.state == StateRole::Leader && entry.term == self.raw.raft.term => {
                    (self.keep_term(entry)?, None)
                }
                None => self.keep_received(entry)?,
            };
            assert_eq!(span.changes_members, entry.get_entry_type() != EntryType::EntryNormal, "{span:?}");
            let raft = &mut self.raw.raft;
            // Raft asks for what it has not been told is applied.
            let told = raft.store().end_of(raft.raft_log.applied).unwrap_or_default();
            raft.mut_store().push(span, change, told.min(self.machine.applied()));
            through = Some(span.last);
        }
        if !entries.is_empty() {
            self.machine.log().write();
        }
        Ok(through)
    }

    /// Puts the first entry of a new leader into the log.
    fn keep_term(&mut self, entry: &Entry) -> Result<EntrySpan, Fault> {
        assert!(self.serves.is_none(), "a leader that serves makes its entries in the log");
        let body = [entry.term.to_le_bytes(), self.raw.raft.id.to_le_bytes()].concat();
        let index = self.machine.keep_own((entry.term, entry.index), Kind::Term, &body)?;
        let (term, number) = (entry.term, entry.index);
        Ok(EntrySpan { term, number, first: index, last: index, changes_members: false })
    }

    /// Puts the records of an entry that came from a leader into the log.
    fn keep_received(&mut self, entry: &Entry) -> Result<(EntrySpan, Option<Arc<Configuration>>), Fault> {
        let received = self.received.remove(&entry.index).expect("an entry comes with its records");
        let (span, next) = (received.span, self.machine.log().last().next());
        if (span.term, span.first) != (entry.term, next) {
            return Err(damaged(format!("{span:?} does not follow on record {}", next.0 - 1)));
        }
        let history = self.machine.log().history();
        let records = received.records().map(|record| {
            let EntryRecord { index, kind, time_ms, body, body_crc } =
                record.expect("they were checked when they came");
            let (term, entry) = (span.term, span.number);
            Record { index, history, term, entry, kind, time_ms, body, body_crc, segment: 0, offset: 0 }
        });
        let records: Vec<Record<'_>> = records.collect();
        let change = match (&records[..], span.changes_members) {
            ([one], true) if one.kind == Kind::Members => Configuration::of_record(one.body),
            _ => None,
        };
        let has_change = records.iter().any(|record| record.kind == Kind::Members);
        if change.is_some() != span.changes_members || has_change != span.changes_members {
            return Err(damaged(format!("{span:?} is no change of the members, or not only one")));
        }
        self.machine.keep(&records)?;
        Ok((span, change.map(Arc::new)))
    }

    pub(crate) fn send(&mut self, messages: Vec<Message>) {
        for message in messages {
            // A call that a follower forwards would be carried out by a leader that never ran it.
            if !travels(message.get_msg_type()) {
                continue;
            }
            let message = self.say_unnamed(pack(message));
            let message = if message.get_msg_type() == MessageType::MsgSnapshot {
                // The copy has at least what is committed now: the members among that.
                let commit = self.raw.raft.raft_log.committed;
                let about = message.get_snapshot().get_metadata();
                let (index, log_term) = (about.index, about.term);
                Message { commit, index, log_term, snapshot: Default::default(), ..message }
            } else {
                message
            };
            let entries = self.raw.raft.store();
            let spans: Option<Vec<_>> = message.entries.iter().map(|entry| entries.span(entry.index)).collect();
            // Entries that were forgotten meanwhile are asked for again.
            if let Some(spans) = spans {
                self.outgoing.push(Outgoing { message, spans });
            }
        }
    }
}
