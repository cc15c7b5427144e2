//! Writes values, in the oldest form that can hold them: each needs its count beforehand, and nothing else.
//!
//! A value in a payload: `kind`, then what its type wants. A value in a file: `key`, then the same.
//!
//! | kind | what follows |
//! |---|---|
//! | string | `string`, or `begin_string` and `raw` bytes of that length |
//! | list, set | `length`, then `string` for each element |
//! | sorted set | `length`, then `string` and `score` for each |
//! | hash | `length`, then two `string`s for each field |
//! | hash with deadlines | `first_deadline`, `length`, then `field_deadline` and two `string`s for each field |
//! | stream | `length` (of nodes), `node` for each, `stream`, then for each group what is below |
//!
//! A group in a stream: `group`, its `pending` entries, `length` (of consumers); then for each consumer `consumer` and
//! `owned` for each of its entries; in a nacked stream `length` (of entries without consumer) and `owned` for each.
//!
//! An idempotent or a nacked stream goes on with `idempotency`, each `producer` with its `idempotent` IDs, and
//! `idempotency_counts`.

use crate::checksum::Checksum;
use crate::event::{Consumer, Group, Idempotency, Kind, StreamHead, StreamId};
use crate::file;
use crate::form::Form;
use crate::item::number_of;
use crate::lzf::Compressor;
use crate::nodes::Node;
use crate::{VERSION, payload};
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The destination of the bytes.
pub trait Output {
    /// Returns how many bytes are gathered before `on_full`.
    fn full_at(&self) -> usize;

    /// Takes some of the bytes, or returns the reason why there may not be more.
    fn on_full(&mut self, bytes: &mut Vec<u8>) -> io::Result<()>;
}

/// Bytes that stay in memory, for a payload.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    bytes_max: usize,
}

impl Memory {
    /// Bounds the payload: writing fails with `FileTooLarge` beyond `bytes_max`.
    pub fn new(bytes_max: usize) -> Memory {
        Memory { bytes_max }
    }
}

impl Output for Memory {
    fn full_at(&self) -> usize {
        self.bytes_max.saturating_add(1)
    }

    fn on_full(&mut self, _: &mut Vec<u8>) -> io::Result<()> {
        Err(io::ErrorKind::FileTooLarge.into())
    }
}

/// A payload of which only the length is wanted, or all of it where it is short.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    kept_bytes_max: usize,
    bytes_max: u64,
    /// Bytes that were counted and dropped.
    dropped: u64,
}

impl Measure {
    /// Keeps bytes up to `kept_bytes_max`. Writing fails with `FileTooLarge` beyond `bytes_max`.
    pub fn new(kept_bytes_max: usize, bytes_max: u64) -> Measure {
        Measure { kept_bytes_max, bytes_max, dropped: 0 }
    }
}

impl Output for Measure {
    fn full_at(&self) -> usize {
        self.kept_bytes_max.saturating_add(1)
    }

    fn on_full(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.dropped += bytes.len() as u64;
        bytes.clear();
        if self.dropped > self.bytes_max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(()) }
    }
}

/// A payload that was measured.
#[derive(Debug, PartialEq, Eq)]
pub enum Measured {
    Whole(Vec<u8>),
    /// The length of a payload that is longer than was to be kept.
    Long(u64),
}

/// A file.
#[derive(Debug)]
pub struct File<W> {
    to: W,
    checksum: Checksum,
    bytes: u64,
}

/// Bytes of a file that are written at once.
const FILE_PIECE_BYTES: usize = 256 * 1024;

impl<W: Write> Output for File<W> {
    fn full_at(&self) -> usize {
        FILE_PIECE_BYTES
    }

    fn on_full(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.checksum = self.checksum.and(bytes);
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes)?;
        bytes.clear();
        Ok(())
    }
}

/// A value or a file in the making.
#[derive(Debug)]
pub struct Writer<O> {
    bytes: Vec<u8>,
    output: O,
    /// The version that the written values need.
    version: u16,
    /// The form of the last value.
    form: Form,
    compressor: Option<Compressor>,
    compressed: Vec<u8>,
    /// Field deadlines are counted from here.
    first_ms: u64,
    /// Bytes of the longest string so far.
    longest: usize,
}

/// Shorter strings are not compressed, as in Redis.
const COMPRESSED_FROM_BYTES: usize = 21;

/// Longer strings are not compressed either: that would take a buffer of their size.
pub const COMPRESSED_BYTES_MAX: usize = 1 << 20;

