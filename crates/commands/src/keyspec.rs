//! Where a command's keys are among its arguments, and what it does to them.
//!
//! Owns Redis's key specs and the walk over the keys of a call, which key locks, cluster slots and COMMAND GETKEYS
//! share. Never looks at what a key holds. Entries of the table state their specs (`table/mod.rs`).

use crate::args::Args;
use haypile_resp::number;

/// The places of a command's keys among its arguments, and what the command does to them.
#[derive(Clone, Copy)]
pub enum Keys {
    None,
    One(KeySpec),
    Many(&'static [KeySpec]),
    /// Shard channels: they decide about the cluster's slot as keys do, but are none.
    Channels(KeySpec),
}

impl Keys {
    pub const NONE: Self = Self::None;

    /// One key, at this argument; read unless one of `ro`, `rw`, `ow`, `rm` says otherwise.
    pub const fn first(index: u16) -> Self {
        Self::One(KeySpec::at(index))
    }

    /// Every `step`-th argument from `first` to the last one is a key.
    pub const fn all_from(first: u16, step: u16) -> Self {
        let mut spec = KeySpec::at(first);
        spec.find = Find::Range { last: -1, step, limit: 0 };
        Self::One(spec)
    }

    /// Shard channels from argument 1 to the last one, or the first of them only.
    pub const fn channels(all: bool) -> Self {
        let mut spec = KeySpec::at(1).with(Mode::None, &[Use::NotKey]);
        spec.find = Find::Range { last: if all { -1 } else { 0 }, step: 1, limit: 0 };
        Self::Channels(spec)
    }

    /// Makes the keys read-only; `uses` is empty where the value's content does not leave the server.
    pub const fn ro(self, uses: &'static [Use]) -> Self {
        self.with(Mode::Ro, uses)
    }

    /// Makes the keys read and written.
    pub const fn rw(self, uses: &'static [Use]) -> Self {
        self.with(Mode::Rw, uses)
    }

    /// Makes the keys overwritten, without a look at their old values.
    pub const fn ow(self, uses: &'static [Use]) -> Self {
        self.with(Mode::Ow, uses)
    }

    /// Makes the keys removed.
    pub const fn rm(self, uses: &'static [Use]) -> Self {
        self.with(Mode::Rm, uses)
    }

    /// A remark on the one key spec, shown by COMMAND INFO.
    pub const fn noting(self, notes: &'static str) -> Self {
        match self {
            Self::One(mut spec) => {
                spec.notes = notes;
                Self::One(spec)
            }
            _ => panic!("only a single key spec can be noted this way"),
        }
    }

    /// The argument of the only key, if every call has exactly one and in the same place.
    pub const fn always_one(&self) -> Option<u16> {
        match self {
            Self::One(KeySpec { begin: Begin::Index(at), find: Find::Range { last: 0, .. }, .. }) => Some(*at),
            _ => None,
        }
    }

    const fn with(self, mode: Mode, uses: &'static [Use]) -> Self {
        match self {
            Self::One(spec) => Self::One(spec.with(mode, uses)),
            _ => panic!("only a single key spec can be changed this way"),
        }
    }

    /// All specs, as COMMAND INFO shows them.
    pub const fn specs(&self) -> &[KeySpec] {
        match self {
            Self::Channels(spec) => std::slice::from_ref(spec),
            _ => self.of_keys(),
        }
    }

    /// The specs of keys, channels left out.
    #[inline]
    pub const fn of_keys(&self) -> &[KeySpec] {
        match self {
            Self::None | Self::Channels(_) => &[],
            Self::One(spec) => std::slice::from_ref(spec),
            Self::Many(specs) => specs,
        }
    }
}

/// One run of keys among the arguments.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    pub mode: Mode,
    pub uses: &'static [Use],
    pub begin: Begin,
    pub find: Find,
    pub notes: &'static str,
}

impl KeySpec {
    /// Returns the spec of one key at this argument, which is read.
    pub const fn at(index: u16) -> Self {
        Self {
            mode: Mode::Ro,
            uses: &[Use::Access],
            begin: Begin::Index(index),
            find: Find::Range { last: 0, step: 1, limit: 0 },
            notes: "",
        }
    }

    pub const fn with(mut self, mode: Mode, uses: &'static [Use]) -> Self {
        self.mode = mode;
        self.uses = uses;
        self
    }

