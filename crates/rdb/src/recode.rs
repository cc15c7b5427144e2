//! Values of payloads on their way into a file, or to a server that is older than they are: unchanged where Redis 7.0
//! knows their form, else in the older form for it. So a file claims no newer version than its content needs, whichever
//! version of Redis has made the payloads.
//!
//! A payload lies in memory, so counts that must be written first are found by reading it twice.

use crate::error::{Error, Failure};
use crate::event::{Key, Kind, Part, StreamHead};
use crate::form::Form;
use crate::nodes::{Grouping, Node};
use crate::payload::{FOOTER_BYTES, Payload};
use crate::writer::{File, Memory, Output, Writer};
use std::convert::Infallible;
use std::io::{self, Write};

/// The counts that are needed before a value is written.
#[derive(Default)]
struct Counts {
    /// Elements of a collection, nodes of a stream.
    elements: u64,
    grouping: Grouping,
    first_deadline_ms: Option<u64>,
    /// Consumers of each group.
    consumers: Vec<u64>,
    /// Whether a stream has what older forms cannot hold.
    needs_newer: bool,
}

impl Counts {
    fn of(payload: &Payload<'_>) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        let counted = payload.read::<Infallible>(|part| {
            counts.add(part);
            Ok(())
        });
        match counted {
            Ok(_) => Ok(counts),
            Err(Failure::Input(error)) => Err(error),
            Err(Failure::Sink(never)) => match never {},
        }
    }

    fn add(&mut self, part: Part<'_>) {
        match part {
            Part::Element(_) | Part::Scored(..) => self.elements += 1,
            Part::Field { deadline_ms, .. } => {
                self.elements += 1;
                self.first_deadline_ms = self.first_deadline_ms.into_iter().chain(deadline_ms).min();
            }
            Part::Entry { fields, .. } => self.elements += u64::from(self.grouping.begins(bytes_of(fields))),
            Part::Group(_) => self.consumers.push(0),
            Part::Consumer(_) => *self.consumers.last_mut().expect("a consumer follows its group") += 1,
            Part::Nacked(_) | Part::Producer { .. } | Part::Idempotent { .. } => self.needs_newer = true,
            Part::IdempotencyCounts { added, duplicates } => self.needs_newer |= added > 0 || duplicates > 0,
            Part::Ahead { .. }
            | Part::String(_)
            | Part::Stream(_)
            | Part::Pending { .. }
            | Part::Owned(_)
            | Part::Idempotency(_) => {}
        }
    }
}

fn bytes_of(fields: crate::Fields<'_>) -> usize {
    fields.strings().map(<[u8]>::len).sum()
}

/// A value that is being written in another form.
struct Recoder<'w, O> {
    writer: &'w mut Writer<O>,
    grouping: Grouping,
    node: Node,
    consumers: std::vec::IntoIter<u64>,
    /// The group whose entries were written, but not how many consumers it has.
    open_group: Option<u64>,
    is_timed: bool,
}

impl<O: Output> Recoder<'_, O> {
    fn part(&mut self, part: Part<'_>) -> io::Result<()> {
        match part {
            Part::Ahead { .. } => Ok(()),
            Part::String(bytes) | Part::Element(bytes) => self.writer.string(bytes),
            Part::Scored(member, score) => {
                self.writer.string(member)?;
                self.writer.score(score)
            }
            Part::Field { field, value, deadline_ms } => {
                if self.is_timed {
                    self.writer.field_deadline(deadline_ms)?;
                }
                self.writer.string(field)?;
                self.writer.string(value)
            }
            Part::Entry { id, fields } => {
                if self.grouping.begins(bytes_of(fields)) && !self.node.is_empty() {
                    self.writer.node(&mut self.node)?;
                }
                self.node.push(id, fields.strings());
                Ok(())
            }
            Part::Stream(head) => self.head(&head),
            Part::Group(group) => {
                self.end_pending()?;
                self.open_group = self.consumers.next();
                self.writer.group(&group)
            }
            Part::Pending { id, delivered_ms, deliveries } => self.writer.pending(id, delivered_ms, deliveries),
            Part::Consumer(consumer) => {
                self.end_pending()?;
                self.writer.consumer(&consumer)
            }
            Part::Owned(id) => self.writer.owned(id),
            // The older forms have no place for the bounds; of the rest there is nothing.
            Part::Nacked(_)
            | Part::Idempotency(_)
            | Part::Producer { .. }
            | Part::Idempotent { .. }
            | Part::IdempotencyCounts { .. } => Ok(()),
        }
    }

    fn head(&mut self, head: &StreamHead) -> io::Result<()> {
        if !self.node.is_empty() {
            self.writer.node(&mut self.node)?;
        }
        self.writer.stream(head)
    }

    /// Writes the number of consumers, behind the pending entries.
    fn end_pending(&mut self) -> io::Result<()> {
        self.open_group.take().map_or(Ok(()), |consumers| self.writer.length(consumers))
    }
}

