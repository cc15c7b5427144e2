//! HyperLogLogs: strings that count different elements in 12 KB at most, with a standard error of 0.81 %. The bytes are
//! those of Redis, so that GET and SET carry one from or to any server. Owns the operations on keys; `layout` owns the
//! bytes, with `dense`, `sparse` and `estimate`.
//!
//! An operation that changes nothing writes nothing. A changed register is a patch of a byte or two in a dense
//! HyperLogLog, and a splice of a few in a sparse one. Format: docs/format/hyperloglog.md.

pub mod layout;

mod dense;
mod estimate;
mod skip;
mod sparse;

pub mod selftest;
pub mod testing;

use crate::EncodingLimit;
use crate::key::{self, Entry, Header, PATCH_FROM_BYTES};
use crate::string::{self, Content};
use crate::{Error, Result};
use haypile_store::{Key, Txn, Value};
use layout::{CACHE_FLAG_AT, Corrupt, Encoding, HEADER_BYTES, REGISTERS};
use smallvec::SmallVec;
use std::borrow::Cow;

/// The longest HyperLogLog that parses: every register has a run of two bytes.
const BYTES_MAX: u64 = (HEADER_BYTES + 2 * REGISTERS) as u64;

/// More HyperLogLogs are merged on the I/O pool: each takes some microseconds.
const MERGED_AT_ONCE: usize = 32;

impl From<Corrupt> for Error {
    fn from(_: Corrupt) -> Error {
        Error::CorruptHyperLogLog
    }
}

/// The HyperLogLog of a key.
struct HyperLogLog {
    header: Header,
    bytes: Value,
    encoding: Encoding,
}

impl HyperLogLog {
    fn of(txn: &mut Txn<'_>, key: &Key<'_>, entry: Entry) -> Result<HyperLogLog> {
        let header = entry.header;
        string::check_type(&entry)?;
        let length = string::length_of(key, &entry)?;
        let bytes = match string::content(txn, key, entry)? {
            Content::Shared(bytes) => bytes,
            Content::Owned(bytes) => Value::from(bytes),
            Content::Long(_) => return Err(Error::NotHyperLogLog),
        };
        let encoding = layout::encoding(&bytes).ok_or(Error::NotHyperLogLog)?;
        if length > BYTES_MAX { Err(Error::CorruptHyperLogLog) } else { Ok(HyperLogLog { header, bytes, encoding }) }
    }

    fn registers(&self) -> &[u8] {
        layout::registers(&self.bytes)
    }

    /// Tells whether a small change of the string changes a part of its row.
    fn is_spliced(&self) -> bool {
        self.header.object.is_none() && self.bytes.len() >= PATCH_FROM_BYTES
    }