/// Bytes that compression must save.
const COMPRESSED_GAIN_BYTES: usize = 4;

impl<O: Output> Writer<O> {
    pub fn new(output: O) -> Writer<O> {
        let compressor = Some(Compressor::default());
        Writer {
            bytes: Vec::new(),
            output,
            version: VERSION,
            form: Form::String,
            compressor,
            compressed: Vec::new(),
            first_ms: 0,
            longest: 0,
        }
    }

    /// Leaves strings as long as they are.
    pub fn without_compression(self) -> Writer<O> {
        Writer { compressor: None, ..self }
    }

    /// Returns the version of the format that the values written so far need.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Writes the type of a value.
    pub fn kind(&mut self, kind: Kind) -> io::Result<()> {
        let form = match kind {
            Kind::String => Form::String,
            Kind::List => Form::List,
            Kind::Set => Form::Set,
            Kind::Zset => Form::Zset,
            Kind::Hash => Form::Hash,
            Kind::TimedHash => Form::TimedHash,
            Kind::Stream => Form::Stream2,
            Kind::IdempotentStream => Form::Stream4,
            Kind::NackedStream => Form::Stream5,
        };
        self.form(form)
    }

    fn form(&mut self, form: Form) -> io::Result<()> {
        self.form = form;
        // A form that `VERSION` has is written as of that version.
        if form.version() > VERSION {
            self.version = self.version.max(form.version());
        }
        self.raw(&[form as u8])
    }

