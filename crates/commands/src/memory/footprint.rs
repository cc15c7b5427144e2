//! The bytes that collections would take in Redis's memory: those of the listpacks and tables that Redis would make of
//! them.
//!
//! Of a table only some elements are looked at, as many as SAMPLES says, and stand for all.

use crate::error::Result;
use crate::list::visit_all;
use crate::memory::sizes::{DICT_ENTRY_BYTES, allocated, extrapolated, listpack_bytes, rdb_bytes, sds_bytes};
use crate::stream::footprint;
use haypile_resp::number;
use haypile_store::{Direction, Key, Txn};
use haypile_types::EncodingLimit;
use haypile_types::element::ROWS_INLINE_MAX;
use haypile_types::key::{Entry, Type};
use haypile_types::list::List;
use haypile_types::set::Set;
use haypile_types::value::encoding::{SET_INTSET, SET_LISTPACK};
use haypile_types::zset::{Range, Stretch, Zset};
use haypile_types::{hash, listpack, value};
use std::ops::ControlFlow;

/// A listpack's length, count and end.
const LISTPACK_BYTES: u64 = 7;

/// The bytes of Redis's hash table without its buckets, and of a bucket.
const DICT_BYTES: u64 = 56;
const DICT_BUCKET_BYTES: u64 = 8;

/// Buckets of the smallest table.
const DICT_BUCKETS_MIN: u64 = 4;

/// A table of so many entries, without what these point to.
pub(crate) fn dict_bytes(count: u64) -> u64 {
    let buckets = count.next_power_of_two().max(DICT_BUCKETS_MIN);
    DICT_BYTES + buckets * DICT_BUCKET_BYTES + count * DICT_ENTRY_BYTES
}

