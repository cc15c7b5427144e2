//! A server that begins with restored data: before it is a member, it asks the leader whether these are of the group's
//! past. How records are compared is in `haypile_raft`; here is the question, and who may ask it.

use crate::remote::error_in;
use haypile_engine::{GroupFacts, MemberFacts};
use haypile_log::{History, Log};
use haypile_raft::{Compared, LastRecord, Part, compare};
use haypile_resp::Reply;
use std::collections::BTreeSet;
use std::io;
use std::thread::{Builder, ScopedJoinHandle};

/// The word of a question, in the place of the number of the member that a connection is for.
const QUESTION: &str = "restored";

/// The most servers that are asked, all at the same time: each may name another one that leads.
const ASKED_MAX: usize = 32;

/// Why a server does not begin with its restored data yet: texts for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The leader says that it must not.
    Refused(String),
    /// No leader has answered.
    Unanswered(String),
}

/// The question of a server that is to be a member of a group.
pub struct Question<'a> {
    /// The word with which the connection of a member begins.
    pub word: &'a str,
    pub group: History,
    pub id: u64,
    pub last: &'a LastRecord,
}

impl Question<'_> {
    /// Asks servers of the group at the same time, each by `ask`, and those that they name as leaders; returns the
    /// entry behind which a record has to name the server. A server that does not answer holds up none of the others.
    ///
    /// # Errors
    /// The server must not begin, or not yet.
    pub fn ask(
        &self,
        addresses: impl Iterator<Item = String>,
        ask: &(dyn Fn(&str, &[&[u8]]) -> io::Result<Reply> + Sync),
    ) -> Result<u64, Waits> {
        let (group, id, last) = (self.group.to_string(), self.id.to_string(), self.last.to_string());
        let words = [self.word, &group, &id, QUESTION, &last].map(str::as_bytes);
        let words = [&[&b"REPLCONF"[..]], &words[..]].concat();
        let mut next: BTreeSet<String> = addresses.take(ASKED_MAX).collect();
        let (mut asked, mut said) = (BTreeSet::new(), Vec::new());
        while !next.is_empty() {
            let answers = ask_all(&next, &|address| ask(address, &words));
            asked.append(&mut next);
            for (address, reply) in answers {
                match reply {
                    Ok(Reply::Status(answer)) => match Answer::parse(&answer) {
                        Some(Answer::Same(behind)) => return Ok(behind),
                        Some(Answer::Refused(why)) => return Err(Waits::Refused(why)),
                        Some(Answer::LeadsNot(leader)) => {
                            said.push(format!("{address} does not lead"));
                            if !leader.is_empty() && !asked.contains(&leader) && asked.len() + next.len() < ASKED_MAX {
                                next.insert(leader);
                            }
                        }
                        None => said.push(format!("{address} does not know the question")),
                    },
                    Ok(reply) => {
                        let why = error_in(&reply).unwrap_or_else(|| "something else".into());
                        said.push(format!("{address} answers: {why}"));
                    }
                    Err(error) => said.push(format!("{address}: {error}")),
                }
            }
        }
        Err(Waits::Unanswered(said.join("; ")))
    }
}

/// Asks servers at the same time; returns what each answers, in the order of the addresses.
fn ask_all(
    addresses: &BTreeSet<String>,
    ask: &(dyn Fn(&str) -> io::Result<Reply> + Sync),
) -> Vec<(String, io::Result<Reply>)> {
    std::thread::scope(|threads| {
        let begin = |address| Builder::new().name("raft-question".into()).spawn_scoped(threads, move || ask(address));
        let asked: Vec<_> = addresses.iter().map(|address| (address, begin(address))).collect();
        let answer = |thread: io::Result<ScopedJoinHandle<'_, _>>| {
            // A thread that panicked has said so already.
            thread?.join().unwrap_or_else(|_| Err(io::Error::other("it cannot be asked")))
        };
        asked.into_iter().map(|(address, thread)| (address.clone(), answer(thread))).collect()
    })
}

/// The answer of a server of the group.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// The data are of the group's past. A record behind this entry has to name the server.
    Same(u64),
    Refused(String),
    /// The asked server does not lead; the one that does has this address, if it is known.
    LeadsNot(String),
}

impl Answer {
    fn text(&self) -> String {
        match self {
            Answer::Same(behind) => format!("same {behind}"),
            Answer::Refused(why) => format!("refused {why}"),
            Answer::LeadsNot(leader) => format!("leader {leader}"),
        }
    }

    fn parse(text: &str) -> Option<Answer> {
        let (word, rest) = text.split_once(' ')?;
        match word {
            "same" => rest.parse().ok().map(Answer::Same),
            "refused" => Some(Answer::Refused(rest.into())),
            "leader" => Some(Answer::LeadsNot(rest.into())),
            _ => None,
        }
    }
}

/// Returns whether the words of a request are those of a question.
pub fn is_question(words: &[Vec<u8>]) -> bool {
    words.len() == 5 && words[3] == QUESTION.as_bytes()
}