    /// Writes bytes unchanged.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= self.output.full_at() { self.output.on_full(&mut self.bytes) } else { Ok(()) }
    }

    /// Writes bytes unchanged that `add` appends to its argument.
    pub fn raw_of<E>(&mut self, add: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>) -> io::Result<Result<bool, E>> {
        let added = add(&mut self.bytes);
        self.raw(&[]).map(|()| added)
    }

    /// Writes a length, or a number in the form of one.
    #[inline]
    pub fn length(&mut self, length: u64) -> io::Result<()> {
        match length {
            0..=0x3f => self.raw(&[length as u8]),
            0x40..=0x3fff => self.raw(&(0x4000 | length as u16).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.raw(&[0x80])?;
                self.raw(&(length as u32).to_be_bytes())
            }
            _ => {
                self.raw(&[0x81])?;
                self.raw(&length.to_be_bytes())
            }
        }
    }

    /// Returns whether a string of so many bytes is never compressed.
    pub fn keeps_as_it_is(bytes: usize) -> bool {
        bytes > COMPRESSED_BYTES_MAX
    }

    /// Returns the length of the longest string that was written as a whole.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Writes a string: as a number, compressed, or unchanged.
    pub fn string(&mut self, string: &[u8]) -> io::Result<()> {
        self.longest = self.longest.max(string.len());
        if let Some(number) = number_of(string).and_then(|number| i32::try_from(number).ok()) {
            let digits = number.to_le_bytes();
            return match number {
                -0x80..=0x7f => self.raw(&[0xc0, digits[0]]),
                -0x8000..=0x7fff => self.raw(&[0xc1, digits[0], digits[1]]),
                _ => {
                    self.raw(&[0xc2])?;
                    self.raw(&digits)
                }
            };
        }
        if (COMPRESSED_FROM_BYTES..=COMPRESSED_BYTES_MAX).contains(&string.len()) {
            let (compressor, mut compressed) = (self.compressor.as_mut(), std::mem::take(&mut self.compressed));
            let bytes_max = string.len() - COMPRESSED_GAIN_BYTES;
            let is_shorter = compressor.is_some_and(|it| it.compress(string, bytes_max, &mut compressed));
            let written = if is_shorter { self.compressed(&compressed, string.len()) } else { self.plain(string) };
            self.compressed = compressed;
            return written;
        }
        self.plain(string)
    }

    fn compressed(&mut self, compressed: &[u8], bytes: usize) -> io::Result<()> {
        self.raw(&[0xc3])?;
        self.length(compressed.len() as u64)?;
        self.length(bytes as u64)?;
        self.raw(compressed)
    }

    fn plain(&mut self, string: &[u8]) -> io::Result<()> {
        self.length(string.len() as u64)?;
        // An output that keeps nothing does not gather a long string either.
        string.chunks(FILE_PIECE_BYTES).try_for_each(|piece| self.raw(piece))
    }

    /// Begins a string whose bytes follow, by `raw`.
    pub fn begin_string(&mut self, bytes: u64) -> io::Result<()> {
        self.length(bytes)
    }

    /// Writes the score of the member before it.
    pub fn score(&mut self, score: f64) -> io::Result<()> {
        self.raw(&score.to_le_bytes())
    }

    /// Writes the earliest deadline of a hash's fields.
    pub fn first_deadline(&mut self, first_ms: u64) -> io::Result<()> {
        self.first_ms = first_ms;
        self.raw(&first_ms.to_le_bytes())
    }

    /// Writes the deadline of the field that follows, which is not before the first one.
    pub fn field_deadline(&mut self, deadline_ms: Option<u64>) -> io::Result<()> {
        let first_ms = self.first_ms;
        self.length(deadline_ms.map_or(0, |deadline| deadline.saturating_sub(first_ms) + 1))
    }

    /// Writes a part of a stream's entries; empties the node.
    pub fn node(&mut self, node: &mut Node) -> io::Result<()> {
        let (id, listpack) = node.take();
        self.plain(&id.encode())?;
        self.string(&listpack)
    }

    fn id(&mut self, id: StreamId) -> io::Result<()> {
        self.length(id.ms)?;
        self.length(id.seq)
    }

    /// Writes the state of a stream behind its entries.
    pub fn stream(&mut self, head: &StreamHead) -> io::Result<()> {
        self.length(head.length)?;
        self.id(head.last)?;
        self.id(head.first)?;
        self.id(head.max_deleted)?;
        self.length(head.entries_added)?;
        self.length(head.groups)
    }

    /// Writes a group; as many pending entries follow as it says.
    pub fn group(&mut self, group: &Group<'_>) -> io::Result<()> {
        self.string(group.name)?;
        self.id(group.last)?;
        self.length(group.entries_read.unwrap_or(-1) as u64)?;
        self.length(group.pending)
    }

    pub fn pending(&mut self, id: StreamId, delivered_ms: u64, deliveries: u64) -> io::Result<()> {
        self.raw(&id.encode())?;
        self.raw(&delivered_ms.to_le_bytes())?;
        self.length(deliveries)
    }

    /// Writes a consumer; the IDs of as many pending entries follow as it says.
    pub fn consumer(&mut self, consumer: &Consumer<'_>) -> io::Result<()> {
        self.string(consumer.name)?;
        self.raw(&consumer.seen_ms.to_le_bytes())?;
        if self.form.has_producers() {
            self.raw(&consumer.active_ms.to_le_bytes())?;
        }
        self.length(consumer.pending)
    }

    /// Writes the ID of a pending entry behind its consumer, or behind the number of those without consumer.
    pub fn owned(&mut self, id: StreamId) -> io::Result<()> {
        self.raw(&id.encode())
    }

    /// Writes the bounds of what a stream keeps of its producers; as many of these follow as it says.
    pub fn idempotency(&mut self, of: &Idempotency) -> io::Result<()> {
        [of.duration_s, of.ids_max, of.producers].into_iter().try_for_each(|number| self.length(number))
    }

    /// Writes a producer; so many idempotent IDs follow.
    pub fn producer(&mut self, name: &[u8], ids: u64) -> io::Result<()> {
        self.string(name)?;
        self.length(ids)
    }

    pub fn idempotent(&mut self, name: &[u8], id: StreamId) -> io::Result<()> {
        self.string(name)?;
        self.id(id)
    }

    /// Writes the numbers of entries with idempotent IDs, behind the producers.
    pub fn idempotency_counts(&mut self, added: u64, duplicates: u64) -> io::Result<()> {
        self.length(added)?;
        self.length(duplicates)
    }
}

impl Writer<Measure> {
    /// Counts bytes without being given them.
    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.output.dropped += bytes;
        self.output.on_full(&mut self.bytes)
    }

    /// Returns the payload of DUMP of the value that was written.
    ///
    /// # Errors
    /// `FileTooLarge` if the payload is longer than it may be.
    pub fn measured(mut self) -> io::Result<Measured> {
        if self.output.dropped == 0 && self.bytes.len() as u64 <= self.output.bytes_max {
            return Ok(Measured::Whole(payload::seal(self.bytes, self.version)));
        }
        self.output.on_full(&mut self.bytes)?;
        Ok(Measured::Long(self.output.dropped + payload::FOOTER_BYTES as u64))
    }
}

