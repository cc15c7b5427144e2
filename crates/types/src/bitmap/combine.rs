//! BITOP: a string made of the bits of others, chunk by chunk. The chunks of the result belong to a new object, so that
//! they are written ahead; those that are all zeros are left out.

use super::{Bitmap, Held};
use crate::chunks::{CHUNK_BYTES, Chunked, Long};
use crate::key;
use crate::string::{self, INLINE_BYTES_MAX, LONG_FROM_BYTES};
use crate::{Result, chunks};
use haypile_store::{Key, Txn, Value};

/// How bits are combined; NOT has one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// The bits of the first operand that no other has.
    Diff,
    /// The bits that others have, and the first operand has not.
    Diff1,
    /// The bits of the first operand that one of the others has.
    AndOr,
    /// The bits that exactly one operand has.
    One,
}

impl Operation {
    /// Whether the first operand is combined with what the others make together.
    fn takes_first_last(self) -> bool {
        matches!(self, Operation::Diff1 | Operation::AndOr)
    }
}

/// Stores the combined string under a key, in place of any value there, and returns its length, that of the longest
/// operand. The key stays as it is if all operands are empty. Absent and shorter operands count as zeros.
pub fn store(txn: &mut Txn<'_>, operation: Operation, key: &Key<'_>, operands: Vec<Option<Bitmap>>) -> Result<u64> {
    let lengths = || operands.iter().flatten().map(|operand| operand.length);
    let (length, all) = (lengths().max().unwrap_or(0), lengths().sum::<u64>());
    if length == 0 {
        return Ok(0);
    }
    let is_long = all + length > LONG_FROM_BYTES;
    if is_long {
        txn.long()?;
    }
    let before = key::lookup_overwrite(txn, key)?;
    let mut operands = operands;
    if operation.takes_first_last() {
        operands.rotate_left(1);
    }
    let mut operands =
        operands.into_iter().map(|operand| Operand::new(txn, operand, is_long)).collect::<Result<Vec<_>>>()?;
    let mut piece = Vec::with_capacity(length.min(CHUNK_BYTES as u64) as usize);
    if length <= INLINE_BYTES_MAX as u64 {
        combine(txn, operation, &mut operands, 0, length as usize, &mut piece)?;
        string::put(txn, key, before.as_ref(), &piece, None)?;
        return Ok(length);
    }
    let mut result = Chunked::new(txn, key)?;
    for number in 0..length.div_ceil(CHUNK_BYTES as u64) {
        let start = number * CHUNK_BYTES as u64;
        combine(txn, operation, &mut operands, number, (length - start).min(CHUNK_BYTES as u64) as usize, &mut piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            result.write(txn, start, &piece)?;
        }
    }
    result.length = length;
    key::write(txn, key, before.as_ref(), &result.header(None), &[&result.payload()])?;
    Ok(length)
}

/// Writes chunk `number` of the result, `len` bytes, into `piece`.
fn combine(
    txn: &mut Txn<'_>,
    operation: Operation,
    operands: &mut [Operand],
    number: u64,
    len: usize,
    piece: &mut Vec<u8>,
) -> Result<()> {
    let (first, others) = operands.split_first_mut().expect("there is an operand");
    piece.clear();
    piece.extend_from_slice(first.chunk(txn, number)?);
    piece.resize(len, 0);
    if operation == Operation::Not {
        piece.iter_mut().for_each(|byte| *byte = !*byte);
    }
    // Bits that more than one operand has.
    let mut several = if operation == Operation::One { vec![0; len] } else { Vec::new() };
    let last = others.len().saturating_sub(1);
    // In a dry run a chunk may be longer than its value was when that was looked up.
    for (at, other) in others.iter_mut().enumerate() {
        let chunk = other.chunk(txn, number)?;
        let pairs = piece.iter_mut().zip(chunk);
        match operation {
            Operation::And => {
                pairs.for_each(|(byte, other)| *byte &= other);
                piece[chunk.len().min(len)..].fill(0);
            }
            Operation::AndOr if at == last => {
                pairs.for_each(|(byte, first)| *byte &= first);
                piece[chunk.len().min(len)..].fill(0);
            }
            Operation::Diff => pairs.for_each(|(byte, other)| *byte &= !other),
            Operation::Diff1 if at == last => pairs.for_each(|(byte, first)| *byte &= !first),
            Operation::Or | Operation::AndOr | Operation::Diff1 => pairs.for_each(|(byte, other)| *byte |= other),
            Operation::Xor => pairs.for_each(|(byte, other)| *byte ^= other),
            Operation::One => pairs.zip(&mut several).for_each(|((byte, other), several)| {
                *several |= *byte & other;
                *byte |= other;
            }),
            Operation::Not => unreachable!("the complement is of one string"),
        }
    }
    piece.iter_mut().zip(&several).for_each(|(byte, several)| *byte &= !several);
    Ok(())
}

/// A string that is read chunk by chunk, ascending.
enum Operand {
    Row(Value),
    Chunks {
        chunked: Chunked,
        /// The chunk looked at, which owns the slice that was given out.
        chunk: Option<Value>,
    },
    /// A view of a long string, whose many chunks would not fit the row cache.
    Long(Long),
    Empty,
}

impl Operand {
    fn new(txn: &mut Txn<'_>, operand: Option<Bitmap>, is_long: bool) -> Result<Operand> {
        Ok(match operand.map(|operand| operand.held) {
            None => Operand::Empty,
            Some(Held::Row(row)) => Operand::Row(row),
            Some(Held::Chunks(chunked)) if is_long => Operand::Long(chunked.long(txn, 0..chunked.length)?),
            Some(Held::Chunks(chunked)) => Operand::Chunks { chunked, chunk: None },
        })
    }

    /// Returns the bytes that an operand has of a chunk; missing bytes at its end are zeros.
    fn chunk(&mut self, txn: &mut Txn<'_>, number: u64) -> Result<&[u8]> {
        match self {
            Operand::Row(row) if number == 0 => Ok(row),
            Operand::Row(_) | Operand::Empty => Ok(&[]),
            Operand::Long(long) => long.chunk(number).map_err(chunks::failed),
            Operand::Chunks { chunked, .. } if number * CHUNK_BYTES as u64 >= chunked.length => Ok(&[]),
            Operand::Chunks { chunked, chunk } => {
                *chunk = chunked.chunk(txn, number)?;
                Ok(chunk.as_deref().unwrap_or_default())
            }
        }
    }
}
