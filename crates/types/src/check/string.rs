//! Strings: docs/format/rows.md.

use super::objects::ObjectRows;
use super::place::Report;
use crate::chunks::{CHUNK_BYTES, PAYLOAD_BYTES};
use crate::key::Object;
use crate::string::INLINE_BYTES_MAX;
use haypile_store::base::BaseError;

pub(super) fn check_inline(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    if payload.len() > INLINE_BYTES_MAX {
        report.add(format_args!("{} bytes lie in its meta row, {INLINE_BYTES_MAX} may", payload.len()));
    }
}

/// Returns the length of a string in chunks.
fn length(payload: &[u8]) -> Option<u64> {
    let payload: &[u8; PAYLOAD_BYTES] = payload.try_into().ok()?;
    Some(u64::from_be_bytes(*payload[Object::BYTES..].last_chunk().expect("eight bytes follow the object")))
}

pub(super) fn check_chunked(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    match length(payload) {
        None => report.add(format_args!("its payload has {} bytes, not {PAYLOAD_BYTES}", payload.len())),
        Some(length) if length <= INLINE_BYTES_MAX as u64 => {
            report.add(format_args!("its {length} bytes lie in chunks, and would fit the meta row"));
        }
        Some(_) => {}
    }
}

pub(super) fn check_chunks(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    let Some(length) = length(payload) else { return Ok(()) };
    while let Some((element, chunk)) = rows.data.next()? {
        let Ok(number) = element.try_into().map(u32::from_be_bytes) else {
            report.add(format_args!("an element of {} bytes is not a chunk's number", element.len()));
            continue;
        };
        let end = u64::from(number) * CHUNK_BYTES as u64 + chunk.len() as u64;
        if chunk.len() > CHUNK_BYTES {
            report.add(format_args!("chunk {number} has {} bytes, {CHUNK_BYTES} may be", chunk.len()));
        } else if end > length {
            report.add(format_args!("chunk {number} ends at {end}, the string at {length}"));
        }
    }
    rows.expect_no_scores(report)
}
