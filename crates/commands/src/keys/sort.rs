//! SORT and SORT_RO: the elements of a list, a set or a sorted set in an order of their own, or by what other keys say
//! of them.
//!
//! Owns options, weights and replies. What BY and GET ask for lies in keys that are not among the arguments. Up to a
//! bound they are locked before anything is read, so that all of it is from one moment, as in Redis; beyond it each is
//! looked at under its own lock, at a moment of its own, because nobody else is to wait for a million keys. The key
//! that is sorted and the one that is stored to are locked from beginning to end. What is too much for memory is sorted
//! in a file (`sort_large`).

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keys::sort_large::{self, Outputs, Sorted, Sorter};
use crate::keyspec::{Begin, Hidden, KeySpec, Keys, Mode, Use};
use crate::statement;
use crate::table::{Access, Arity, Body, Category, Command, Flag, Group};
use haypile_resp::Reply;
use haypile_store::{Direction, Key, Txn, View};
use haypile_types::element::{self, ROWS_INLINE_MAX};
use haypile_types::key::{self, Entry, Type};
use haypile_types::list::{self, List};
use haypile_types::set::Set;
use haypile_types::string::{self, Content};
use haypile_types::zset::{self, Stretch, Zset};
use haypile_types::{event, hash, score};
use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

pub(crate) const COMMANDS: &[Command] = &[SORT, SORT_RO];

const ELSEWHERE: KeySpec = KeySpec {
    begin: Begin::Unknown(Hidden::Elsewhere),
    notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the \
            key we sort",
    ..KeySpec::at(1)
};

const DESTINATION: KeySpec = KeySpec {
    begin: Begin::Unknown(Hidden::StoreOfSort),
    notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the \
            argument array",
    ..KeySpec::at(1).with(Mode::Ow, &[Use::Update])
};

const SORT: Command = Command {
    name: "sort",
    since: "1.0.0",
    group: Group::Generic,
    arity: Arity::at_least(2),
    keys: Keys::Many(&[KeySpec::at(1), ELSEWHERE, DESTINATION]),
    summary: "Sorts the elements of a list, a set or a sorted set, and returns or stores them.",
    syntax: "key [BY pattern] [LIMIT offset_count=(offset count)] [GET pattern*] [order=(ASC | DESC)] [ALPHA sorting:pure-token] [STORE destination:key]",
    complexity: "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of \
        returned elements. When the elements are not sorted, complexity is O(N).",
    access: Access::Write,
    body: Body::Txn(sort),
    flags: &[Flag::Denyoom],
    categories: &[Category::Set, Category::Sortedset, Category::List, Category::Dangerous],
    other_keys: Some(other_keys),
    ..Command::USUAL
};

const SORT_RO: Command = Command {
    name: "sort_ro",
    since: "7.0.0",
    syntax: "key [BY pattern] [LIMIT offset_count=(offset count)] [GET pattern*] [order=(ASC | DESC)] [ALPHA sorting:pure-token]",
    summary: "Returns the sorted elements of a list, a set or a sorted set.",
    keys: Keys::Many(&[KeySpec::at(1), ELSEWHERE]),
    access: Access::Read,
    body: Body::Txn(sort_ro),
    flags: &[],
    ..SORT
};

/// The first option by which a call reads other keys than it names. Options behind one that is wrong do not count.
fn other_keys(args: Args) -> Option<&'static str> {
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        at += match left {
            1.. if args.is(at, "BY") && args.get(at + 1).contains(&b'*') => return Some("BY"),
            1.. if args.is(at, "GET") => return Some("GET"),
            2.. if args.is(at, "LIMIT") => 3,
            1.. if args.is(at, "BY") || args.is(at, "STORE") => 2,
            _ if args.is(at, "ASC") || args.is(at, "DESC") || args.is(at, "ALPHA") => 1,
            _ => return None,
        };
    }
    None
}

/// Elements and weights of more bytes are not sorted in memory, but in a spool.
pub const MEMORY_BYTES_MAX: usize = 8 << 20;

/// Keys named by patterns that are read at one moment together. About as many fit an event loop's run.
const TOGETHER_MAX: u64 = 1024;

/// A call, its options parsed.
pub(crate) struct Call<'a> {
    pub key: Key<'a>,
    /// The pattern of BY, if it has a place for the element.
    by: Option<&'a [u8]>,
    pub sorts: bool,
    pub gets: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    pub descending: bool,
    pub alpha: bool,
    pub store: Option<Key<'a>>,
}

