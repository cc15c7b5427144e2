//! Guesses, from what the memtable has, where the rows lie of elements that commands are going to ask for, so that the
//! rows can be fetched from memory together before the commands run one by one. A guess decides nothing.

use crate::element::Rows;
use crate::key::{Header, Tag};
use crate::list::Dense;
use haypile_store::{Key, Sought, Store};

/// An element that a command is going to ask for.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// An element by its name.
    Named(&'a [u8]),
    /// An element by its index in a list, as clients write it.
    Index(i64),
}

/// A collection whose elements have rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// Elements are found by their names.
    Named(Rows),
    /// Elements are found by their positions.
    List(Dense),
}

impl Guess {
    /// Guesses the collection that a key is, if the memtable has its meta row.
    #[inline]
    pub fn of(store: &Store, key: &Key<'_>) -> Option<Guess> {
        store.peek(key, |row| {
            let header = Header::parse(row)?;
            match header.tag {
                Tag::HashRows | Tag::SetRows | Tag::ZsetRows => Some(Guess::Named(Rows::of(key, &header)?)),
                Tag::ListRows => Dense::guess(Rows::of(key, &header)?, &row[header.bytes_len()..]).map(Guess::List),
                _ => None,
            }
        })?
    }

    /// Returns where the row stands, if the wanted element is one that such a collection can have.
    #[inline]
    pub fn sought(&self, store: &Store, wanted: Wanted<'_>) -> Option<Sought> {
        match (self, wanted) {
            (Guess::Named(rows), Wanted::Named(element)) => Some(rows.sought(store, element)),
            (Guess::List(list), Wanted::Index(index)) => {
                let from = if index < 0 { list.count.checked_sub(index.unsigned_abs())? } else { index as u64 };
                list.sought(from)
            }
            _ => None,
        }
    }
}