impl Writer<Memory> {
    /// Has `write` write to the end of `out`.
    pub fn at_end_of<T>(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Self) -> T) -> T {
        std::mem::swap(&mut self.bytes, out);
        let written = write(self);
        std::mem::swap(&mut self.bytes, out);
        written
    }

    /// Returns the payload of DUMP of the value that was written.
    pub fn seal(self) -> Vec<u8> {
        payload::seal(self.bytes, self.version)
    }

    /// Returns the bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Changes the version of a file that was ended. Reads all of it, for its checksum.
pub fn change_version(file: &mut (impl Read + Write + Seek), version: u16) -> io::Result<()> {
    let digits = format!("{version:04}");
    let at = file::MAGIC.len() as u64;
    file.seek(SeekFrom::Start(at))?;
    file.write_all(digits.as_bytes())?;
    let end = file.seek(SeekFrom::End(-8))?;
    file.seek(SeekFrom::Start(0))?;
    let (mut checksum, mut piece, mut left) = (Checksum::default(), vec![0; FILE_PIECE_BYTES], end);
    while left > 0 {
        let bytes = left.min(piece.len() as u64) as usize;
        file.read_exact(&mut piece[..bytes])?;
        checksum = checksum.and(&piece[..bytes]);
        left -= bytes as u64;
    }
    // The checksum is written where reading has stopped.
    file.seek(SeekFrom::Start(end))?;
    file.write_all(&checksum.value().to_le_bytes())
}

impl<W: Write> Writer<File<W>> {
    /// Begins a file of a version: `VERSION`, or `VERSION_WITH_FIELD_DEADLINES` where fields of hashes have deadlines.
    /// A value that needs a newer one raises `version`, which is written into the file when it has ended.
    pub fn file(to: W, version: u16) -> io::Result<Writer<File<W>>> {
        let mut writer = Writer::new(File { to, checksum: Checksum::default(), bytes: 0 });
        writer.raw(file::MAGIC)?;
        writer.raw(format!("{version:04}").as_bytes())?;
        Ok(writer)
    }

    /// Writes a field about the file.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) -> io::Result<()> {
        self.raw(&[file::AUX])?;
        self.string(name)?;
        self.string(value)
    }

    /// Writes a library of functions: its code.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        self.raw(&[file::FUNCTION])?;
        self.string(code)
    }

    /// Begins a database, to which the keys that follow belong.
    pub fn database(&mut self, number: u64) -> io::Result<()> {
        self.raw(&[file::DATABASE])?;
        self.length(number)
    }

    /// Writes about how many keys the database has, and how many of them have deadlines.
    pub fn sizes(&mut self, keys: u64, deadlines: u64) -> io::Result<()> {
        self.raw(&[file::SIZES])?;
        self.length(keys)?;
        self.length(deadlines)
    }

    /// Writes a key. Its value follows, without `kind`.
    pub fn key(&mut self, key: &crate::Key<'_>) -> io::Result<()> {
        self.about(key)?;
        self.kind(key.kind)?;
        self.string(key.name)
    }

    /// Writes a key with a value as it lies in a payload.
    pub(crate) fn key_in(&mut self, form: Form, key: &crate::Key<'_>, value: &[u8]) -> io::Result<()> {
        self.about(key)?;
        self.form(form)?;
        self.string(key.name)?;
        value.chunks(FILE_PIECE_BYTES).try_for_each(|piece| self.raw(piece))
    }

    fn about(&mut self, key: &crate::Key<'_>) -> io::Result<()> {
        if let Some(deadline) = key.deadline_ms {
            self.raw(&[file::DEADLINE_MS])?;
            self.raw(&deadline.to_le_bytes())?;
        }
        if let Some(idle_s) = key.idle_s {
            self.raw(&[file::IDLE])?;
            self.length(idle_s)?;
        }
        if let Some(frequency) = key.frequency {
            self.raw(&[file::FREQUENCY, frequency])?;
        }
        Ok(())
    }

    /// Returns the bytes of the file so far.
    pub fn position(&self) -> u64 {
        self.output.bytes + self.bytes.len() as u64
    }

    /// Ends the file with its checksum, and gives it back; it is not flushed.
    pub fn end(mut self) -> io::Result<W> {
        self.bytes.push(file::END);
        self.output.on_full(&mut self.bytes)?;
        let checksum = self.output.checksum.value();
        self.output.to.write_all(&checksum.to_le_bytes())?;
        Ok(self.output.to)
    }
}