impl<W: Write> Writer<File<W>> {
    /// Writes a key with its value, as a payload of DUMP has it.
    ///
    /// # Errors
    /// `InvalidData` if the payload does not hold the value that it claims; nothing of the key was written then.
    pub fn key_of(&mut self, key: &Key<'_>, payload: &Payload<'_>) -> io::Result<()> {
        let (form, value) = payload.form().map_err(damaged)?;
        let kind = match form {
            Form::SetListpack | Form::Stream3 | Form::TimedHashEarly | Form::TimedHashListpackEarly => form.kind(),
            Form::Stream4 | Form::Stream5 => Some(Kind::Stream),
            _ => None,
        };
        let Some(kind) = kind else { return self.key_in(form, key, value) };
        let counts = Counts::of(payload).map_err(damaged)?;
        if counts.needs_newer {
            return self.key_in(form, key, value);
        }
        self.key(&Key { kind, ..*key })?;
        self.recoded(kind, counts, payload)
    }
}

impl<O: Output> Writer<O> {
    /// Writes the value of a payload in the form that is written for its kind, which was told already.
    fn recoded(&mut self, kind: Kind, counts: Counts, payload: &Payload<'_>) -> io::Result<()> {
        let is_timed = kind == Kind::TimedHash;
        if is_timed {
            self.first_deadline(counts.first_deadline_ms.unwrap_or(0))?;
        }
        self.length(counts.elements)?;
        let consumers = counts.consumers.into_iter();
        let (grouping, node) = Default::default();
        let mut recoder = Recoder { writer: self, grouping, node, consumers, open_group: None, is_timed };
        match payload.read(|part| recoder.part(part)) {
            Ok(_) => recoder.end_pending(),
            Err(Failure::Sink(error)) => Err(error),
            Err(Failure::Input(error)) => Err(damaged(error)),
        }
    }
}

impl Payload<'_> {
    /// Returns the payload of the same value for a reader that is not newer than Redis 7.0: `None` if the reader knows
    /// the form already, or no form that it knows holds the value.
    ///
    /// # Errors
    /// `InvalidData` if the payload does not hold the value that it claims, `FileTooLarge` if the other is longer than
    /// `bytes_max`.
    pub fn for_redis_7_0(&self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        let (form, _) = self.form().map_err(damaged)?;
        let kind = match form {
            Form::SetListpack => Kind::Set,
            Form::Stream3 | Form::Stream4 | Form::Stream5 => Kind::Stream,
            _ => return Ok(None),
        };
        let counts = Counts::of(self).map_err(damaged)?;
        if counts.needs_newer {
            return Ok(None);
        }
        let mut writer = Writer::new(Memory::new(bytes_max.saturating_sub(FOOTER_BYTES)));
        writer.kind(kind)?;
        writer.recoded(kind, counts, self)?;
        Ok(Some(writer.seal()))
    }
}

