//! The encoding in which Redis 7.2 would hold a set: `intset` while it has only integers and few enough, `listpack`
//! while it has few and short members, else `hashtable`. An encoding only goes forward as members are added, and stays
//! as they go. Says nothing of how sets are stored here.

use crate::EncodingLimit;
use crate::value::encoding::{SET_INTSET, SET_LISTPACK, SET_TABLE};
use crate::{Result, integer};
use haypile_store::Txn;

/// The bounds as the configuration has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    intset_entries: u64,
    listpack_entries: u64,
    listpack_value: u64,
}

/// The most members of an intset in Redis, whatever is configured.
const INTSET_ENTRIES_MAX: u64 = 1 << 30;

/// The most digits of an integer, its sign included.
const INTEGER_BYTES_MAX: u64 = 20;

impl Limits {
    #[inline]
    pub fn of(txn: &Txn<'_>) -> Limits {
        let limit = |limit: EncodingLimit| limit.of(txn).max(0) as u64;
        Limits {
            intset_entries: limit(EncodingLimit::SetIntsetEntries),
            listpack_entries: limit(EncodingLimit::SetEntries),
            listpack_value: limit(EncodingLimit::SetValue),
        }
    }

    /// Returns the encoding of an empty set that is about to get `hint` members, the first of which is known.
    pub fn fresh(&self, first: &[u8], hint: u64) -> u8 {
        if hint <= self.intset_entries && integer::parse(first).is_some() {
            SET_INTSET
        } else if hint <= self.listpack_entries {
            SET_LISTPACK
        } else {
            SET_TABLE
        }
    }

    /// Returns the encoding of a set that is about to get `hint` members: their number may be too many by itself.
    #[inline]
    pub fn hinted(&self, encoding: u8, hint: u64) -> u8 {
        match encoding {
            SET_INTSET if hint > self.intset_entries => SET_TABLE,
            SET_LISTPACK if hint > self.listpack_entries => SET_TABLE,
            same => same,
        }
    }

    /// Returns the encoding after a member is added to a set of `count`. `longest` returns the bytes of the longest so
    /// far.
    #[inline]
    pub fn added(
        &self,
        encoding: u8,
        count: u64,
        member: &[u8],
        longest: impl FnOnce() -> Result<usize>,
    ) -> Result<u8> {
        let listpack = count < self.listpack_entries && member.len() as u64 <= self.listpack_value;
        Ok(match encoding {
            SET_INTSET if integer::parse(member).is_some() => {
                if count < self.intset_entries.min(INTSET_ENTRIES_MAX) {
                    SET_INTSET
                } else {
                    SET_TABLE
                }
            }
            SET_INTSET if listpack => {
                let fits = self.listpack_value >= INTEGER_BYTES_MAX || longest()? as u64 <= self.listpack_value;
                if fits { SET_LISTPACK } else { SET_TABLE }
            }
            SET_LISTPACK if listpack => SET_LISTPACK,
            _ => SET_TABLE,
        })
    }

    /// Returns the encoding of a set that is made as a whole.
    pub fn whole(&self, tally: Tally) -> u8 {
        if tally.integers && tally.count <= self.intset_entries.min(INTSET_ENTRIES_MAX) {
            SET_INTSET
        } else if tally.count <= self.listpack_entries && tally.longest <= self.listpack_value {
            SET_LISTPACK
        } else {
            SET_TABLE
        }
    }

    /// Returns the encoding of the rest when most of a set was taken out at random: Redis makes a new set of it.
    pub fn left(&self, encoding: u8, tally: Tally) -> u8 {
        match encoding {
            SET_TABLE if tally.count <= self.listpack_entries && tally.longest <= self.listpack_value => SET_LISTPACK,
            same => same,
        }
    }
}

/// The properties of members that the encoding depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    pub count: u64,
    /// Whether all members are integers.
    pub integers: bool,
    /// Bytes of the longest member.
    pub longest: u64,
}

impl Tally {
    pub const EMPTY: Tally = Tally { count: 0, integers: true, longest: 0 };

    #[inline]
    pub fn add(&mut self, member: &[u8]) {
        self.count += 1;
        self.integers = self.integers && integer::parse(member).is_some();
        self.longest = self.longest.max(member.len() as u64);
    }
}
