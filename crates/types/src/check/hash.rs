//! Hashes: docs/format/hash.md.

use super::collection::{self, Distinct};
use super::objects::ObjectRows;
use super::place::{Report, Shown};
use crate::element::Head;
use crate::hash::{Deadlines, stored_in_row};
use crate::key::Header;
use crate::packed::Packed;
use crate::value::encoding::{HASH_HAS_DEADLINES, HASH_TABLE};
use haypile_store::base::BaseError;

/// The highest encoding of a hash, with the bit that any of them may have.
const ENCODING_MAX: u8 = HASH_TABLE | HASH_HAS_DEADLINES;

pub(super) fn check_packed(header: &Header, payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let is_timed = Packed::parse(payload).is_ok_and(|packed| packed.encoding & HASH_HAS_DEADLINES != 0);
    let (mut fields, mut deadlines) = (Distinct::default(), Deadlines::default());
    collection::check_packed(payload, ENCODING_MAX, report, |reader| {
        let field = reader.string()?;
        reader.string()?;
        let deadline = if is_timed { u64::from_be_bytes(reader.fixed()?) } else { 0 };
        deadlines.add((deadline != 0).then_some(deadline));
        Ok(fields.check(field))
    });
    check_times(header, &deadlines, report);
}

/// Compares the span of the fields' deadlines in the meta row with the deadlines found.
fn check_times(header: &Header, deadlines: &Deadlines, report: &mut Report<'_, '_, '_>) {
    if header.fields != deadlines.times() {
        let shown = |times: Option<crate::key::FieldTimes>| match times {
            Some(times) => format!("from {} to {}", times.first_ms, times.last_ms),
            None => "none".into(),
        };
        let (stated, found) = (shown(header.fields), shown(deadlines.times()));
        report.add(format_args!("deadlines of its fields are stated as {stated}, and are {found}"));
    }
}

/// Bytes of the type's own part of the head.
fn own_bytes(payload: &[u8]) -> usize {
    if payload.get(Head::ENCODING_AT).is_some_and(|encoding| encoding & HASH_HAS_DEADLINES != 0) { 8 } else { 0 }
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, own_bytes(payload), ENCODING_MAX, report);
}

pub(super) fn check_rows(
    header: &Header,
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    let own_bytes = own_bytes(payload);
    let mut deadlines = Deadlines::default();
    collection::check_hashed(payload, own_bytes, rows, report, |_, value| match stored_in_row(value) {
        Ok(stored) => {
            deadlines.add(stored.deadline_ms);
            Ok(())
        }
        Err(_) => Err("its row does not begin with flags that are known".into()),
    })?;
    if own_bytes == 0 {
        check_times(header, &deadlines, report);
        return rows.expect_no_scores(report);
    }
    let stated = payload.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    let (look, mut indexed) = (rows.look(), 0);
    while let Some((element, value)) = rows.score.next()? {
        indexed += 1;
        let Some((deadline, of_field)) = element.split_first_chunk::<8>() else {
            report.add(format_args!("row {} of the index of deadlines is too short", Shown(element)));
            continue;
        };
        let deadline = u64::from_be_bytes(*deadline);
        let row = look.data(of_field)?;
        let has = row.as_deref().and_then(|row| stored_in_row(row).ok()).and_then(|stored| stored.deadline_ms);
        if has != Some(deadline) {
            let name = Shown(of_field.get(crate::element::HASH_BYTES..).unwrap_or_default());
            report
                .add(format_args!("field {name} is in the index of deadlines at {deadline}, and has another, or none"));
        }
        if !value.is_empty() {
            report.add("a row of the index of deadlines has a value");
        }
    }
    // Each row of the index is that of another field with that deadline, so equal counts mean that none is missing.
    for (what, count) in [("are stated", stated), ("are in the index", indexed)] {
        if count != deadlines.count {
            report.add(format_args!("{} fields have deadlines, {count} {what}", deadlines.count));
        }
    }
    check_times(header, &deadlines, report);
    Ok(())
}
