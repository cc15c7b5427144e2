//! Streams that are made as a whole, of entries whose ids ascend. They may have any size: the rows of an object that nothing names
//! until it is complete are written ahead.

use super::{Head, Stream, StreamId};
use crate::Result;
use haypile_store::{Key, Txn};

/// A new stream.
#[derive(Default)]
pub struct Maker(Option<Stream>);

/// What a stream is beside its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Not below the last entry's id.
    pub last: StreamId,
    pub max_deleted: StreamId,
    pub entries_added: u64,
}

impl Maker {
    fn stream(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<&mut Stream> {
        if self.0.is_none() {
            self.0 = Some(Stream::create(txn, key)?);
        }
        Ok(self.0.as_mut().expect("it was just made"))
    }

    /// Adds an entry behind the others.
    pub fn add<'f>(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        id: StreamId,
        fields: impl Iterator<Item = &'f [u8]>,
    ) -> Result<()> {
        self.stream(txn, key)?.put(txn, id, fields)
    }

    /// Says what the stream is, behind all entries.
    pub fn set_past(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, past: Past) -> Result<()> {
        let Past { last, max_deleted, entries_added } = past;
        let stream = self.stream(txn, key)?;
        stream.head = Head { last, max_deleted, entries_added, ..stream.head };
        Ok(())
    }

    /// Gives the stream to a key that is absent. Without deadline.
    pub fn finish(mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
        self.stream(txn, key)?.save(txn, key)
    }
}