impl<'a> Call<'a> {
    fn parse(txn: &Txn, args: Args<'a>, stores: bool) -> Result<Call<'a>> {
        let key = args.key(txn, 1);
        let (by, gets, limit) = (None, Vec::new(), None);
        let mut call = Call { key, by, sorts: true, gets, limit, descending: false, alpha: false, store: None };
        let mut i = 2;
        while i < args.len() {
            let left = args.len() - 1 - i;
            if args.is(i, "asc") {
                call.descending = false;
            } else if args.is(i, "desc") {
                call.descending = true;
            } else if args.is(i, "alpha") {
                call.alpha = true;
            } else if args.is(i, "limit") && left >= 2 {
                call.limit = Some((args.int(i + 1)?, args.int(i + 2)?));
                i += 2;
            } else if stores && args.is(i, "store") && left >= 1 {
                call.store = Some(args.key(txn, i + 1));
                i += 1;
            } else if args.is(i, "by") && left >= 1 {
                let pattern = args.get(i + 1);
                // One without a place settles it, whatever other BY there is.
                call.sorts &= pattern.contains(&b'*');
                call.by = call.sorts.then_some(pattern);
                i += 1;
            } else if args.is(i, "get") && left >= 1 {
                call.gets.push(args.get(i + 1));
                i += 1;
            } else {
                return Err(Error::Syntax);
            }
            i += 1;
        }
        Ok(call)
    }

    /// Returns the range of `count` elements that is asked for.
    pub fn range(&self, count: u64) -> Range<u64> {
        let Some((offset, number)) = self.limit else { return 0..count };
        let start = (offset.max(0) as u64).min(count);
        let end = if number < 0 { count } else { start.saturating_add(number as u64).min(count) };
        start..end
    }

    /// Whether the call reads keys that are not among its arguments.
    fn looks_elsewhere(&self) -> bool {
        self.patterns().next().is_some()
    }

    /// The patterns that name a key for each element.
    fn patterns(&self) -> impl Iterator<Item = &'a [u8]> {
        self.by.into_iter().chain(self.gets.iter().copied()).filter(|pattern| pattern.contains(&b'*'))
    }

    /// Has the keys that the patterns name locked, if these are few enough to be read together.
    fn claim_keys(&self, txn: &mut Txn, source: &mut Source) -> Result<()> {
        let keys = source.count()?.saturating_mul(self.patterns().count() as u64);
        if keys > TOGETHER_MAX {
            // Each of them is visited by itself, and that takes its time.
            return Ok(txn.long()?);
        }
        let elements = source.elements(txn, Direction::Forward)?;
        let names = elements
            .iter()
            .flat_map(|element| self.patterns().filter_map(|pattern| Some(Named::by(pattern, element)?.key)));
        let hashes: Vec<u32> = names.map(|name| txn.key(&name).hash).collect();
        Ok(txn.claim_if_possible(hashes.into_iter())?)
    }

    /// Reads the weight of an element: the element itself, or the value that BY names.
    pub fn weight(&self, txn: &mut Txn, element: &[u8]) -> Result<Weight> {
        let found = match self.by {
            Some(pattern) => lookup_pattern(txn, pattern, element)?,
            None => Some(Found::Element),
        };
        let Some(found) = found else { return Ok(Weight::None) };
        let text = match &found {
            Found::Element => element,
            Found::Bytes(bytes) => bytes,
        };
        match self.alpha {
            true => Ok(Weight::Text(text.into())),
            false => score::parse_weight(text).map(Weight::Number).ok_or(NOT_DOUBLE),
        }
    }

    /// Calls `each` with the outputs of an element: the element itself, or the values that GET names.
    pub fn output(
        &self,
        txn: &mut Txn,
        element: &[u8],
        mut each: impl FnMut(&mut Txn, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        if self.gets.is_empty() {
            return each(txn, Some(element));
        }
        for pattern in &self.gets {
            match lookup_pattern(txn, pattern, element)? {
                Some(Found::Element) => each(txn, Some(element))?,
                Some(Found::Bytes(bytes)) => each(txn, Some(&bytes))?,
                None => each(txn, None)?,
            }
        }
        Ok(())
    }
}

const NOT_DOUBLE: Error =
    Error::Text(std::borrow::Cow::Borrowed("ERR One or more scores can't be converted into double"));

/// The value that an element is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Weight {
    /// The key that BY names is not there.
    None,
    Number(f64),
    Text(Box<[u8]>),
}

impl Weight {
    /// Compares two weights. A missing one counts as zero among numbers, and comes before all texts.
    pub fn compare(&self, other: &Weight) -> Ordering {
        match (self, other) {
            (Weight::Text(one), Weight::Text(other)) => one.cmp(other),
            (Weight::None, Weight::Text(_)) => Ordering::Less,
            (Weight::Text(_), Weight::None) => Ordering::Greater,
            (one, other) => one.number().total_cmp(&other.number()),
        }
    }

