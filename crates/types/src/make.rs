//! Values that are made as a whole, of elements that come one after the other, for RESTORE and imports. The key gets
//! the value when it is complete. Whatever its size, making it takes bounded memory: the rows of an object that nothing
//! names yet are written ahead.

use crate::chunks::Chunked;
use crate::key::{self, Type};
use crate::set::encoding::Limits;
use crate::set::store;
use crate::{Result, element, hash, list, stream, string, zset};
use haypile_store::{Key, Txn};

/// A value in the making.
pub enum Maker {
    String(Text),
    List(list::Maker),
    Set(store::Making),
    Zset(zset::Maker),
    Hash(hash::Maker),
    Stream(Box<stream::Maker>),
}

/// A string in the making.
pub enum Text {
    Inline(Vec<u8>),
    Chunked(Chunked),
}

impl Maker {
    pub fn new(kind: Type) -> Maker {
        match kind {
            Type::String => Maker::String(Text::Inline(Vec::new())),
            Type::List => Maker::List(list::Maker::new()),
            Type::Set => Maker::Set(store::Making::new()),
            Type::Zset => Maker::Zset(zset::Maker::new()),
            Type::Hash => Maker::Hash(hash::Maker::new()),
            Type::Stream => Maker::Stream(Box::default()),
        }
    }

    /// Adds bytes to a string, an element to a list or a set; returns whether it was new, which only an element of a
    /// set may not be.
    pub fn add(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, bytes: &[u8]) -> Result<bool> {
        match self {
            Maker::String(text) => text.add(txn, key, bytes).map(|()| true),
            Maker::List(maker) => maker.add(txn, key, bytes).map(|()| true),
            Maker::Set(making) => {
                let hash = element::hash(txn, bytes);
                if making.contains(txn, hash, bytes)? {
                    return Ok(false);
                }
                making.add(txn, key, hash, bytes).map(|()| true)
            }
            Maker::Zset(_) | Maker::Hash(_) | Maker::Stream(_) => {
                unreachable!("its elements have something beside them")
            }
        }
    }

    /// Adds a member to a sorted set; returns whether it was new.
    pub fn add_scored(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, member: &[u8], score: f64) -> Result<bool> {
        let Maker::Zset(maker) = self else { unreachable!("only sorted sets have scores") };
        if maker.contains(txn, member)? {
            return Ok(false);
        }
        maker.add(txn, key, member, score).map(|()| true)
    }

    /// Adds a field to a hash, with a deadline that has not passed if it has one; returns whether it was new.
    pub fn add_field(
        &mut self,
        txn: &mut Txn<'_>,
        key: &Key<'_>,
        field: &[u8],
        value: &[u8],
        deadline_ms: Option<u64>,
    ) -> Result<bool> {
        let Maker::Hash(maker) = self else { unreachable!("only hashes have fields") };
        maker.add(txn, key, field, value, deadline_ms)
    }

    /// Gives the value to a key that is absent, with a deadline that has not passed if it shall have one. A collection
    /// without elements is none: the key stays absent.
    pub fn finish(self, txn: &mut Txn<'_>, key: &Key<'_>, deadline_ms: Option<u64>) -> Result<()> {
        match self {
            Maker::String(Text::Inline(bytes)) => return string::put(txn, key, None, &bytes, deadline_ms),
            Maker::String(Text::Chunked(chunked)) => {
                return key::write(txn, key, None, &chunked.header(deadline_ms), &[&chunked.payload()]);
            }
            Maker::List(maker) => maker.finish(txn, key, None)?,
            Maker::Set(making) if making.tally.count == 0 => {}
            Maker::Set(making) => {
                let encoding = Limits::of(txn).whole(making.tally);
                making.finish(txn, key, None, None, encoding)?;
            }
            Maker::Zset(maker) => maker.finish(txn, key, None)?,
            Maker::Hash(maker) => maker.finish(txn, key)?,
            Maker::Stream(maker) => maker.finish(txn, key)?,
        }
        match deadline_ms {
            Some(_) => match key::peek(txn, key)? {
                Some(entry) => key::set_deadline(txn, key, &entry, deadline_ms),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}

impl Text {
    fn add(&mut self, txn: &mut Txn<'_>, key: &Key<'_>, bytes: &[u8]) -> Result<()> {
        if let Text::Inline(inline) = self {
            if inline.len() + bytes.len() <= string::INLINE_BYTES_MAX {
                inline.extend_from_slice(bytes);
                return Ok(());
            }
            let inline = std::mem::take(inline);
            let mut chunked = Chunked::new(txn, key)?;
            chunked.write(txn, 0, &inline)?;
            *self = Text::Chunked(chunked);
        }
        let Text::Chunked(chunked) = self else { unreachable!("it is not inline") };
        chunked.write(txn, chunked.length, bytes)
    }
}