    /// Makes the key, which has not changed since, hold these bytes, and logs the difference. The key is written even
    /// if there is none.
    fn replace(self, txn: &mut Txn<'_>, key: &Key<'_>, after: &[u8]) -> Result<()> {
        let HyperLogLog { header, bytes, .. } = self;
        if header.object.is_some() || after.len() > string::INLINE_BYTES_MAX {
            return string::put(txn, key, Some(&header), after, header.deadline_ms);
        }
        let same = common_prefix(&bytes, after);
        let tail = common_suffix(&bytes[same..], &after[same..]);
        let (part, removed) = (&after[same..after.len() - tail], bytes.len() - tail - same);
        if bytes.len() < PATCH_FROM_BYTES || part.len() > after.len() / 2 {
            return key::write(txn, key, Some(&header), &header, &[after]);
        }
        key::splice_read(txn, key, &header, bytes, same, removed, part)
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const PIECE: usize = 64;
    let pieces = a.chunks_exact(PIECE).zip(b.chunks_exact(PIECE));
    let same = pieces.take_while(|(a, b)| a == b).count() * PIECE;
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    const PIECE: usize = 64;
    let pieces = a.rchunks_exact(PIECE).zip(b.rchunks_exact(PIECE));
    let same = pieces.take_while(|(a, b)| a == b).count() * PIECE;
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    same + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

fn sparse_bytes_max(txn: &Txn<'_>) -> usize {
    usize::try_from(EncodingLimit::HllSparseBytes.of(txn)).unwrap_or(0)
}

/// Adds elements; returns whether the key is new or a register has changed: the count may be another one then.
pub fn add<'e>(txn: &mut Txn<'_>, key: &Key<'_>, elements: impl Iterator<Item = &'e [u8]>) -> Result<bool> {
    let limit = sparse_bytes_max(txn);
    let Some(entry) = key::lookup_write(txn, key)? else {
        let mut bytes = Cow::Owned(layout::empty());
        raise_all(&mut bytes, Encoding::Sparse, elements, limit)?;
        set_outdated(bytes.to_mut());
        string::put(txn, key, None, &bytes, None)?;
        return Ok(true);
    };
    let hll = HyperLogLog::of(txn, key, entry)?;
    if hll.encoding == Encoding::Dense {
        let asked = elements.map(layout::register_of);
        let is_new = |(register, value): &(usize, u8)| dense::get(hll.registers(), *register) < *value;
        let raised: SmallVec<[(usize, u8); 4]> = asked.filter(is_new).collect();
        // Mostly one register is raised, or none: no reason to copy all registers.
        if let [] | [_] = raised[..] {
            return raised.first().map_or(Ok(false), |one| raise_one(txn, key, hll, *one).map(|()| true));
        }
        let mut bytes = hll.bytes.to_vec();
        for (register, value) in raised {
            let registers = &mut bytes[HEADER_BYTES..];
            if dense::get(registers, register) < value {
                dense::set(registers, register, value);
            }
        }
        set_outdated(&mut bytes);
        hll.replace(txn, key, &bytes)?;
        return Ok(true);
    }
    // The first element that changes something is mostly the only one.
    let mut elements = elements;
    let raising = elements.find_map(|element| {
        let (register, value) = layout::register_of(element);
        match sparse::find(hll.registers(), register) {
            Ok(place) if place.value() >= value => None,
            found => Some(found.map(|place| (place, register, value))),
        }
    });
    let Some(raising) = raising else { return Ok(false) };
    let (place, register, value) = raising?;
    let mut elements = elements.peekable();
    if elements.peek().is_none()
        && hll.is_spliced()
        && let Some(change) = sparse::raised(&hll.bytes, &place, register, value, limit)
        && change.len_after(hll.bytes.len()) <= string::INLINE_BYTES_MAX
    {
        let HyperLogLog { header, bytes, .. } = hll;
        let (flag, len_after) = (bytes[CACHE_FLAG_AT], change.len_after(bytes.len()));
        key::splice_read(txn, key, &header, bytes, change.at, change.removed, &change.bytes)?;
        set_outdated_in_row(txn, key, &header, flag, len_after)?;
        return Ok(true);
    }
    let mut bytes = Cow::Owned(hll.bytes.to_vec());
    let mut encoding = hll.encoding;
    layout::raise_at(&mut bytes, &mut encoding, &place, register, value, limit)?;
    raise_all(&mut bytes, encoding, elements, limit)?;
    set_outdated(bytes.to_mut());
    hll.replace(txn, key, &bytes)?;
    Ok(true)
}

fn raise_all<'e>(
    bytes: &mut Cow<'_, [u8]>,
    mut encoding: Encoding,
    elements: impl Iterator<Item = &'e [u8]>,
    sparse_bytes_max: usize,
) -> Result<bool> {
    let mut changed = false;
    for element in elements {
        let (register, value) = layout::register_of(element);
        changed |= layout::raise(bytes, &mut encoding, register, value, sparse_bytes_max)?;
    }
    Ok(changed)
}

/// Raises one register of a dense HyperLogLog that lies in its row.
fn raise_one(txn: &mut Txn<'_>, key: &Key<'_>, hll: HyperLogLog, (register, value): (usize, u8)) -> Result<()> {
    let (at, changed, len) = dense::changed(hll.registers(), register, value);
    let HyperLogLog { header, bytes, .. } = hll;
    let (flag, len_after) = (bytes[CACHE_FLAG_AT], bytes.len());
    key::patch_read(txn, key, &header, bytes, HEADER_BYTES + at, &changed[..len], len_after)?;
    set_outdated_in_row(txn, key, &header, flag, len_after)
}

/// Sets the flag of a HyperLogLog that lies in its row, where it is not set yet.
fn set_outdated_in_row(txn: &mut Txn<'_>, key: &Key<'_>, header: &Header, flag: u8, len_after: usize) -> Result<()> {
    let outdated = layout::outdated(flag);
    if outdated == flag { Ok(()) } else { key::patch(txn, key, header, CACHE_FLAG_AT, &[outdated], len_after) }
}

fn set_outdated(bytes: &mut [u8]) {
    bytes[CACHE_FLAG_AT] = layout::outdated(bytes[CACHE_FLAG_AT]);
}

