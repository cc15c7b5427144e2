//! The values of keys in the model, and the changes of single elements that commands make. A collection that an edit
//! empties is gone; an edit of a missing key makes the collection that the edit belongs to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::model::Millis;
use crate::quoted::abbreviate;

pub type Bytes = Vec<u8>;
pub type Hash = BTreeMap<Bytes, Field>;
pub type List = VecDeque<Bytes>;
pub type Set = BTreeSet<Bytes>;
/// The members and scores of a sorted set. Scores are whole numbers, which every server prints alike.
pub type Zset = BTreeMap<Bytes, i64>;

/// The ID of a stream's entry.
pub type Id = (u64, u64);

/// A stream, which stays when its last entry goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Fields and values in turn.
    pub entries: BTreeMap<Id, Vec<Bytes>>,
    /// The highest ID that was ever given out.
    pub last: Id,
    /// The highest ID that XDEL removed.
    pub max_deleted: Id,
    pub added: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub value: Bytes,
    pub deadline: Option<Millis>,
}

impl From<Bytes> for Field {
    fn from(value: Bytes) -> Field {
        Field { value, deadline: None }
    }
}

/// A value. Collections are shared between states until one of them is edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(Arc<[u8]>),
    Hash(Arc<Hash>),
    List(Arc<List>),
    Set(Arc<Set>),
    Zset(Arc<Zset>),
    Stream(Arc<Stream>),
}

/// A change of one element.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Sets a field of a hash: its value and deadline.
    Field(Bytes, Field),
    /// Inserts an element into a list at this index.
    Insert(usize, Bytes),
    /// Removes the element of a list at this index.
    Take(usize),
    /// Adds a member to a set.
    Member(Bytes),
    /// Sets a member's score in a sorted set.
    Score(Bytes, i64),
    /// Removes a field or member of a hash, set or sorted set.
    Drop(Bytes),
    /// Appends an entry to a stream.
    Entry(Id, Vec<Bytes>),
    /// Removes an entry of a stream by XDEL.
    Deleted(Id),
    /// Removes an entry of a stream by a trim.
    Trimmed(Id),
    /// Sets the last ID of a stream by XSETID.
    Last(Id),
}

impl Value {
    pub fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Text(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::Hash(hash) => hash.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::Zset(zset) => zset.is_empty(),
            Value::Stream(_) => false,
        }
    }

    /// Returns the empty value that an edit of a missing key begins with.
    pub fn empty_for(edit: &Edit) -> Value {
        match edit {
            Edit::Field(..) => Value::Hash(Arc::default()),
            Edit::Insert(..) | Edit::Take(_) => Value::List(Arc::default()),
            Edit::Member(_) | Edit::Drop(_) => Value::Set(Arc::default()),
            Edit::Score(..) => Value::Zset(Arc::default()),
            Edit::Entry(..) | Edit::Deleted(_) | Edit::Trimmed(_) | Edit::Last(_) => Value::Stream(Arc::default()),
        }
    }

    pub fn edit(&mut self, edit: &Edit) {
        match (self, edit) {
            (Value::Hash(hash), Edit::Field(name, field)) => {
                drop(Arc::make_mut(hash).insert(name.clone(), field.clone()))
            }
            (Value::Hash(hash), Edit::Drop(name)) => drop(Arc::make_mut(hash).remove(name)),
            (Value::List(list), Edit::Insert(at, element)) => Arc::make_mut(list).insert(*at, element.clone()),
            (Value::List(list), Edit::Take(at)) => drop(Arc::make_mut(list).remove(*at)),
            (Value::Set(set), Edit::Member(member)) => drop(Arc::make_mut(set).insert(member.clone())),
            (Value::Set(set), Edit::Drop(member)) => drop(Arc::make_mut(set).remove(member)),
            (Value::Zset(zset), Edit::Score(member, score)) => drop(Arc::make_mut(zset).insert(member.clone(), *score)),
            (Value::Zset(zset), Edit::Drop(member)) => drop(Arc::make_mut(zset).remove(member)),
            (Value::Stream(stream), edit) => Arc::make_mut(stream).edit(edit),
            (value, edit) => panic!("a writer knows the type that it edits: {edit:?} of {}", value.describe()),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Value::Text(bytes) => abbreviate(bytes),
            Value::Hash(hash) => format!("a hash of {}", hash.len()),
            Value::List(list) => format!("a list of {}", list.len()),
            Value::Set(set) => format!("a set of {}", set.len()),
            Value::Zset(zset) => format!("a sorted set of {}", zset.len()),
            Value::Stream(stream) => {
                let Stream { entries, last, max_deleted, added } = &**stream;
                format!("a stream of {}, last {last:?}, deleted up to {max_deleted:?}, {added} added", entries.len())
            }
        }
    }

    /// Describes the first elements of this value that another of its type lacks or has with another value.
    pub fn lacking_in(&self, other: &Value) -> Vec<String> {
        let show = |name: &Bytes, value: String| format!("{} = {value}", abbreviate(name));
        let field = |f: &Field| format!("{} until {:?}", abbreviate(&f.value), f.deadline);
        let all: Vec<String> = match (self, other) {
            (Value::Hash(own), Value::Hash(other)) => {
                own.iter().filter(|(n, f)| other.get(*n) != Some(f)).map(|(n, f)| show(n, field(f))).collect()
            }
            (Value::List(own), Value::List(other)) => {
                let differ = own.iter().enumerate().filter(|(at, element)| other.get(*at) != Some(element));
                differ.map(|(at, element)| format!("[{at}] = {}", abbreviate(element))).collect()
            }
            (Value::Set(own), Value::Set(other)) => own.difference(other).map(|member| abbreviate(member)).collect(),
            (Value::Zset(own), Value::Zset(other)) => {
                let differ = own.iter().filter(|(member, score)| other.get(*member) != Some(score));
                differ.map(|(member, score)| show(member, score.to_string())).collect()
            }
            (Value::Stream(own), Value::Stream(other)) => {
                let differ = own.entries.iter().filter(|(id, fields)| other.entries.get(*id) != Some(fields));
                differ.map(|(id, fields)| format!("{id:?} = {}", abbreviate(&fields.concat()))).collect()
            }
            _ => Vec::new(),
        };
        all.into_iter().take(3).collect()
    }
}

impl Stream {
    fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Entry(id, fields) => {
                self.entries.insert(*id, fields.clone());
                self.last = *id;
                self.added += 1;
            }
            Edit::Deleted(id) => {
                self.entries.remove(id);
                self.max_deleted = self.max_deleted.max(*id);
            }
            Edit::Trimmed(id) => drop(self.entries.remove(id)),
            Edit::Last(id) => self.last = *id,
            edit => panic!("a writer knows the type that it edits: {edit:?} of a stream"),
        }
    }
}

/// Returns the members in the order of their ranks.
pub fn ranked(zset: &Zset) -> Vec<(&Bytes, i64)> {
    let mut all: Vec<(&Bytes, i64)> = zset.iter().map(|(member, score)| (member, *score)).collect();
    // Members iterate in the order of their bytes, which is the order of members with equal scores.
    all.sort_by_key(|(_, score)| *score);
    all
}