    pub fn number(&self) -> f64 {
        match self {
            // Both zeros are equal.
            Weight::Number(number) => number + 0.0,
            Weight::None | Weight::Text(_) => 0.0,
        }
    }
}

/// The value that a pattern has led to.
enum Found {
    Element,
    Bytes(Vec<u8>),
}

/// The value of the key, or of the hash's field, that a pattern names with the element in the place of its first `*`;
/// `#` is the element. Nothing if there is no `*`, no such key, or none of the right type.
fn lookup_pattern(txn: &mut Txn, pattern: &[u8], element: &[u8]) -> Result<Option<Found>> {
    if pattern == b"#" {
        return Ok(Some(Found::Element));
    }
    let Some(Named { key: name, field }) = Named::by(pattern, element) else { return Ok(None) };
    let key = txn.key(&name);
    let bytes = txn.visit_key(&key, |txn| -> Result<Option<Vec<u8>>> {
        let Some(entry) = key::lookup(txn, &key)? else { return Ok(None) };
        Ok(match (field, entry.header.type_of()) {
            (Some(field), Type::Hash) => hash::get(txn, &key, entry, field)?.map(|value| value.to_vec()),
            (None, Type::String) => Some(bytes_of(string::content(txn, &key, entry)?)?),
            _ => None,
        })
    })?;
    Ok(bytes.map(Found::Bytes))
}

/// The key, and the field if it is to be a hash, that a pattern names for an element.
struct Named<'p> {
    key: Vec<u8>,
    field: Option<&'p [u8]>,
}

impl<'p> Named<'p> {
    /// The name that the pattern makes of an element; `None` if the pattern has no `*`.
    fn by(pattern: &'p [u8], element: &[u8]) -> Option<Named<'p>> {
        let star = pattern.iter().position(|byte| *byte == b'*')?;
        let arrow = pattern[star + 1..].windows(2).position(|two| two == b"->").map(|at| star + 1 + at);
        // An arrow at the end is a part of the name.
        let arrow = arrow.filter(|arrow| arrow + 2 < pattern.len());
        let key = [&pattern[..star], element, &pattern[star + 1..arrow.unwrap_or(pattern.len())]].concat();
        Some(Named { key, field: arrow.map(|arrow| &pattern[arrow + 2..]) })
    }
}

fn bytes_of(content: Content) -> Result<Vec<u8>> {
    match content {
        Content::Shared(value) => Ok(value.to_vec()),
        Content::Owned(bytes) => Ok(bytes),
        Content::Long(mut long) => {
            let mut bytes = Vec::new();
            while long.next(MEMORY_BYTES_MAX, &mut bytes).map_err(sort_large::failed)? {}
            Ok(bytes)
        }
    }
}

/// The collection that is sorted.
enum Source {
    List(List),
    Set(Set),
    Zset(Zset),
}

/// How a row of a source holds its element.
type ElementOf = for<'r> fn(&'r [u8], &'r [u8]) -> Option<&'r [u8]>;

impl Source {
    fn of(key: &Key, entry: Entry) -> Result<Source> {
        match entry.header.type_of() {
            Type::List => Ok(Source::List(List::of(key, entry)?)),
            Type::Set => Ok(Source::Set(Set::of(key, entry)?)),
            Type::Zset => Ok(Source::Zset(Zset::of(key, entry)?)),
            Type::String | Type::Hash | Type::Stream => Err(Error::WrongType),
        }
    }

    fn count(&self) -> Result<u64> {
        match self {
            Source::List(list) => Ok(list.len()),
            Source::Set(set) => Ok(set.count()),
            Source::Zset(zset) => Ok(zset.cardinality()?),
        }
    }

    /// All elements in the order in which they lie, a sorted set's by score, or in the opposite one; sets have none.
    fn elements(&mut self, txn: &mut Txn, direction: Direction) -> Result<Vec<Box<[u8]>>> {
        let mut all = Vec::new();
        let mut visit = |element: &[u8]| {
            all.push(element.into());
            ControlFlow::Continue(())
        };
        match self {
            Source::List(list) => list.visit(txn, 0..list.len(), direction, visit)?,
            Source::Set(set) => set.visit(txn, visit)?,
            Source::Zset(zset) => zset.visit(txn, stretch(direction), |member, _| visit(member))?,
        }
        Ok(all)
    }

