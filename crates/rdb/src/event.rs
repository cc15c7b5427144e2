//! What a file says, as it is handed over: events of the file, and the parts of its values.

/// Takes what a file says, in its order.
pub trait Sink {
    /// Why it does not want more.
    type Error;

    fn take(&mut self, event: Event<'_>) -> Result<(), Self::Error>;
}

/// Something that a file says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// About the file: who wrote it, when.
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
    /// The key is complete. One that had no elements is none: Redis skips it when it loads a file, and so does who
    /// takes this (a stream may be empty; it has its `Part::Stream`).
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
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part<'a> {
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
    /// What a stream is beside its entries; follows them.
    Stream(StreamHead),
    /// A consumer group: follows the stream's head. Then all that is pending, then the consumers.
    Group(Group<'a>),
    /// An entry of the last group that was delivered and not acknowledged. Whose it is follows. IDs ascend.
    Pending { id: StreamId, delivered_ms: u64, deliveries: u64 },
    /// A consumer of the last group. What is pending for it follows.
    Consumer(Consumer<'a>),
    /// The last consumer has this pending entry. There are as many of these as pending entries; whether they are the
    /// same is for the sink to find out. IDs ascend.
    Owned(StreamId),
}

/// The ID of a stream's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    pub const BYTES: usize = 16;

    /// Big endian, so that bytes sort as IDs do.
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

/// What a stream is beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHead {
    /// Entries, as many as there were.
    pub length: u64,
    /// No smaller than any entry's.
    pub last: StreamId,
    /// The first entry's; 0-0 without entries.
    pub first: StreamId,
    /// Since Redis 7.0; before it 0-0.
    pub max_deleted: StreamId,
    /// Since Redis 7.0; before it the length.
    pub entries_added: u64,
    /// So many groups follow.
    pub groups: u64,
}

/// A consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    pub name: &'a [u8],
    pub last: StreamId,
    /// Since Redis 7.0; `None` before it: to be estimated. -1: not known.
    pub entries_read: Option<i64>,
    pub pending: u64,
}

/// A consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'a> {
    pub name: &'a [u8],
    pub seen_ms: u64,
    /// Since Redis 7.2; before it the same as `seen_ms`. -1: never.
    pub active_ms: i64,
    pub pending: u64,
}

/// The fields of a stream's entry with their values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fields<'a> {
    pub(crate) text: &'a [u8],
    /// Where each string of `text` ends: field, value, field, value.
    pub(crate) ends: &'a [usize],
}

impl<'a> Fields<'a> {
    /// Pairs.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Field, value, field, value.
    pub fn strings(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let (text, ends) = (self.text, self.ends);
        (0..ends.len()).map(move |n| &text[if n == 0 { 0 } else { ends[n - 1] }..ends[n]])
    }
}
