//! The configuration of a group: who its members are, and what each counts for. It changes by records of the log.
//!
//! A member comes in as a learner, which has all and counts for nothing, and is made a voter when it has caught up.
//! Whatever changes the voters goes through a joint configuration, in which a majority of those before and of those
//! after have to agree, so that there is no moment when either alone could decide.

use crate::members::{MEMBERS_MAX, Members, MembersError, Peer};
use haypile_log::{Effect, effects};
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use std::collections::BTreeMap;
use std::fmt;

/// The part of a member: what it counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Voter,
    /// The member counts for nothing, yet or any more.
    Learner,
    /// The member votes from the next configuration on; both count now.
    Joining,
    /// The member has voted in the configuration before; both count now.
    Leaving,
}

impl Part {
    /// Returns the mark behind the address of a member in the text of a configuration.
    fn mark(self) -> &'static str {
        match self {
            Part::Voter => "",
            Part::Learner => "?",
            Part::Joining => "+",
            Part::Leaving => "-",
        }
    }

    /// Returns the name that people read.
    pub fn name(self) -> &'static str {
        match self {
            Part::Voter => "voter",
            Part::Learner => "learner",
            Part::Joining => "joining",
            Part::Leaving => "leaving",
        }
    }
}

/// An order to change the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A learner comes in; it is made a voter when it has caught up.
    Add { id: u64, address: String },
    /// A member goes.
    Remove { id: u64 },
}

/// The members of a group, and what each counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration(BTreeMap<u64, (Peer, Part)>);

impl From<&Members> for Configuration {
    fn from(members: &Members) -> Configuration {
        Configuration(members.iter().map(|(id, peer)| (id, (peer.clone(), Part::Voter))).collect())
    }
}

impl fmt::Display for Configuration {
    /// Writes the configuration as [`parse`](Configuration::parse) reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (id, (peer, part))) in self.0.iter().enumerate() {
            write!(f, "{}{id}@{}{}", if at == 0 { "" } else { "," }, peer.address, part.mark())?;
        }
        Ok(())
    }
}

impl Configuration {
    /// Reads `1@host:port,2@host:port?,…`, with a mark behind the address of whoever is not just a voter.
    ///
    /// # Errors
    /// The text is not of this form.
    pub fn parse(text: &str) -> Result<Configuration, MembersError> {
        let marks = [Part::Learner, Part::Joining, Part::Leaving];
        let part_of = |text: &str| marks.into_iter().find(|part| text.ends_with(part.mark())).unwrap_or(Part::Voter);
        let plain: Vec<&str> = text.split(',').map(|member| member.trim_end_matches(['?', '+', '-'])).collect();
        let members = Members::parse(&plain.join(","))?;
        let parts: BTreeMap<&str, Part> =
            text.split(',').zip(plain).map(|(full, plain)| (plain, part_of(full))).collect();
        let mut configuration = Configuration::from(&members);
        for (id, (peer, part)) in &mut configuration.0 {
            *part = parts.get(&*format!("{id}@{}", peer.address)).copied().unwrap_or(Part::Voter);
        }
        if configuration.to_string() == text { Ok(configuration) } else { Err(MembersError::unusual()) }
    }

    /// Returns what the record of a change says; None of anything else.
    pub(crate) fn of_record(body: &[u8]) -> Option<Configuration> {
        let mut effects = effects(body);
        let (Some(Ok(Effect::Put { value, .. })), None) = (effects.next(), effects.next()) else { return None };
        Configuration::parse(std::str::from_utf8(value).ok()?).ok()
    }

