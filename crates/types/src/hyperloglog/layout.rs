//! The bytes of a HyperLogLog as Redis lays them out: a header, then the registers, dense or sparse. Owns the parts
//! that both forms share: the header with its cached count, the register that an element belongs to, and setting one
//! wherever it lies.
//!
//! ```text
//! "HYLL" | encoding: u8, 0 dense, 1 sparse | 3 bytes, zero | cached count: u64 LE, highest bit: outdated | registers
//! ```
//!
//! Works on bytes only, from any source: a client may SET any. `dense` and `sparse` are the registers, `estimate` the
//! count.

use super::{dense, sparse};
use std::borrow::Cow;

/// Registers of a HyperLogLog. The lowest `REGISTER_BITS` of an element's hash are the number of its register.
pub const REGISTERS: usize = 1 << REGISTER_BITS;
const REGISTER_BITS: u32 = 14;

/// Bits of the hash that a register's value is made of.
pub const VALUE_BITS: u32 = 64 - REGISTER_BITS;

/// The largest value of a register: all bits of the hash beside its number are zero.
pub const VALUE_MAX: u8 = VALUE_BITS as u8 + 1;

/// Bytes before the registers.
pub const HEADER_BYTES: usize = 16;

/// The byte of the header whose highest bit says that the cached count is outdated.
pub const CACHE_FLAG_AT: usize = 15;
const CACHE_OUTDATED: u8 = 0x80;

const MAGIC: &[u8; 4] = b"HYLL";

/// How the registers lie. DO NOT CHANGE THESE NUMBERS: they are Redis's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Dense = 0,
    Sparse = 1,
}

/// The error for registers that do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// Returns the encoding in the header; `None` if these bytes are no HyperLogLog.
pub fn encoding(bytes: &[u8]) -> Option<Encoding> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    match bytes[MAGIC.len()] {
        0 => (bytes.len() == dense::DENSE_BYTES).then_some(Encoding::Dense),
        1 => Some(Encoding::Sparse),
        _ => None,
    }
}

/// Returns the header of a HyperLogLog whose cached count is 0.
fn header(encoding: Encoding) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()] = encoding as u8;
    header
}

/// Returns a HyperLogLog without elements: sparse, with a cached count that is right.
pub fn empty() -> Vec<u8> {
    let mut bytes = header(Encoding::Sparse).to_vec();
    sparse::put_zeros(&mut bytes, REGISTERS);
    bytes
}

/// Returns the cached count, unless it is outdated.
pub fn cached_count(bytes: &[u8]) -> Option<u64> {
    let count: [u8; 8] = bytes[HEADER_BYTES - 8..HEADER_BYTES].try_into().expect("eight bytes");
    (bytes[CACHE_FLAG_AT] & CACHE_OUTDATED == 0).then_some(u64::from_le_bytes(count))
}

/// Returns the flag's byte for a register that has changed.
pub fn outdated(flag: u8) -> u8 {
    flag | CACHE_OUTDATED
}

/// Returns the register that an element belongs to, and the value that it asks for: the place of the first set bit of
/// its hash above the register's number, counted from 1.
#[inline]
pub fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur64a(element);
    let value = hash >> REGISTER_BITS | 1 << VALUE_BITS;
    (hash as usize % REGISTERS, value.trailing_zeros() as u8 + 1)
}

/// Hashes bytes, in little-endian order, by MurmurHash64A (Appleby, 2008) with the seed that Redis gives it.
#[inline]
fn murmur64a(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(M);
        hash = (hash ^ (mixed ^ mixed >> R).wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u64::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ hash >> R).wrapping_mul(M);
    hash ^ hash >> R
}

/// Raises a register to `value` unless it is as high already, and says whether it did. A sparse HyperLogLog becomes
/// dense where it would be longer than `sparse_bytes_max`, or the value is too large for it. The cached count stays.
pub fn raise(
    bytes: &mut Cow<'_, [u8]>,
    encoding: &mut Encoding,
    register: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    match encoding {
        Encoding::Dense => {
            if dense::get(registers(bytes), register) >= value {
                return Ok(false);
            }
            dense::set(&mut bytes.to_mut()[HEADER_BYTES..], register, value);
            Ok(true)
        }
        Encoding::Sparse => {
            let place = sparse::find(registers(bytes), register)?;
            if place.value() >= value {
                return Ok(false);
            }
            raise_at(bytes, encoding, &place, register, value, sparse_bytes_max)?;
            Ok(true)
        }
    }
}

/// Raises a register of a sparse HyperLogLog that was found at `place` and is lower.
pub fn raise_at(
    bytes: &mut Cow<'_, [u8]>,
    encoding: &mut Encoding,
    place: &sparse::Place,
    register: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<(), Corrupt> {
    match sparse::raised(bytes, place, register, value, sparse_bytes_max) {
        Some(change) => change.apply_to(bytes.to_mut()),
        None => {
            let mut dense = dense_of(bytes)?;
            dense::set(&mut dense[HEADER_BYTES..], register, value);
            (*bytes, *encoding) = (Cow::Owned(dense), Encoding::Dense);
        }
    }
    Ok(())
}

/// Returns the registers, behind the header.
pub fn registers(bytes: &[u8]) -> &[u8] {
    &bytes[HEADER_BYTES..]
}

/// Returns a sparse HyperLogLog as a dense one, the cached count included.
pub fn dense_of(bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let mut values = [0; REGISTERS];
    sparse::merge(registers(bytes), &mut values)?;
    let mut dense = Vec::with_capacity(dense::DENSE_BYTES);
    dense.extend_from_slice(&bytes[..HEADER_BYTES]);
    dense[MAGIC.len()] = Encoding::Dense as u8;
    dense.resize(dense::DENSE_BYTES, 0);
    dense::pack(&values, &mut dense[HEADER_BYTES..]);
    Ok(dense)
}

/// Makes each of `values` at least the value of the HyperLogLog's register.
pub fn merge(bytes: &[u8], encoding: Encoding, values: &mut [u8; REGISTERS]) -> Result<(), Corrupt> {
    match encoding {
        Encoding::Dense => {
            dense::merge(registers(bytes), values);
            Ok(())
        }
        Encoding::Sparse => sparse::merge(registers(bytes), values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_belong_to_the_registers_of_redis() {
        // PFADD of each element to a new key, and where PFDEBUG GETREG shows its value in redis-server 7.0.
        let known: &[(&[u8], usize, u8)] = &[
            (b"", 5938, 2),
            (b"a", 12711, 2),
            (b"b", 15780, 1),
            (b"foo", 7348, 5),
            (b"12345678", 10579, 3),
            (b"123456789", 9293, 2),
            (b"hello world, hello", 6368, 1),
            (b"\xff\xfe\xfd\xfc\xfb", 15791, 2),
        ];
        for (element, register, value) in known {
            assert_eq!(register_of(element), (*register, *value), "{}", element.escape_ascii());
        }
    }
}