    /// The beginning that COMMAND INFO shows.
    pub const fn shown_begin(&self) -> Begin {
        match self.begin {
            Begin::Nearly(shown, _) => *shown,
            begin => begin,
        }
    }

    /// Whether the command may change the key, so that it locks the key exclusively.
    #[inline]
    pub const fn writes(&self) -> bool {
        !matches!(self.mode, Mode::Ro | Mode::None)
    }

    /// Whether the command does nothing with the key but to remove it.
    pub const fn removes(&self) -> bool {
        matches!(self.mode, Mode::Rm)
    }

    /// Whether the key's old value does not matter.
    pub const fn overwrites(&self) -> bool {
        matches!(self.mode, Mode::Ow)
    }

    /// The positions of its keys in these arguments: first, end (exclusive) and step. Never beyond the arguments.
    #[inline]
    fn positions(&self, args: Args) -> (usize, usize, usize) {
        match (self.begin, self.find) {
            // One key at a fixed place is what nearly every call has.
            (Begin::Index(at), Find::Range { last: 0, .. }) => (at as usize, (at as usize + 1).min(args.len()), 1),
            _ => self.search(args),
        }
    }

    /// Returns whether these arguments claim a number of keys that is none, or more than there are. Every command
    /// refuses that.
    pub(crate) fn claims_wrongly(&self, args: Args) -> bool {
        let (Find::KeyNum { count_at, first, step }, Some(start)) = (self.find, self.start(args)) else { return false };
        let room = args.len().saturating_sub(start + usize::from(first)).div_ceil(step as usize);
        claimed(args, start + usize::from(count_at)).is_none_or(|claimed| claimed > room)
    }

    /// Returns whether these arguments say that there are no keys.
    pub(crate) fn claims_none(&self, args: Args) -> bool {
        let (Find::KeyNum { count_at, .. }, Some(start)) = (self.find, self.start(args)) else { return false };
        claimed(args, start + usize::from(count_at)) == Some(0)
    }

    /// The argument at which its keys begin, or their number stands.
    fn start(&self, args: Args) -> Option<usize> {
        let count = args.len();
        match self.begin {
            Begin::Index(index) => Some(index as usize),
            Begin::Unknown(hidden) | Begin::Nearly(_, hidden) => hidden.find(args),
            Begin::Keyword { word, from } => {
                let found = if from >= 0 {
                    (from as usize..count).find(|&i| args.is(i, word))
                } else {
                    let last = count.saturating_sub(from.unsigned_abs() as usize);
                    (1..=last).rev().find(|&i| args.is(i, word))
                };
                found.map(|at| at + 1)
            }
        }
    }

    fn search(&self, args: Args) -> (usize, usize, usize) {
        const NOTHING: (usize, usize, usize) = (0, 0, 1);
        let count = args.len();
        let Some(start) = self.start(args) else { return NOTHING };
        match self.find {
            Find::Range { last, step, limit } => {
                let last = match (last, limit) {
                    (0.., _) => start + last as usize,
                    (_, 0 | 1) => count.saturating_sub(last.unsigned_abs() as usize),
                    (_, limit) => {
                        let share = count.saturating_sub(start) / limit as usize;
                        (start + share).saturating_sub(last.unsigned_abs() as usize)
                    }
                };
                (start, (last + 1).min(count), step as usize)
            }
            Find::KeyNum { count_at, first, step } => {
                let Some(claimed) = claimed(args, start + usize::from(count_at)) else { return NOTHING };
                let from = start + usize::from(first);
                (from, from.saturating_add(claimed.saturating_mul(step as usize)).min(count), step as usize)
            }
        }
    }
}

/// Returns the number of keys that an argument claims. One that is no integer, which the command will refuse, claims as
/// many as it begins with, as in Redis: a user who may not have these keys is told so first.
fn claimed(args: Args, at: usize) -> Option<usize> {
    let argument = args.opt(at)?;
    match number::parse_i64(argument) {
        Some(claimed) => usize::try_from(claimed).ok(),
        None => begun_number(argument).filter(|claimed| *claimed > 0),
    }
}

/// Returns the number with which a text begins, behind spaces and a plus.
fn begun_number(text: &[u8]) -> Option<usize> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

/// The effect of a command on a key as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Ro,
    Rw,
    Ow,
    Rm,
    /// No mode: the argument is no key.
    None,
}

impl Mode {
    /// The name in COMMAND INFO; empty for no key.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ro => "RO",
            Self::Rw => "RW",
            Self::Ow => "OW",
            Self::Rm => "RM",
            Self::None => "",
        }
    }
}