/// Returns the answer to a question, as far as this server can give one. `proves` has the group confirm that it leads.
///
/// # Errors
/// A text for people: the question is to be asked again, or elsewhere.
pub fn answer(words: &[Vec<u8>], facts: &GroupFacts, log: &Log, proves: &dyn Fn() -> bool) -> Result<String, String> {
    let texts: Option<Vec<&str>> = words.iter().map(|word| std::str::from_utf8(word).ok()).collect();
    let Some([_, group, id, _, last]) = texts.as_deref() else { return Err("the question is none".into()) };
    if *group != facts.group {
        return Err("this server is in another group: 'raft-peers' has to be the same on all members".into());
    }
    let (id, last) = (id.parse::<u64>().ok(), LastRecord::parse(last));
    let (Some(id), Some(last)) = (id, last) else { return Err("the question is none".into()) };
    if facts.role != "leader" {
        return Ok(Answer::LeadsNot(facts.leader_address.clone()).text());
    }
    // The facts are those of a moment before: a leader that leads now has led since.
    if !proves() {
        return Err("the group does not confirm that this server leads".into());
    }
    if let Some(member) = facts.members.iter().find(|member| member.id == id)
        && !is_unheard(member)
    {
        let why = format!(
            "the group has a member {id}, which may have voted: give this server a number that no member has had, or \
             take that member out first"
        );
        return Ok(Answer::Refused(why).text());
    }
    match compare(log, log.confirmed(), &last) {
        Compared::Same => Ok(Answer::Same(facts.commit.max(last.entry)).text()),
        Compared::Refused(why) => Ok(Answer::Refused(format!("the data are not of the group's past: {why}")).text()),
        Compared::Unknown(why) => Err(why),
    }
}

/// Whether a member was added for a server that has not begun yet: a learner, which counts for nothing, and which has
/// not acknowledged anything to this leader.
fn is_unheard(member: &MemberFacts) -> bool {
    let has_nothing = member.seen.as_ref().is_some_and(|seen| seen.matched == 0 && !seen.is_heard);
    member.part == Part::Learner.name() && has_nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_engine::MemberSeen;
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    /// The longest time for servers that are asked at the same time to find each other.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Asks the servers at ports from 1 through `count`.
    fn ask_many(count: usize, answer: &(dyn Fn(&str) -> io::Result<Reply> + Sync)) -> Result<u64, Waits> {
        let history = History([7; 20]);
        let last = LastRecord::parse(&format!("9 {history} 1 3 1 1000 0 0")).expect("it is written so");
        let question = Question { word: "member", group: history, id: 4, last: &last };
        question.ask((1..=count).map(|port| format!("a:{port}")), &|address, _| answer(address))
    }

    #[test]
    fn all_servers_are_asked_at_the_same_time_and_the_one_that_they_name() {
        let (here, met) = (Mutex::new(0), Condvar::new());
        let answer = |address: &str| {
            if address == "b:1" {
                return Ok(Reply::Status("same 7".into()));
            }
            let mut here = here.lock().expect("nobody panics");
            *here += 1;
            met.notify_all();
            let (_here, waited) = met.wait_timeout_while(here, PATIENCE, |here| *here < 30).expect("nobody panics");
            assert!(!waited.timed_out(), "{address} is asked alone");
            Ok(Reply::Status("leader b:1".into()))
        };
        assert_eq!(ask_many(30, &answer), Ok(7));
    }

    #[test]
    fn who_waits_for_an_answer_says_the_same_each_time() {
        let answer = |address: &str| match address {
            "a:2" => Ok(Reply::Status("leader a:1".into())),
            _ => Err(io::ErrorKind::TimedOut.into()),
        };
        let said = Waits::Unanswered("a:1: timed out; a:2 does not lead; a:3: timed out".into());
        assert_eq!(ask_many(3, &answer), Err(said));
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let refused = Answer::Refused("it is of another group".into());
        for answer in [Answer::Same(7), refused, Answer::LeadsNot("a:1".into()), Answer::LeadsNot(String::new())] {
            assert_eq!(Answer::parse(&answer.text()), Some(answer));
        }
        for text in ["", "same", "same x", "OK", "other 7"] {
            assert_eq!(Answer::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_learner_that_was_never_heard_of_may_begin() {
        let member = |part, seen| MemberFacts { id: 4, address: "a:1".into(), part, seen };
        let seen = |matched, is_heard| Some(MemberSeen { matched, is_heard, needs_copy: false });
        assert!(is_unheard(&member("learner", seen(0, false))));
        for (part, seen) in [
            ("voter", seen(0, false)),
            ("joining", seen(0, false)),
            ("learner", seen(1, false)),
            ("learner", seen(0, true)),
            ("learner", None),
        ] {
            assert!(!is_unheard(&member(part, seen)), "{part} {seen:?}");
        }
    }
}
