//! The content of a file as it is handed over: events of the file, and the parts of its values.

/// Takes the content of a file, in order.
pub trait Sink {
    /// The reason why the sink does not want more.
    type Error;

    fn take(&mut self, event: Event<'_>) -> Result<(), Self::Error>;
}

/// A piece of a file's content.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// A field about the file: which server wrote it, when.
    Aux {
        name: &'a [u8],
        value: &'a [u8],
    },
    /// The keys that follow belong to this database.
    Database(u64),
    /// About how many keys this database has, and how many of them deadlines.
    Sizes {
        keys: u64,
        deadlines: u64,
    },
    /// A library of functions: its source.
    Function(&'a [u8]),
    /// Data of a module was skipped: the module type's name; the key, or `None` where it belonged to none. Such a key
    /// has no other event.
    Module {
        name: &'a str,
        key: Option<&'a [u8]>,
    },
    /// A key begins. Its value's parts follow.
    Key(Key<'a>),
    Part(Part<'a>),
    /// The key is complete. A key without elements is none: Redis skips it when it loads a file, and sinks do so, too
    /// (a stream may be empty; it has its `Part::Stream`).
    End {
        elements: u64,
    },
}

/// A key, before its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key<'a> {
    pub name: &'a [u8],
    pub kind: Kind,
    /// Unix time. It may have passed.
    pub deadline_ms: Option<u64>,
    /// Seconds since it was used, if the file says so.
    pub idle_s: Option<u64>,
    /// Redis's logarithmic counter of uses, if the file says so.
    pub frequency: Option<u8>,
    /// Bytes of the file that lie before the value: how far the reader is.
    pub position: u64,
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    String,
    List,
    Set,
    Zset,
    Hash,
    /// A hash of which fields have deadlines.
    TimedHash,
    Stream,
    /// A stream with the idempotent IDs of producers.
    IdempotentStream,
    /// A stream with pending entries that have no consumer; also with the idempotent IDs of producers.
    NackedStream,
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
    /// The reader is about to hold so many bytes for the next part, where they are many: a sink that bounds memory
    /// finds room for them now, or stops. Comes again where that part turns out to be longer, and is no element.
    Ahead { bytes: u64 },
    /// A whole string.
    String(&'a [u8]),
    /// The next element of a list, from head to tail, or a member of a set.
    Element(&'a [u8]),
    /// A member of a sorted set; the score is not NaN. In any order.
    Scored(&'a [u8], f64),
    /// A field of a hash, with its own deadline (Unix time), which may have passed.
    Field { field: &'a [u8], value: &'a [u8], deadline_ms: Option<u64> },
    /// The next entry of a stream. IDs ascend.
    Entry { id: StreamId, fields: Fields<'a> },
    /// The state of a stream beside its entries; follows them.
    Stream(StreamHead),
    /// A consumer group: follows the stream's head. Its pending entries come next, then its consumers.
    Group(Group<'a>),
    /// An entry of the last group that was delivered and not acknowledged. Its consumer follows later. IDs ascend.
    Pending { id: StreamId, delivered_ms: u64, deliveries: u64 },
    /// A consumer of the last group. The IDs of its pending entries follow.
    Consumer(Consumer<'a>),
    /// A pending entry of the last consumer, as many as pending entries; whether they are equal is for the sink to
    /// check. IDs ascend.
    Owned(StreamId),
    /// A pending entry of the last group that has no consumer, behind its consumers, in the order in which these were
    /// handed back. Together with those that are owned as many as pending entries.
    Nacked(StreamId),
    /// The bounds of what a stream keeps of producers, behind its groups.
    Idempotency(Idempotency),
    /// A producer of a stream. Its idempotent IDs follow.
    Producer { name: &'a [u8], ids: u64 },
    /// An idempotent ID of the last producer with the ID of the entry that was added, the oldest first.
    Idempotent { name: &'a [u8], id: StreamId },
    /// The numbers of entries that a stream was given with idempotent IDs, behind the producers.
    IdempotencyCounts { added: u64, duplicates: u64 },
}

/// The bounds of what a stream keeps of its producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Seconds for which an idempotent ID is kept: 1 to 86400.
    pub duration_s: u64,
    /// Idempotent IDs of a producer: 1 to 10000.
    pub ids_max: u64,
    pub producers: u64,
}

/// The ID of a stream's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const BYTES: usize = 16;

    /// Returns the ID big endian, so that bytes sort as IDs do.
    pub fn encode(self) -> [u8; StreamId::BYTES] {
        let mut bytes = [0; StreamId::BYTES];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8]) -> Option<StreamId> {
        let (ms, seq) = <&[u8; StreamId::BYTES]>::try_from(bytes).ok()?.split_at(8);
        Some(StreamId { ms: u64::from_be_bytes(ms.try_into().ok()?), seq: u64::from_be_bytes(seq.try_into().ok()?) })
    }
}

/// The state of a stream beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHead {
    /// The number of entries.
    pub length: u64,
    /// The last ID, no smaller than any entry's.
    pub last: StreamId,
    /// The first entry's ID; 0-0 without entries.
    pub first: StreamId,
    /// The highest ID deleted, since Redis 7.0; before it 0-0.
    pub max_deleted: StreamId,
    /// The number of entries ever added, since Redis 7.0; before it the length.
    pub entries_added: u64,
    /// The number of groups that follow.
    pub groups: u64,
}

/// A consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    pub name: &'a [u8],
    pub last: StreamId,
    /// Entries read, since Redis 7.0; `None` before it: to be estimated. -1: not known.
    pub entries_read: Option<i64>,
    pub pending: u64,
}

/// A consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'a> {
    pub name: &'a [u8],
    pub seen_ms: u64,
    /// The time of the last entry, since Redis 7.2; before it the same as `seen_ms`. -1: never.
    pub active_ms: i64,
    pub pending: u64,
}

/// The fields of a stream's entry with their values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fields<'a> {
    pub(crate) text: &'a [u8],
    /// The ends of the strings of `text`: field, value, field, value.
    pub(crate) ends: &'a [usize],
}

impl<'a> Fields<'a> {
    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns field, value, field, value.
    pub fn strings(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let (text, ends) = (self.text, self.ends);
        (0..ends.len()).map(move |n| &text[if n == 0 { 0 } else { ends[n - 1] }..ends[n]])
    }
}