fn damaged(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Consumer, Event, Group, StreamId};
    use crate::{Sink, VERSION, VERSION_WITH_FIELD_DEADLINES, read_file};

    /// The content of a file, printed.
    #[derive(Default)]
    struct Said(Vec<String>);

    impl Sink for Said {
        type Error = Infallible;

        fn take(&mut self, event: Event<'_>) -> Result<(), Infallible> {
            self.0.push(match event {
                // The position of the value depends on the form.
                Event::Key(key) => format!("{:?}", Key { position: 0, ..key }),
                event => format!("{event:?}"),
            });
            Ok(())
        }
    }

    const NAME: &[u8] = b"name";

    fn key(kind: Kind) -> Key<'static> {
        Key { name: NAME, kind, deadline_ms: Some(7), idle_s: Some(3), frequency: None, position: 0 }
    }

    /// Returns the content of a file made of a payload; its version, and the form that the value has.
    fn written(payload: &[u8]) -> (Vec<String>, u16, u8) {
        let payload = Payload::check(payload).unwrap();
        let mut writer = Writer::file(Vec::new(), VERSION).unwrap();
        let before = writer.position() as usize;
        writer.key_of(&key(payload.kind().unwrap_or(Kind::String)), &payload).unwrap();
        let version = writer.version();
        let file = writer.end().unwrap();
        let mut said = Said::default();
        read_file(&file[..], &mut said).unwrap();
        // The form stands behind the deadline (nine bytes) and the idle time (two).
        (said.0, version, file[before + 11])
    }

    /// Returns a payload of a form that has the same bytes as one that the writer knows, or nearly.
    fn sealed(form: Form, version: u16, write: impl FnOnce(&mut Writer<Memory>)) -> Vec<u8> {
        let mut writer = Writer::new(Memory::new(1 << 20));
        writer.raw(&[form as u8]).unwrap();
        write(&mut writer);
        crate::payload::seal(writer.bytes().to_vec(), version)
    }

    #[test]
    fn what_redis_7_0_knows_stays_as_it_is() {
        let (said, version, form) = written(&sealed(Form::Set, 11, |writer| {
            writer.length(1).unwrap();
            writer.string(b"hay").unwrap();
        }));
        assert_eq!((version, form), (VERSION, Form::Set as u8));
        assert_eq!(said.len(), 3, "{said:?}");
    }

    #[test]
    fn a_set_of_7_2_becomes_one_of_7_0() {
        let mut listpack = crate::listpack::Builder::default();
        [&b"hay"[..], b"17"].iter().for_each(|member| listpack.string(member));
        let listpack = listpack.take();
        let (said, version, form) = written(&sealed(Form::SetListpack, 11, |writer| {
            writer.begin_string(listpack.len() as u64).unwrap();
            writer.raw(&listpack).unwrap();
        }));
        assert_eq!((version, form), (VERSION, Form::Set as u8));
        let members = [b"hay".as_slice(), b"17"].map(|member| format!("{:?}", Event::Part(Part::Element(member))));
        assert_eq!(said[1..3], members);
    }

    /// Writes a stream of three nodes; one group without consumers and pending entries, one with both.
    fn write_stream(writer: &mut Writer<Memory>, form: Form) {
        let id = |n: u64| StreamId { ms: 1000 + n, seq: n };
        writer.length(3).unwrap();
        for at in [0..100, 100..200, 200..250] {
            let mut node = Node::default();
            at.for_each(|n| node.push(id(n), [&b"field"[..], b"value"].into_iter()));
            writer.node(&mut node).unwrap();
        }
        let (last, first) = (id(249), id(0));
        let head = StreamHead { length: 250, last, first, max_deleted: id(3), entries_added: 251, groups: 3 };
        writer.stream(&head).unwrap();
        for (name, pending) in [(&b"none"[..], 0), (b"some", 2), (b"last", 0)] {
            writer.group(&Group { name, last: id(5), entries_read: Some(-1), pending }).unwrap();
            (0..pending).for_each(|n| writer.pending(id(n), 77, 3).unwrap());
            if pending == 0 {
                writer.length(0).unwrap();
                continue;
            }
            writer.length(2).unwrap();
            for (name, owned) in [(&b"alice"[..], 2), (b"bob", 0)] {
                let consumer = Consumer { name, seen_ms: 99, active_ms: 99, pending: owned };
                if form == Form::Stream3 {
                    writer.string(name).unwrap();
                    writer.raw(&99u64.to_le_bytes()).unwrap();
                    writer.raw(&99u64.to_le_bytes()).unwrap();
                    writer.length(owned).unwrap();
                } else {
                    writer.consumer(&consumer).unwrap();
                }
                (0..owned).for_each(|n| writer.owned(id(n)).unwrap());
            }
        }
    }

    #[test]
    fn a_stream_of_7_2_becomes_one_of_7_0() {
        let both = [Form::Stream2, Form::Stream3].map(|form| sealed(form, 11, |writer| write_stream(writer, form)));
        let [(expected, ..), (said, version, form)] = both.map(|payload| written(&payload));
        assert_eq!((version, form), (VERSION, Form::Stream2 as u8));
        assert_eq!(said, expected);
        assert_eq!(expected.len(), 1 + 250 + 1 + 3 + 2 + 2 + 2 + 1, "all of it");
    }

    #[test]
    fn deadlines_of_fields_need_7_4() {
        let write = |writer: &mut Writer<Memory>, form: Form| {
            if form == Form::TimedHash {
                writer.first_deadline(5000).unwrap();
            }
            writer.length(2).unwrap();
            for (field, deadline) in [(&b"a"[..], Some(6000)), (b"b", None)] {
                match form {
                    Form::TimedHash => writer.field_deadline(deadline).unwrap(),
                    _ => writer.length(deadline.unwrap_or(0)).unwrap(),
                }
                writer.string(field).unwrap();
                writer.string(b"value").unwrap();
            }
        };
        let both = [Form::TimedHash, Form::TimedHashEarly].map(|form| sealed(form, 12, |writer| write(writer, form)));
        let [(expected, before, _), (said, version, form)] = both.map(|payload| written(&payload));
        assert_eq!((before, version, form), (VERSION_WITH_FIELD_DEADLINES, before, Form::TimedHash as u8));
        assert_eq!(said, expected);
    }

    #[test]
    fn a_payload_of_7_2_has_one_for_7_0() {
        let parts = |payload: &[u8]| {
            let mut said = Vec::new();
            let take = |part: Part<'_>| {
                said.push(format!("{part:?}"));
                Ok::<(), Infallible>(())
            };
            Payload::check(payload).unwrap().read(take).unwrap();
            said
        };
        let [older, newer] =
            [Form::Stream2, Form::Stream3].map(|form| sealed(form, 11, |writer| write_stream(writer, form)));
        let made = Payload::check(&newer).unwrap().for_redis_7_0(1 << 20).unwrap().expect("7.0 does not know the form");
        assert_eq!((made[0], Payload::check(&made).unwrap().version), (Form::Stream2 as u8, VERSION));
        assert_eq!(parts(&made), parts(&older));
        assert_eq!(Payload::check(&older).unwrap().for_redis_7_0(1 << 20).unwrap(), None);
        assert!(Payload::check(&newer).unwrap().for_redis_7_0(made.len()).is_ok());
        let error = Payload::check(&newer).unwrap().for_redis_7_0(made.len() - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn damage_is_found_before_anything_is_written() {
        let payload = sealed(Form::SetListpack, 11, |writer| writer.string(b"no listpack at all, this is").unwrap());
        let mut writer = Writer::file(Vec::new(), VERSION).unwrap();
        let before = writer.position();
        let error = writer.key_of(&key(Kind::Set), &Payload::check(&payload).unwrap()).unwrap_err();
        assert_eq!((error.kind(), writer.position()), (io::ErrorKind::InvalidData, before));
    }

    #[test]
    fn the_version_can_be_told_afterwards() {
        let mut writer = Writer::file(io::Cursor::new(Vec::new()), VERSION).unwrap();
        writer.database(0).unwrap();
        writer.key(&key(Kind::String)).unwrap();
        writer.string(&vec![b'x'; 1_000_000]).unwrap();
        let mut file = writer.end().unwrap();
        crate::writer::change_version(&mut file, VERSION_WITH_FIELD_DEADLINES).unwrap();
        let summary = read_file(&file.get_ref()[..], &mut Said::default()).unwrap();
        assert_eq!((summary.version, summary.has_checksum), (12, true));
    }
}