/// Returns the count of a key, `None` if it is absent. A count that is computed is kept in memory for the next reader,
/// as long as the key is what it is: the value stays as it was, because a read makes no record.
pub fn count(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<u64>> {
    let Some((entry, version)) = key::lookup_version(txn, key)? else { return Ok(None) };
    let hll = HyperLogLog::of(txn, key, entry)?;
    if let Some(count) = layout::cached_count(&hll.bytes) {
        return Ok(Some(count));
    }
    // A version is one of the meta row, and says nothing of an object's rows.
    let version = version.filter(|_| hll.header.object.is_none());
    if let Some(count) = version.and_then(|version| txn.derived(key, version)) {
        return Ok(Some(count));
    }
    let registers = match hll.encoding {
        Encoding::Dense => dense::histogram(hll.registers()),
        Encoding::Sparse => sparse::histogram(hll.registers())?,
    };
    let count = estimate::count(&registers);
    if let Some(version) = version {
        txn.keep_derived(key, version, count);
    }
    Ok(Some(count))
}

/// The registers of several keys, each as high as the highest of them.
struct Union {
    values: Box<[u8; REGISTERS]>,
    /// Whether one of the HyperLogLogs is dense.
    has_dense: bool,
}

fn union<'k>(txn: &mut Txn<'_>, keys: impl Iterator<Item = Key<'k>>) -> Result<Union> {
    let mut union = Union { values: Box::new([0; REGISTERS]), has_dense: false };
    for (number, key) in keys.enumerate() {
        if number == MERGED_AT_ONCE {
            txn.long()?;
        }
        let Some(entry) = key::lookup(txn, &key)? else { continue };
        let hll = HyperLogLog::of(txn, &key, entry)?;
        union.has_dense |= hll.encoding == Encoding::Dense;
        layout::merge(&hll.bytes, hll.encoding, &mut union.values)?;
    }
    Ok(union)
}

/// Returns how many different elements several keys have seen together.
pub fn count_union<'k>(txn: &mut Txn<'_>, keys: impl Iterator<Item = Key<'k>>) -> Result<u64> {
    let mut counts = [0; 64];
    for value in union(txn, keys)?.values.iter() {
        counts[usize::from(*value)] += 1;
    }
    Ok(estimate::count(&counts))
}

/// Makes a key the union of several, itself one of them. Its deadline stays.
pub fn merge<'k>(txn: &mut Txn<'_>, target: &Key<'_>, keys: impl Iterator<Item = Key<'k>>) -> Result<()> {
    let Union { values, has_dense } = union(txn, keys)?;
    let limit = sparse_bytes_max(txn);
    let hll = match key::lookup_write(txn, target)? {
        Some(entry) => Some(HyperLogLog::of(txn, target, entry)?),
        None => None,
    };
    let mut bytes = match &hll {
        Some(hll) if has_dense && hll.encoding == Encoding::Dense => hll.bytes.to_vec(),
        Some(hll) if !has_dense => hll.bytes.to_vec(),
        Some(hll) => layout::dense_of(&hll.bytes)?,
        None if has_dense => layout::dense_of(&layout::empty())?,
        None => layout::empty(),
    };
    if has_dense {
        dense::pack(&values, &mut bytes[HEADER_BYTES..]);
    } else {
        // Registers are raised in order, as in Redis: the runs are the same, and so is the moment when it becomes
        // dense.
        let (mut raised, mut encoding) = (Cow::Owned(bytes), Encoding::Sparse);
        for (register, value) in values.iter().enumerate().filter(|(_, value)| **value > 0) {
            layout::raise(&mut raised, &mut encoding, register, *value, limit)?;
        }
        bytes = raised.into_owned();
    }
    set_outdated(&mut bytes);
    match hll {
        Some(hll) => hll.replace(txn, target, &bytes),
        None => string::put(txn, target, None, &bytes, None),
    }
}

/// The HyperLogLog of a key for PFDEBUG, which does not count as a reader.
pub struct Inspected(HyperLogLog);

pub fn inspect(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<Inspected>> {
    match key::lookup_write(txn, key)? {
        Some(entry) => HyperLogLog::of(txn, key, entry).map(|hll| Some(Inspected(hll))),
        None => Ok(None),
    }
}

impl Inspected {
    pub fn is_sparse(&self) -> bool {
        self.0.encoding == Encoding::Sparse
    }

    /// Returns the runs of a sparse HyperLogLog, in words.
    pub fn decoded(&self) -> Option<String> {
        self.is_sparse().then(|| sparse::decoded(self.0.registers()))
    }

    pub fn values(&self) -> Result<Box<[u8; REGISTERS]>> {
        let mut values = Box::new([0; REGISTERS]);
        layout::merge(&self.0.bytes, self.0.encoding, &mut values)?;
        Ok(values)
    }

    /// Makes the HyperLogLog dense, and says whether it was not.
    pub fn make_dense(self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<bool> {
        if !self.is_sparse() {
            return Ok(false);
        }
        let dense = layout::dense_of(&self.0.bytes)?;
        self.0.replace(txn, key, &dense)?;
        Ok(true)
    }
}
