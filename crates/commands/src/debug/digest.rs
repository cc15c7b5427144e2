//! DEBUG DIGEST and DIGEST-VALUE: a fingerprint of the data, equal to Redis's for equal data.
//!
//! Made of SHA-1: a value's is mixed from its parts, in order; the keys of a database are combined by exclusive or, so
//! that their order does not matter; databases are mixed in their order. A deadline counts by being there.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::list;
use haypile_resp::Reply;
use haypile_store::{Direction, Key, ScanPosition, Stop, Txn};
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::hash;
use haypile_types::key::{self, Entry, Type};
use haypile_types::score;
use haypile_types::set::Set;
use haypile_types::stream::{Stream, StreamId};
use haypile_types::string::{self, Content};
use haypile_types::zset::{self, Stretch, Zset};
use sha1::{Digest as _, Sha1};
use std::fmt::Write;
use std::ops::ControlFlow;

/// Keys in one step of the walk, and bytes in one step through a long value.
const STEP_KEYS: usize = 1000;
const STEP_BYTES: usize = 256 << 10;

/// Returns Redis's number of a type.
fn number_of(kind: Type) -> u32 {
    match kind {
        Type::String => 0,
        Type::List => 1,
        Type::Set => 2,
        Type::Zset => 3,
        Type::Hash => 4,
        Type::Stream => 6,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest([u8; 20]);

impl Digest {
    fn xor(&mut self, hash: [u8; 20]) {
        self.0.iter_mut().zip(hash).for_each(|(byte, other)| *byte ^= other);
    }

    /// Adds something whose order among others does not matter.
    fn add(&mut self, bytes: &[u8]) {
        self.xor(Sha1::digest(bytes).into());
    }

    /// Adds something whose hash is known, in order.
    fn mix_hash(&mut self, hash: [u8; 20]) {
        self.xor(hash);
        self.0 = Sha1::digest(self.0).into();
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.mix_hash(Sha1::digest(bytes).into());
    }

    fn mix_value(&mut self, txn: &mut Txn, key: &Key, entry: Entry) -> Result<()> {
        let header = entry.header;
        self.mix(&number_of(header.type_of()).to_be_bytes());
        match header.type_of() {
            Type::String => self.mix_hash(hash_of_string(txn, key, entry)?),
            Type::Hash => self.mix_hash_fields(txn, key, &entry)?,
            Type::List => list::visit_all(txn, key, entry, |element| {
                self.mix(element);
                ControlFlow::Continue(())
            })?,
            Type::Set => self.add_members(txn, key, entry)?,
            Type::Zset => self.mix_zset(txn, key, entry)?,
            Type::Stream => self.mix_stream(txn, key, &entry)?,
        }
        if header.deadline_ms.is_some() {
            self.add(b"!!expire!!");
        }
        Ok(())
    }

    /// Fields in any order, each with its value.
    fn mix_hash_fields(&mut self, txn: &mut Txn, key: &Key, entry: &Entry) -> Result<()> {
        if hash::len(txn, key, entry)? > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        hash::visit_stored(txn, key, entry, |field, stored| {
            let mut one = Digest::default();
            one.mix(field);
            one.mix(stored.value);
            if stored.deadline_ms.is_some() {
                one.add(b"!!hexpire!!");
            }
            self.add(&one.0);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Members in any order.
    fn add_members(&mut self, txn: &mut Txn, key: &Key, entry: Entry) -> Result<()> {
        let set = Set::of(key, entry)?;
        if set.count() > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        Ok(set.visit(txn, |member| {
            self.add(member);
            ControlFlow::Continue(())
        })?)
    }

    /// Members in any order, each with its score.
    fn mix_zset(&mut self, txn: &mut Txn, key: &Key, entry: Entry) -> Result<()> {
        let zset = Zset::of(key, entry)?;
        let count = zset.cardinality()?;
        if count > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let mut digits = Vec::new();
        zset.visit(txn, Stretch::whole(zset::Range::Index { from: 0, until: count }), |member, score| {
            digits.clear();
            score::write_digits(&mut digits, score);
            let mut one = Digest::default();
            one.mix(member);
            one.mix(&digits);
            self.add(&one.0);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Entries in order, each with its fields. Redis leaves groups out.
    fn mix_stream(&mut self, txn: &mut Txn, key: &Key, entry: &Entry) -> Result<()> {
        let stream = Stream::of(key, entry)?;
        if stream.len() > ROWS_INLINE_MAX as u64 {
            txn.long()?;
        }
        let all = StreamId::MIN..=StreamId::MAX;
        stream.visit(txn, all, Direction::Forward, ROWS_INLINE_MAX, |id, fields| {
            self.mix(format!("{}.{}", id.ms, id.seq).as_bytes());
            fields.for_each(|field| self.mix(field));
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn digits(self) -> String {
        self.0.iter().fold(String::with_capacity(40), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a String takes any text");
            text
        })
    }
}

fn hash_of_string(txn: &mut Txn, key: &Key, entry: Entry) -> Result<[u8; 20]> {
    let mut hash = Sha1::new();
    match string::content(txn, key, entry)? {
        Content::Shared(bytes) => hash.update(&*bytes),
        Content::Owned(bytes) => hash.update(&bytes),
        Content::Long(mut rest) => {
            let (mut piece, mut more) = (Vec::new(), true);
            while more {
                piece.clear();
                more = rest.next(STEP_BYTES, &mut piece).map_err(|why| Error::Stop(Stop::Failed(why)))?;
                hash.update(&piece);
            }
        }
    }
    Ok(hash.finalize().into())
}

/// The digest of all databases. Long unless there are few keys; it is of one state only if nobody writes meanwhile.
pub(crate) fn digest(txn: &mut Txn, _args: Args) -> Result<Reply> {
    let mut all = Digest::default();
    for database in 0..txn.databases() {
        if let Some(keys) = digest_of_database(txn, database)? {
            all.mix(&database.to_be_bytes());
            all.xor(keys.0);
        }
    }
    Ok(Reply::Status(all.digits()))
}

/// The digest of a database; `None` without keys.
fn digest_of_database(txn: &mut Txn, database: u32) -> Result<Option<Digest>> {
    let space = txn.space(database);
    let (mut all, mut next) = (None, Some(ScanPosition::START));
    while let Some(from) = next {
        let (keys, after) = txn.scan_keys(space, from, STEP_KEYS)?;
        for (name, row) in keys {
            let (key, entry) = (txn.key_in(database, &name), Entry::parse(row)?);
            if entry.header.is_expired(txn.now_ms()) {
                continue;
            }
            let mut one = Digest::default();
            one.mix(&name);
            one.mix_value(txn, &key, entry)?;
            all.get_or_insert_with(Digest::default).add(&one.0);
        }
        if after.is_some() {
            txn.long()?;
        }
        next = after;
    }
    Ok(all)
}

/// The digest of each key's value, without its name; zeros for a missing key.
pub(crate) fn digest_values(txn: &mut Txn, args: Args) -> Result<Reply> {
    let mut replies = Vec::new();
    for name in args.iter_from(2) {
        let key = txn.key(name);
        let mut digest = Digest::default();
        if let Some(entry) = key::peek(txn, &key)? {
            digest.mix_value(txn, &key, entry)?;
        }
        replies.push(Reply::Status(digest.digits()));
    }
    Ok(Reply::Array(replies))
}