    /// A view of the elements' rows, to be read one by one; `None` if they are few enough to be in the meta row.
    fn view(&mut self, txn: &mut Txn, key: &Key, direction: Direction) -> Result<Option<(View, ElementOf)>> {
        Ok(match self {
            Source::List(list) => {
                list.view(txn, 0..list.len(), direction)?.map(|view| (view, (|_, value| Some(value)) as ElementOf))
            }
            Source::Set(set) => match set.rows() {
                Some(rows) => {
                    let (from, until) = rows.from_hash(0);
                    debug_assert_eq!(rows.space, key.space);
                    Some((txn.view(&from, &until, Direction::Forward)?, |row, _| element::of_row(row).map(|(_, e)| e)))
                }
                None => None,
            },
            Source::Zset(zset) => zset.view(txn, stretch(direction))?.map(|(view, _)| {
                (view, (|row, value| zset::element_of(row, value).map(|(member, _)| member)) as ElementOf)
            }),
        })
    }
}

fn stretch(direction: Direction) -> Stretch<'static> {
    Stretch { direction, ..Stretch::whole(zset::Range::Index { from: 0, until: u64::MAX }) }
}

/// The elements of a source, one by one.
enum Reading {
    Memory(std::vec::IntoIter<Box<[u8]>>),
    Rows(View, ElementOf),
    Sorted(Sorted),
}

impl Reading {
    fn of(txn: &mut Txn, key: &Key, mut source: Source, direction: Direction) -> Result<Reading> {
        if source.count()? > ROWS_INLINE_MAX as u64 {
            txn.long()?;
            if let Some((view, element_of)) = source.view(txn, key, direction)? {
                return Ok(Reading::Rows(view, element_of));
            }
        }
        Ok(Reading::Memory(source.elements(txn, direction)?.into_iter()))
    }

    fn next(&mut self) -> Result<Option<Box<[u8]>>> {
        match self {
            Reading::Memory(elements) => Ok(elements.next()),
            Reading::Sorted(sorted) => sorted.next(),
            Reading::Rows(view, element_of) => {
                let Some((row, value)) = view.next_row().map_err(sort_large::failed)? else { return Ok(None) };
                let element = element_of(&row, &value);
                element.map(|element| Some(element.into())).ok_or_else(|| sort_large::failed("a damaged row".into()))
            }
        }
    }
}

fn sort(txn: &mut Txn, args: Args) -> Result<Reply> {
    let call = Call::parse(txn, args, true)?;
    run(txn, call)
}

fn sort_ro(txn: &mut Txn, args: Args) -> Result<Reply> {
    let call = Call::parse(txn, args, false)?;
    run(txn, call)
}

fn run(txn: &mut Txn, mut call: Call) -> Result<Reply> {
    let mut outputs = Outputs::new();
    if let Some(entry) = key::lookup(txn, &call.key)? {
        let mut source = Source::of(&call.key, entry)?;
        if call.looks_elsewhere() {
            call.claim_keys(txn, &mut source)?;
        }
        if !call.sorts && (call.store.is_some() || txn.is_nested()) && matches!(source, Source::Set(_)) {
            // Neither a list nor what a script does may depend on how a set lies, as in Redis.
            (call.sorts, call.alpha) = (true, true);
        }
        let range = call.range(source.count()?);
        let unsorted = if call.descending && !call.sorts { Direction::Backward } else { Direction::Forward };
        let mut reading = Reading::of(txn, &call.key, source, unsorted)?;
        if call.sorts {
            let mut sorter = Sorter::new(call.descending);
            while let Some(element) = reading.next()? {
                let weight = call.weight(txn, &element)?;
                sorter.push(txn, &element, weight)?;
            }
            reading = Reading::Sorted(sorter.into_sorted(txn)?);
        }
        for at in 0..range.end {
            let Some(element) = reading.next()? else { break };
            if at >= range.start {
                call.output(txn, &element, |txn, value| outputs.push(txn, value))?;
            }
        }
    }
    match call.store {
        Some(to) => store(txn, &to, outputs),
        None => outputs.into_reply(txn),
    }
}

/// Makes a list of the outputs under `to`, or removes what is there if there are none; what is missing becomes empty.
fn store(txn: &mut Txn, to: &Key, outputs: Outputs) -> Result<Reply> {
    let count = outputs.count();
    let mut values = outputs.into_iter(txn)?;
    if count == 0 {
        if key::delete(txn, to)? {
            txn.on_event(event::GENERIC, "del", to);
        }
        statement::state_deletion(txn, to.name);
        return Ok(Reply::Integer(0));
    }
    let before = key::lookup_overwrite(txn, to)?;
    let mut maker = list::Maker::new();
    while let Some(value) = values.next().map_err(sort_large::failed)? {
        maker.add(txn, to, &value.unwrap_or_default())?;
    }
    maker.finish(txn, to, before.as_ref())?;
    txn.on_event(event::LIST, "sortstore", to);
    // Elements that sort alike lie in an order of their own.
    statement::state_value(txn, to)?;
    Ok(Reply::Integer(count as i64))
}
