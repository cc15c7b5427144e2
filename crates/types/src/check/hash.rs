//! Hashes: docs/format/hash.md.

use super::collection::{self, Distinct};
use super::objects::ObjectRows;
use super::place::Report;
use crate::value::encoding::HASH_TABLE;
use haypile_store::base::BaseError;

pub(super) fn check_packed(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let mut fields = Distinct::default();
    collection::check_packed(payload, HASH_TABLE, report, |reader| {
        let field = reader.string()?;
        reader.string()?;
        Ok(fields.check(field))
    });
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, 0, HASH_TABLE, report);
}

pub(super) fn check_rows(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    collection::check_hashed(payload, 0, rows, report, |_, value| match value {
        [0, ..] => Ok(()),
        _ => Err("its row does not begin with flags that are known".into()),
    })?;
    rows.expect_no_scores(report)
}