/// The effects of a command on a key's content, in the order in which COMMAND INFO lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Access,
    Update,
    Insert,
    Delete,
    /// Looks like a key, but is none.
    NotKey,
    /// The spec does not find all of the keys.
    Incomplete,
    /// The other flags depend on the arguments.
    VariableFlags,
}

impl Use {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Delete => "delete",
            Self::NotKey => "not_key",
            Self::Incomplete => "incomplete",
            Self::VariableFlags => "variable_flags",
        }
    }
}

/// The place where a run of keys begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The run begins at this argument.
    Index(u16),
    /// The run begins after this word, searched from an argument on; from the end backwards if `from` is negative.
    Keyword { word: &'static str, from: i16 },
    /// The command alone finds the begin; COMMAND INFO shows it as unknown.
    Unknown(Hidden),
    /// The command finds the begin; COMMAND INFO shows a rule that is nearly right.
    Nearly(&'static Begin, Hidden),
}

/// A key that no rule finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// The key's name is not among the arguments.
    Elsewhere,
    /// The argument behind the last STORE of SORT, which may be the value of another option.
    StoreOfSort,
    /// The third argument of MIGRATE, unless KEYS is there.
    KeyOfMigrate,
    /// The arguments behind KEYS of MIGRATE, if the third argument is empty.
    KeysOfMigrate,
    /// The argument behind the last STORE or STOREDIST of GEORADIUS and its relative, whose options begin at `from`, if
    /// it is this word that came last.
    StoreOfGeo { word: &'static str, from: u16 },
    /// The arguments behind STREAMS of XREADGROUP: a group or a consumer may have that name, too.
    StreamsOfGroup,
}

impl Hidden {
    fn find(self, args: Args) -> Option<usize> {
        match self {
            Hidden::Elsewhere => None,
            Hidden::StoreOfSort => Self::store_of_sort(args),
            Hidden::KeyOfMigrate => match Self::keys_of_migrate(args) {
                Some(at) if at < args.len() => None,
                _ => Some(3),
            },
            Hidden::KeysOfMigrate => Self::keys_of_migrate(args).filter(|_| args.get(3).is_empty()),
            Hidden::StoreOfGeo { word, from } => Self::store_of_geo(args, word, from.into()),
            Hidden::StreamsOfGroup => Self::streams_of_group(args),
        }
    }

    fn keys_of_migrate(args: Args) -> Option<usize> {
        let mut i = 6;
        while i < args.len() {
            if args.is(i, "keys") {
                return Some(i + 1);
            }
            i += if args.is(i, "auth") {
                2
            } else if args.is(i, "auth2") {
                3
            } else {
                1
            };
        }
        None
    }

    fn store_of_geo(args: Args, word: &str, from: usize) -> Option<usize> {
        let (mut i, mut last) = (from, None);
        while i + 1 < args.len() {
            let stores = args.is(i, "store") || args.is(i, "storedist");
            if stores {
                last = Some(i);
            }
            i += 1 + usize::from(stores);
        }
        last.filter(|&at| args.is(at, word)).map(|at| at + 1)
    }

    fn streams_of_group(args: Args) -> Option<usize> {
        let has_number =
            |i: usize| ["count", "block", "claim", "maxcount", "maxsize"].iter().any(|word| args.is(i, word));
        let mut i = 1;
        while i < args.len() && !args.is(i, "streams") {
            i += if args.is(i, "group") {
                3
            } else if has_number(i) && i + 1 < args.len() && !args.is(i + 1, "streams") {
                2
            } else {
                1
            };
        }
        (i < args.len()).then_some(i + 1)
    }

    fn store_of_sort(args: Args) -> Option<usize> {
        let (mut i, mut found) = (2, None);
        while i < args.len() {
            if args.is(i, "limit") {
                i += 2;
            } else if args.is(i, "get") || args.is(i, "by") {
                i += 1;
            } else if args.is(i, "store") && i + 1 < args.len() {
                found = Some(i + 1);
                i += 1;
            }
            i += 1;
        }
        found
    }
}

/// How far a run of keys reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// The run reaches to an argument counted from the begin, or from the end if negative; a `limit` above 1 says that
    /// only that part of the remaining arguments are keys.
    Range { last: i16, step: u16, limit: u16 },
    /// One argument says how many follow. Both positions count from the begin.
    KeyNum { count_at: u16, first: u16, step: u16 },
}

