//! The checker of each form of value. A new row form without one does not compile.

use super::objects::ObjectRows;
use super::place::Report;
use super::{hash, list, set, stream, string, zset};
use crate::key::{Header, Tag};
use haypile_store::base::BaseError;

/// Checks the rules that the payload of a meta row has to meet by itself.
pub(super) fn check_payload(header: &Header, payload: &[u8], report: &mut Report<'_, '_, '_>) {
    match header.tag {
        Tag::StringInline => string::check_inline(payload, report),
        Tag::StringChunked => string::check_chunked(payload, report),
        Tag::HashPacked => hash::check_packed(header, payload, report),
        Tag::HashRows => hash::check_head(payload, report),
        Tag::SetPacked => set::check_packed(payload, report),
        Tag::SetRows => set::check_head(payload, report),
        Tag::ListPacked => list::check_packed(payload, report),
        Tag::ListRows => list::check_head(payload, report),
        Tag::ZsetPacked => zset::check_packed(payload, report),
        Tag::ZsetRows => zset::check_head(payload, report),
        Tag::Stream => stream::check_head(payload, report),
    }
}

/// Checks the rows of an object whose key has this payload. A payload that is not sound has been told before.
pub(super) fn check_rows(
    header: &Header,
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    match header.tag {
        Tag::StringChunked => string::check_chunks(payload, rows, report),
        Tag::HashRows => hash::check_rows(header, payload, rows, report),
        Tag::SetRows => set::check_rows(payload, rows, report),
        Tag::ListRows => list::check_rows(payload, rows, report),
        Tag::ZsetRows => zset::check_rows(payload, rows, report),
        Tag::Stream => stream::check_rows(payload, rows, report),
        // Inline and packed forms have no object, so no rows.
        Tag::StringInline | Tag::HashPacked | Tag::SetPacked | Tag::ListPacked | Tag::ZsetPacked => Ok(()),
    }
}