pub(crate) fn of_hash(txn: &mut Txn, key: &Key, entry: &Entry, samples: u64) -> Result<u64> {
    let is_table = value::encoding_name(entry)? == Some("hashtable");
    let count = hash::len(txn, key, entry)?;
    let samples = if is_table { samples } else { count };
    if samples.min(count) > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let (mut seen, mut bytes) = (0, 0);
    hash::visit(txn, key, entry, |field, value| {
        bytes += match is_table {
            true => sds_bytes(field.len() as u64, true) + sds_bytes(value.len() as u64, true),
            false => listpack_bytes(field) + listpack_bytes(value),
        };
        seen += 1;
        if seen < samples { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(match is_table {
        true => dict_bytes(count) + extrapolated(bytes, seen, count),
        false => allocated(LISTPACK_BYTES + bytes),
    })
}

/// Redis's structures for a quicklist, and for each of its nodes, whose elements are a listpack.
const QUICKLIST_BYTES: u64 = 40;
const NODE_BYTES: u64 = 32;

/// The bytes of a quicklist. Some nodes are looked at, as if they were filled up to the limit, and stand for all.
pub(crate) fn of_list(txn: &mut Txn, key: &Key, entry: Entry, samples: u64) -> Result<u64> {
    let (mut list, limit) = (List::of(key, entry)?, EncodingLimit::ListSize.of(txn));
    // Of the node that is being filled, and of those that were.
    let (mut node_bytes, mut node_entries) = (listpack::EMPTY_BYTES, 0);
    let (mut bytes, mut entries, mut nodes) = (0, 0, 0);
    if samples > ROWS_INLINE_MAX as u64 && list.len() > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    list.visit(txn, 0..list.len(), Direction::Forward, |element| {
        let more = listpack::entry_bytes(element);
        if node_entries > 0 && listpack::exceeds(limit, node_bytes + more, node_entries + 1) {
            bytes += NODE_BYTES + allocated(node_bytes as u64);
            entries += node_entries;
            nodes += 1;
            (node_bytes, node_entries) = (listpack::EMPTY_BYTES, 0);
            if nodes == samples {
                return ControlFlow::Break(());
            }
        }
        node_bytes += more;
        node_entries += 1;
        ControlFlow::Continue(())
    })?;
    if list.is_listpack() {
        return Ok(allocated(node_bytes as u64));
    }
    if node_entries > 0 {
        bytes += NODE_BYTES + allocated(node_bytes as u64);
        entries += node_entries;
    }
    Ok(QUICKLIST_BYTES + extrapolated(bytes, entries, list.len()))
}

/// The bytes of an intset besides its integers.
const INTSET_BYTES: u64 = 8;

/// Each integer of an intset is as wide as the widest has to be.
fn intset_width(member: &[u8]) -> u64 {
    match number::parse_i64(member) {
        Some(value) if i16::try_from(value).is_ok() => 2,
        Some(value) if i32::try_from(value).is_ok() => 4,
        _ => 8,
    }
}

pub(crate) fn of_set(txn: &mut Txn, key: &Key, entry: Entry, samples: u64) -> Result<u64> {
    let set = Set::of(key, entry)?;
    let is_table = !matches!(set.encoding, SET_INTSET | SET_LISTPACK);
    let samples = if is_table { samples } else { set.count() };
    if samples.min(set.count()) > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let (mut seen, mut strings, mut packed, mut width) = (0, 0, 0, 2);
    set.visit(txn, |member| {
        strings += sds_bytes(member.len() as u64, false);
        packed += listpack_bytes(member);
        width = width.max(intset_width(member));
        seen += 1;
        if seen < samples { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(match set.encoding {
        SET_INTSET => allocated(INTSET_BYTES + width * set.count()),
        SET_LISTPACK => allocated(LISTPACK_BYTES + packed),
        _ => dict_bytes(set.count()) + extrapolated(strings, seen, set.count()),
    })
}

/// Bytes of a collection in an RDB file that is not compressed.
pub(crate) fn serialized(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<u64> {
    match entry.header.type_of() {
        Type::Hash => serialized_hash(txn, key, entry),
        Type::List => serialized_list(txn, key, entry),
        Type::Set => serialized_set(txn, key, entry.clone()),
        Type::Zset => serialized_zset(txn, key, entry),
        Type::Stream => footprint::serialized(txn, key, entry),
        Type::String => unreachable!("no collection"),
    }
}

fn serialized_hash(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<u64> {
    let is_table = value::encoding_name(entry)? == Some("hashtable");
    if hash::len(txn, key, entry)? > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let mut bytes = if is_table { 1 } else { LISTPACK_BYTES };
    hash::visit(txn, key, entry, |field, value| {
        bytes += match is_table {
            true => rdb_bytes(field.len() as u64) + rdb_bytes(value.len() as u64),
            false => listpack_bytes(field) + listpack_bytes(value),
        };
        ControlFlow::Continue(())
    })?;
    Ok(if is_table { bytes } else { rdb_bytes(bytes) })
}

/// Returns the bytes of a list serialized as one listpack: the nodes of a quicklist are a few bytes more.
fn serialized_list(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<u64> {
    let mut bytes = LISTPACK_BYTES;
    visit_all(txn, key, entry.clone(), |element| {
        bytes += listpack_bytes(element);
        ControlFlow::Continue(())
    })?;
    Ok(rdb_bytes(bytes))
}

fn serialized_set(txn: &mut Txn, key: &Key, entry: Entry) -> Result<u64> {
    let set = Set::of(key, entry)?;
    if set.count() > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let (mut strings, mut packed, mut width) = (1, LISTPACK_BYTES, 2);
    set.visit(txn, |member| {
        strings += rdb_bytes(member.len() as u64);
        packed += listpack_bytes(member);
        width = width.max(intset_width(member));
        ControlFlow::Continue(())
    })?;
    Ok(match set.encoding {
        SET_INTSET => rdb_bytes(INTSET_BYTES + width * set.count()),
        SET_LISTPACK => rdb_bytes(packed),
        _ => strings,
    })
}

/// A skip list without its elements: its ends and its head, which has all levels.
const SKIPLIST_BYTES: u64 = 16 + 32 + 640;

/// A node of a skip list besides its member: most have one level.
const SKIPLIST_NODE_BYTES: u64 = 48;

/// A score as a listpack holds it.
fn listpack_score_bytes(score: f64) -> u64 {
    let mut text = Vec::new();
    haypile_resp::number::write_double(&mut text, score);
    listpack_bytes(&text)
}

pub(crate) fn of_zset(txn: &mut Txn, key: &Key, entry: Entry, samples: u64) -> Result<u64> {
    let zset = Zset::of(key, entry)?;
    let (is_listpack, count) = (zset.is_listpack()?, zset.cardinality()?);
    let samples = if is_listpack { count } else { samples.min(count) };
    if samples > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let (mut seen, mut bytes) = (0, 0);
    zset.visit(txn, Stretch::whole(Range::Index { from: 0, until: samples }), |member, score| {
        bytes += match is_listpack {
            true => listpack_bytes(member) + listpack_score_bytes(score),
            false => sds_bytes(member.len() as u64, true) + SKIPLIST_NODE_BYTES,
        };
        seen += 1;
        ControlFlow::Continue(())
    })?;
    Ok(match is_listpack {
        true => allocated(LISTPACK_BYTES + bytes),
        false => SKIPLIST_BYTES + dict_bytes(count) + extrapolated(bytes, seen, count),
    })
}

fn serialized_zset(txn: &mut Txn, key: &Key, entry: &Entry) -> Result<u64> {
    let zset = Zset::of(key, entry.clone())?;
    let (is_listpack, count) = (zset.is_listpack()?, zset.cardinality()?);
    if count > ROWS_INLINE_MAX as u64 {
        txn.long()?;
    }
    let mut bytes = if is_listpack { LISTPACK_BYTES } else { rdb_bytes(count) - count };
    zset.visit(txn, Stretch::whole(Range::Index { from: 0, until: count }), |member, score| {
        bytes += match is_listpack {
            true => listpack_bytes(member) + listpack_score_bytes(score),
            false => rdb_bytes(member.len() as u64) + 8,
        };
        ControlFlow::Continue(())
    })?;
    Ok(if is_listpack { rdb_bytes(bytes) } else { bytes })
}
