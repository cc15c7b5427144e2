//! The rows of a frozen generation in the order of their keys, over all shards, as a flush writes them. Rows of dead
//! spaces are left out.

use crate::memtable::{Fetched, Table, spaces_of};
use crate::row::{Family, RowKey, Space, SystemScope, family_range, system_row};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of the flush itself, all of the system family; `None` deletes.
pub type OwnRows = BTreeMap<RowKey, Option<Vec<u8>>>;

/// A row's key, and its value or that it is deleted.
pub type Row<'t> = (&'t [u8], Option<&'t [u8]>);

/// The rows of a generation, ascending, with the flush's own rows, which win over frozen ones.
pub struct SortedRows<'t> {
    rows: Box<dyn Iterator<Item = Row<'t>> + 't>,
}

impl<'t> SortedRows<'t> {
    /// Returns the rows of these tables. `dead` is in order.
    pub fn new(tables: &'t [Arc<Table>], dead: &[Space], own: &'t OwnRows) -> Self {
        debug_assert!(dead.is_sorted());
        let is_live = |space: &Space| dead.binary_search(space).is_err();
        let spaces: Vec<Space> = spaces_of(tables).into_iter().filter(is_live).collect();
        let meta = spaces.clone().into_iter().flat_map(|space| meta_rows(tables, space));
        let objects = [Family::Data, Family::Score, Family::Owner].into_iter().flat_map({
            let spaces = spaces.clone();
            move |family| spaces.clone().into_iter().flat_map(move |space| object_rows(tables, family, space))
        });
        let deadlines = spaces.into_iter().flat_map(|space| deadlines(tables, space));
        let rows = meta.chain(objects).chain(deadlines).chain(system_rows(tables, own));
        SortedRows { rows: Box::new(rows) }
    }
}

impl<'t> Iterator for SortedRows<'t> {
    type Item = Row<'t>;

    fn next(&mut self) -> Option<Row<'t>> {
        self.rows.next()
    }
}

/// Returns the meta rows of a space in order: slots ascend with the shards, and within them.
fn meta_rows(tables: &[Arc<Table>], space: Space) -> impl Iterator<Item = Row<'_>> {
    let entries = tables.iter().flat_map(move |table| table.keys_in(space));
    Fetched::new(entries).map(|entry| (entry.row(), entry.value()))
}

/// Returns the rows of a space's objects in order: slots ascend with the shards; within one, objects are put in order.
fn object_rows(tables: &[Arc<Table>], family: Family, space: Space) -> impl Iterator<Item = Row<'_>> {
    let entries = tables.iter().flat_map(move |table| table.objects.in_space(family, space));
    Fetched::new(entries).map(|entry| (entry.row(), entry.value()))
}

/// Returns the deadlines of a space. They are ordered by time, not by slot: those of all shards are sorted together.
fn deadlines(tables: &[Arc<Table>], space: Space) -> impl Iterator<Item = Row<'_>> {
    let (from, until) = family_range(Family::Expire, space);
    let mut rows: Vec<_> = tables.iter().flat_map(|table| other_rows(table, &from, &until)).collect();
    rows.sort_unstable();
    rows.into_iter()
}

fn other_rows<'t>(table: &'t Table, from: &[u8], until: &[u8]) -> impl Iterator<Item = Row<'t>> + use<'t> {
    table.other_rows(from, until).map(|(row, value, _)| (row, value))
}

fn system_rows<'t>(tables: &'t [Arc<Table>], own: &'t OwnRows) -> impl Iterator<Item = Row<'t>> {
    let from = system_row(SystemScope::Replicated, b"");
    let mut rows: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
    for table in tables {
        rows.extend(other_rows(table, &from, &[u8::MAX]));
    }
    rows.extend(own.iter().map(|(row, value)| (&row[..], value.as_deref())));
    rows.into_iter()
}