/// The keys of one call, in the order of their specs. Allocates nothing.
#[derive(Clone)]
pub struct KeyPositions<'a> {
    /// The specs that have not ended; the first one is under way while `next < end`.
    specs: &'a [KeySpec],
    args: Args<'a>,
    next: usize,
    end: usize,
    step: usize,
}

impl<'a> KeyPositions<'a> {
    #[inline]
    pub(crate) fn new(specs: &'a [KeySpec], args: Args<'a>) -> Self {
        Self { specs, args, next: 0, end: 0, step: 1 }
    }
}

impl<'a> Iterator for KeyPositions<'a> {
    type Item = (usize, &'a KeySpec);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (spec, rest) = self.specs.split_first()?;
            if self.end == 0 {
                (self.next, self.end, self.step) = spec.positions(self.args);
            }
            if self.next < self.end {
                let at = self.next;
                self.next += self.step;
                return Some((at, spec));
            }
            self.specs = rest;
            self.end = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_resp::OwnedArgs;

    #[track_caller]
    fn check(specs: &[KeySpec], call: &str, expected: &[usize]) {
        let mut args = OwnedArgs::default();
        call.split(' ').for_each(|word| args.push(word.as_bytes()));
        let found: Vec<usize> = KeyPositions::new(specs, args.as_args().into()).map(|(at, _)| at).collect();
        assert_eq!(found, expected, "{call}");
    }

    fn spec(begin: Begin, find: Find) -> [KeySpec; 1] {
        [KeySpec { begin, find, ..KeySpec::at(0) }]
    }

    #[test]
    fn ranges_end_at_the_arguments() {
        check(Keys::first(1).specs(), "get k", &[1]);
        check(Keys::first(2).specs(), "object encoding k", &[2]);
        check(Keys::first(1).specs(), "get", &[]);
        check(Keys::all_from(1, 1).specs(), "del a b c", &[1, 2, 3]);
        check(Keys::all_from(1, 2).specs(), "mset a 1 b 2", &[1, 3]);
        check(Keys::all_from(1, 2).specs(), "mset a 1 b", &[1, 3]);
        check(Keys::all_from(1, 1).specs(), "del", &[]);
        check(&[KeySpec::at(1), KeySpec::at(2)], "rename a b", &[1, 2]);
        let of_group = spec(
            Begin::Nearly(&Begin::Keyword { word: "STREAMS", from: 4 }, Hidden::StreamsOfGroup),
            Find::Range { last: -1, step: 1, limit: 2 },
        );
        check(&of_group, "xreadgroup group streams streams count 1 streams a b 0 0", &[7, 8]);
        // No number: Redis takes it for the word, too.
        check(&of_group, "xreadgroup group g c count streams a 0", &[6]);
        let but_last = spec(Begin::Index(1), Find::Range { last: -2, step: 1, limit: 0 });
        check(&but_last, "blpop a b 0", &[1, 2]);
        check(&but_last, "blpop", &[]);
    }

    #[test]
    fn a_limit_says_which_share_are_keys() {
        let half = spec(Begin::Keyword { word: "STREAMS", from: 1 }, Find::Range { last: -1, step: 1, limit: 2 });
        check(&half, "xread count 1 streams a b 0 0", &[4, 5]);
        check(&half, "xread streams a 0", &[2]);
        check(&half, "xread streams", &[]);
        check(&half, "xread count 1", &[]);
    }

    #[test]
    fn a_keyword_is_searched_from_either_end() {
        let find = Find::Range { last: 0, step: 1, limit: 0 };
        check(&spec(Begin::Keyword { word: "KEYS", from: 1 }, find), "x keys a keys b", &[2]);
        check(&spec(Begin::Keyword { word: "KEYS", from: -2 }, find), "x keys a keys b", &[4]);
        check(&spec(Begin::Keyword { word: "KEYS", from: -2 }, find), "x a keys", &[]);
    }

    #[test]
    fn a_claimed_number_of_keys_is_bounded_by_the_arguments() {
        let counted = spec(Begin::Index(2), Find::KeyNum { count_at: 0, first: 1, step: 1 });
        check(&counted, "eval script 2 a b arg", &[3, 4]);
        check(&counted, "eval script 0 arg", &[]);
        check(&counted, "eval script 9223372036854775807 a b", &[3, 4]);
        for none in ["eval script -1 a", "eval script x a", "eval script"] {
            check(&counted, none, &[]);
        }
    }
}
