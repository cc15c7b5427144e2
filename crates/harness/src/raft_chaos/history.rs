//! Histories: what clients have asked for and heard, with the times of both, in memory and as text.

use std::fmt;
use std::time::Instant;

use super::operation::{Answer, Kind, Object, Operation, Outcome, Step};

/// An operation's end, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Done { return_ns: u64, answer: Answer },
    Unknown,
    Failed,
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub object: Object,
    pub client: u64,
    pub operation: Operation,
    /// Nanoseconds since the clock's beginning, of a clock that all clients share and that never goes back.
    pub call_ns: u64,
    pub end: End,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.object, self.client, self.call_ns)?;
        match &self.end {
            End::Done { return_ns, answer } => {
                write!(f, "{return_ns} {} =", self.operation)?;
                for (number, list) in answer.iter().enumerate() {
                    write!(f, "{}", if number > 0 { " |" } else { "" })?;
                    list.iter().try_for_each(|value| write!(f, " {value}"))?;
                }
                Ok(())
            }
            End::Unknown => write!(f, "? {}", self.operation),
            End::Failed => write!(f, "! {}", self.operation),
        }
    }
}

impl Entry {
    /// Reads what `Display` has written.
    pub fn parse(line: &str) -> Option<Entry> {
        let (left, answer) = line.split_once('=').map_or((line, None), |(left, right)| (left, Some(right)));
        let mut words = left.trim_start().splitn(5, ' ');
        let (kind, number) = words.next()?.split_once(':')?;
        let object = Object { kind: Kind::named(kind)?, number: number.parse().ok()? };
        let (client, call_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let end = words.next()?;
        let operation = Operation::parse(words.next()?)?;
        let list = |text: &str| text.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<i64>>>();
        let end = match end {
            "?" => End::Unknown,
            "!" => End::Failed,
            return_ns => {
                let reads = match &operation {
                    Operation::Transact(steps) => steps.iter().filter(|step| matches!(step, Step::Read { .. })).count(),
                    _ => 1,
                };
                // Nothing behind the sign is one empty list, or none.
                let mut answer = answer?.split('|').map(list).collect::<Option<Answer>>()?;
                answer.truncate(reads);
                End::Done { return_ns: return_ns.parse().ok()?, answer }
            }
        };
        Some(Entry { object, client, operation, call_ns, end })
    }
}

/// The clock of a history.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).expect("a run takes less than 500 years")
    }
}

/// The operations of one client, or of all.
#[derive(Debug, Default)]
pub struct History {
    pub entries: Vec<Entry>,
}

impl History {
    /// Notes an operation and its outcome, unless it says nothing: a read without an answer. Returns an error for a
    /// reply that is none.
    pub fn note(
        &mut self,
        (object, client): (Object, u64),
        operation: Operation,
        call_ns: u64,
        return_ns: u64,
        outcome: &Outcome,
    ) -> Result<(), String> {
        let end = match outcome {
            Outcome::Done(answer) => End::Done { return_ns, answer: answer.clone() },
            Outcome::Failed(_) | Outcome::Unknown(_) if operation.is_read() => return Ok(()),
            Outcome::Failed(_) => End::Failed,
            Outcome::Unknown(_) => End::Unknown,
            Outcome::Wrong(text) => return Err(format!("{operation} on {object} by client {client}: {text}")),
        };
        self.entries.push(Entry { object, client, operation, call_ns, end });
        Ok(())
    }

    /// Reads lines as `Display` of their entries writes them; empty ones and those with a `#` are left out.
    pub fn parse(text: &str) -> Result<History, String> {
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
        let entry = |line: &str| Entry::parse(line).ok_or_else(|| format!("not an operation: {line}"));
        lines.map(entry).collect::<Result<_, _>>().map(|entries| History { entries })
    }

    pub fn append(&mut self, other: History) {
        self.entries.extend(other.entries);
    }

    /// Returns the operations on each object, by the times of their calls.
    pub fn by_object(&self) -> Vec<(Object, Vec<&Entry>)> {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        entries.sort_by_key(|entry| (entry.object, entry.call_ns));
        let parts = entries.chunk_by(|one, next| one.object == next.object);
        parts.map(|part| (part[0].object, part.to_vec())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line() {
        let object = Object { kind: Kind::Family, number: 7 };
        let steps = vec![Step::Append { key: 0, value: 5 }, Step::Read { key: 0 }, Step::Read { key: 2 }];
        let done = End::Done { return_ns: 20, answer: vec![vec![3, 5], vec![]] };
        let entry = Entry { object, client: 1, operation: Operation::Transact(steps), call_ns: 10, end: done };
        assert_eq!(entry.to_string(), "family:7 1 10 20 transact 0+5 0? 2? = 3 5 |");
        assert_eq!(Entry::parse(&entry.to_string()), Some(entry));
        let lines = [
            "family:7 1 10 ? transact 0+5 0? 2?",
            "family:7 1 10 20 transact 0+5 =",
            "register:1 2 3 4 read = 0",
            "register:1 2 3 4 write 9 =",
            "sorted:1 2 3 ! raise 4 -5",
            "list:3 0 1 2 append 4 = 1",
        ];
        for line in lines {
            assert_eq!(Entry::parse(line).map(|entry| entry.to_string()).as_deref(), Some(line));
        }
        assert!(History::parse("register:1 2 3 4 wrote 9 =").is_err());
    }

    #[test]
    fn reads_without_an_answer_are_left_out() {
        let (object, mut history) = (Object { kind: Kind::Register, number: 1 }, History::default());
        let failed = Outcome::Failed("no leader".into());
        history.note((object, 1), Operation::Read, 1, 2, &failed).expect("it is no wrong reply");
        history.note((object, 1), Operation::Write(3), 1, 2, &failed).expect("it is no wrong reply");
        assert_eq!(history.entries.len(), 1);
        let wrong = Outcome::Wrong("+OK".into());
        assert!(history.note((object, 1), Operation::Read, 1, 2, &wrong).is_err());
    }
}