    /// Returns the members by their numbers, ascending, with what each counts for.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Peer, Part)> {
        self.0.iter().map(|(id, (peer, part))| (*id, peer, *part))
    }

    /// Returns a member, and what it counts for.
    pub fn get(&self, id: u64) -> Option<(&Peer, Part)> {
        self.0.get(&id).map(|(peer, part)| (peer, *part))
    }

    /// Returns whether the voters of two configurations count.
    pub fn is_joint(&self) -> bool {
        self.0.values().any(|(_, part)| matches!(part, Part::Joining | Part::Leaving))
    }

    fn ids(&self, parts: &[Part]) -> Vec<u64> {
        self.iter().filter(|(_, _, part)| parts.contains(part)).map(|(id, ..)| id).collect()
    }

    /// Returns the configuration as Raft has it.
    pub(crate) fn state(&self) -> ConfState {
        let mut state = ConfState::default();
        state.set_voters(self.ids(&[Part::Voter, Part::Joining]));
        if self.is_joint() {
            state.set_voters_outgoing(self.ids(&[Part::Voter, Part::Leaving]));
        }
        state.set_learners(self.ids(&[Part::Learner]));
        state
    }

    /// Returns the change that leads from another configuration here, as Raft has it.
    pub(crate) fn change_from(&self, before: &Configuration) -> ConfChangeV2 {
        let mut change = ConfChangeV2::default();
        if before.is_joint() {
            // Without a change in it, it ends the joint configuration.
            return change;
        }
        let mut single = |id: u64, kind: ConfChangeType| {
            let mut single = ConfChangeSingle { node_id: id, ..ConfChangeSingle::default() };
            single.set_change_type(kind);
            change.mut_changes().push(single);
        };
        for (id, _, part) in self.iter() {
            match (before.get(id).map(|(_, part)| part), part) {
                (None, _) => single(id, ConfChangeType::AddLearnerNode),
                (Some(_), Part::Joining) => single(id, ConfChangeType::AddNode),
                (Some(_), Part::Leaving) => single(id, ConfChangeType::RemoveNode),
                (Some(_), Part::Voter | Part::Learner) => {}
            }
        }
        before.ids(&[Part::Learner]).into_iter().filter(|id| self.get(*id).is_none()).for_each(|id| {
            single(id, ConfChangeType::RemoveNode);
        });
        if self.is_joint() {
            change.set_transition(ConfChangeTransition::Explicit);
        }
        change
    }

    /// Returns the configuration behind a change.
    ///
    /// # Errors
    /// A text for people.
    pub fn changed_by(&self, change: &Change) -> Result<Configuration, String> {
        if self.is_joint() {
            return Err("the members are being changed: try again".into());
        }
        let mut after = self.clone();
        match change {
            Change::Add { id, address } => {
                let one = Members::parse(&format!("{id}@{address}")).map_err(|error| error.to_string())?;
                let peer = one.get(*id).filter(|_| one.len() == 1).cloned().ok_or("a member is number@host:port")?;
                if self.0.contains_key(id) {
                    return Err(format!("the group has a member {id} already"));
                }
                if self.0.values().any(|(known, _)| known.address == peer.address) {
                    return Err(format!("the group has a member at {address} already"));
                }
                if self.0.len() >= MEMBERS_MAX {
                    return Err(format!("a group has at most {MEMBERS_MAX} members"));
                }
                after.0.insert(*id, (peer, Part::Learner));
            }
            Change::Remove { id } => match self.get(*id).map(|(_, part)| part) {
                None => return Err(format!("the group has no member {id}")),
                Some(Part::Learner) => _ = after.0.remove(id),
                Some(_) if self.ids(&[Part::Voter]).len() == 1 => {
                    return Err(format!("member {id} is the last one that votes"));
                }
                Some(_) => after.set(*id, Part::Leaving),
            },
        }
        Ok(after)
    }

    /// Returns the configuration in which a learner begins to vote.
    pub(crate) fn promoting(&self, id: u64) -> Configuration {
        let mut after = self.clone();
        after.set(id, Part::Joining);
        after
    }

    /// Returns the configuration behind a joint one.
    pub(crate) fn settled(&self) -> Configuration {
        let mut after = self.clone();
        after.0.retain(|_, (_, part)| *part != Part::Leaving);
        after.0.values_mut().filter(|(_, part)| *part == Part::Joining).for_each(|(_, part)| *part = Part::Voter);
        after
    }

    fn set(&mut self, id: u64, part: Part) {
        self.0.get_mut(&id).expect("it is a member").1 = part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(text: &str) -> Configuration {
        Configuration::parse(text).unwrap()
    }

    #[test]
    fn a_configuration_is_read_as_it_is_written() {
        for text in ["1@a:1", "1@a:1,2@b:2?,3@[::1]:3+,40@d:4-"] {
            assert_eq!(configuration(text).to_string(), text);
        }
        for text in ["", "1@a:1??", "1@a:1 2@b:1", "2@a:1,1@b:1", "1@a:1,", "1@a:1!"] {
            assert!(Configuration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_member_comes_in_as_a_learner_and_goes_through_a_joint_configuration() {
        let one = configuration("1@a:1,2@b:1");
        let two = one.changed_by(&Change::Add { id: 3, address: "c:1".into() }).unwrap();
        assert_eq!(two, configuration("1@a:1,2@b:1,3@c:1?"));
        let three = two.promoting(3);
        assert_eq!(three, configuration("1@a:1,2@b:1,3@c:1+"));
        assert_eq!((three.state().voters, three.state().voters_outgoing), (vec![1, 2, 3], vec![1, 2]));
        assert!(three.changed_by(&Change::Remove { id: 1 }).is_err(), "one change after the other");
        let four = three.settled();
        assert_eq!(four, configuration("1@a:1,2@b:1,3@c:1"));
        let five = four.changed_by(&Change::Remove { id: 1 }).unwrap();
        assert_eq!((five.state().voters, five.state().voters_outgoing), (vec![2, 3], vec![1, 2, 3]));
        assert_eq!(five.settled(), configuration("2@b:1,3@c:1"));
        assert_eq!(two.changed_by(&Change::Remove { id: 3 }), Ok(one), "a learner goes at once");
    }

    #[test]
    fn a_change_that_makes_no_sense_is_refused() {
        let one = configuration("1@a:1,2@b:1?");
        let add = |id, address: &str| one.changed_by(&Change::Add { id, address: address.into() }).unwrap_err();
        assert!(add(1, "c:1").contains("a member 1 already"));
        assert!(add(3, "a:1").contains("a member at a:1 already"));
        assert!(add(0, "c:1").contains("from 1 on") && add(3, "c").contains("host:port"));
        assert!(add(3, "c:1,4@d:1").contains("number@host:port"));
        let remove = |id| one.changed_by(&Change::Remove { id }).unwrap_err();
        assert!(remove(7).contains("no member 7") && remove(1).contains("the last one that votes"));
    }

    /// Each change of a random walk leads, as Raft carries it out, to the configuration that the record has.
    #[test]
    fn raft_comes_to_the_same_configuration() {
        use haypile_log::testing::Random;
        use raft::{RawNode, storage::MemStorage};
        for seed in 0..50 {
            let mut random = Random(seed);
            let mut now = configuration("1@a:1,2@a:2,3@a:3");
            let storage = MemStorage::new_with_conf_state(now.state());
            let config = raft::Config { id: 1, ..raft::Config::default() };
            let mut raw = RawNode::new(&config, storage, &slog::Logger::root(slog::Discard, slog::o!())).unwrap();
            for _ in 0..30 {
                let id = 1 + random.below(8);
                let next = match random.below(4) {
                    _ if now.is_joint() => Ok(now.settled()),
                    0 => now.changed_by(&Change::Remove { id }),
                    1 if now.get(id).is_some_and(|(_, part)| part == Part::Learner) => Ok(now.promoting(id)),
                    _ => now.changed_by(&Change::Add { id, address: format!("a:{id}") }),
                };
                let Ok(next) = next else { continue };
                let mut state = raw.apply_conf_change(&next.change_from(&now)).unwrap();
                for ids in [&mut state.voters, &mut state.voters_outgoing, &mut state.learners] {
                    ids.sort_unstable();
                }
                assert_eq!(state, next.state(), "seed {seed}");
                now = next;
            }
        }
    }
}
