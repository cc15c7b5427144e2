//! Sets: docs/format/set.md.

use super::collection::{self, Distinct};
use super::objects::ObjectRows;
use super::place::Report;
use crate::value::encoding::SET_TABLE;
use haypile_store::base::BaseError;

pub(super) fn check_packed(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let mut members = Distinct::default();
    collection::check_packed(payload, SET_TABLE, report, |reader| Ok(members.check(reader.string()?)));
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, 0, SET_TABLE, report);
}

pub(super) fn check_rows(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    collection::check_hashed(payload, 0, rows, report, |_, value| match value {
        [] => Ok(()),
        _ => Err("its row has a value".into()),
    })?;
    rows.expect_no_scores(report)
}
