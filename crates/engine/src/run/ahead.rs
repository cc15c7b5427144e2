//! The requests that a connection sends in one go, parsed and located before the first of them runs, so that what they
//! need comes from memory together (`Store::prefetch`). Nothing is decided here: a request may still change what the
//! ones behind it mean, and those that do not run after all are parsed again.

use haypile_commands::{Args, ElementArgs, Entry, Error, Table};
use haypile_resp::{self as resp, Parser, ProtocolError, Request};
use haypile_store::{Key, Sought, Store, TOGETHER_MAX};
use haypile_types::ahead::{Guess, Wanted};
use smallvec::SmallVec;
use std::ops::Range;

/// Requests that are parsed before the first of them runs. Most clients that pipeline send no more at once.
const REQUESTS_MAX: usize = 16;

/// The room for a request of more arguments than this is given back.
const RANGES_KEPT: usize = 1024;

/// Requests of one connection, in order. Reused from turn to turn.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The first `count` are requests; the others keep their room for ranges.
    requests: Vec<Parsed>,
    count: usize,
    /// Whether a request has so many arguments that their room is to be given back.
    is_long: bool,
}

/// A request that was parsed.
struct Parsed {
    /// The end of the request, where the next one begins, from the start of the first one.
    end: usize,
    request: Request,
    ranges: Vec<Range<u32>>,
}

/// The state of the input behind the requests that were parsed.
pub(crate) enum Behind {
    /// Perhaps more: the bound was reached.
    Unknown,
    /// Nothing, or a part of a request.
    Incomplete,
    Wrong(ProtocolError),
}

/// The requests with their entries of the table and their keys, in order.
pub(crate) struct Located<'a> {
    /// `None` for an empty request.
    pub calls: SmallVec<[Option<Call<'a>>; REQUESTS_MAX]>,
    pub keys: SmallVec<[Key<'a>; TOGETHER_MAX]>,
}

/// A request that is to be run.
pub(crate) struct Call<'a> {
    pub args: resp::Args<'a>,
    pub entry: Result<&'a Entry, Error>,
    /// The request's own keys among the located ones, in order; there may be fewer than the request has.
    pub keys: Range<usize>,
}

impl Ahead {
    /// Parses what `input` begins with: one request, or, if `many`, as many as are looked up together.
    #[inline]
    pub fn parse(&mut self, parser: &mut Parser, input: &[u8], many: bool) -> Behind {
        self.count = 0;
        let (mut end, mut args) = (0, 0);
        while self.count < if many { REQUESTS_MAX } else { 1 } && args < TOGETHER_MAX {
            if self.count == self.requests.len() {
                let request = Request::Empty { bytes: 0 };
                self.requests.push(Parsed { end: 0, request, ranges: Vec::new() });
            }
            let next = &mut self.requests[self.count];
            let parsed = parser.next(&input[end..], &mut next.ranges);
            self.is_long |= next.ranges.capacity() > RANGES_KEPT;
            match parsed {
                Ok(Some(request)) => {
                    // From here on they are relative to the first request.
                    let start = end as u32;
                    if start > 0 {
                        next.ranges.iter_mut().for_each(|range| *range = range.start + start..range.end + start);
                    }
                    end += request.bytes();
                    args += next.ranges.len();
                    (next.end, next.request) = (end, request);
                    self.count += 1;
                }
                Ok(None) => return Behind::Incomplete,
                Err(error) => return Behind::Wrong(error),
            }
        }
        Behind::Unknown
    }

    /// Gives back the room for the arguments of long requests: they have run, or wait with copies of their own.
    #[inline]
    pub fn give_back(&mut self) {
        if std::mem::take(&mut self.is_long) {
            let is_long = |next: &&mut Parsed| next.ranges.capacity() > RANGES_KEPT;
            self.requests.iter_mut().filter(is_long).for_each(|next| next.ranges = Vec::new());
        }
    }

    /// Returns the end of request `at`, where the next one begins.
    #[inline]
    pub fn end(&self, at: usize) -> usize {
        self.requests[at].end
    }
}

impl<'a> Located<'a> {
    /// Looks the requests up in the table, and has their keys fetched from memory where there are several.
    #[inline]
    pub fn new(
        ahead: &'a Ahead,
        input: &'a [u8],
        table: &'a Table,
        store: Option<&Store>,
        database: u32,
    ) -> Located<'a> {
        let mut located = Located { calls: SmallVec::new(), keys: SmallVec::new() };
        let mut writes = false;
        for parsed in &ahead.requests[..ahead.count] {
            let args = parsed.request.args(input, &parsed.ranges);
            if args.is_empty() {
                located.calls.push(None);
                continue;
            }
            let entry = table.resolve(Args::from(args));
            let from = located.keys.len();
            if let (Ok(entry), Some(store)) = (&entry, store) {
                let room = TOGETHER_MAX - from;
                let keys = entry.command.keys(Args::from(args)).take(room);
                located.keys.extend(keys.map(|(at, _)| store.key(database, args.get(at))));
                writes |= entry.command.access.writes();
            }
            located.calls.push(Some(Call { args, entry, keys: from..located.keys.len() }));
        }
        if let Some(store) = store
            && located.keys.len() > 1
        {
            store.prefetch(&located.keys, writes);
            located.prefetch_elements(store);
        }
        located
    }

    /// The keys are near: now the elements of those commands that ask for one.
    #[inline]
    fn prefetch_elements(&self, store: &Store) {
        let mut sought: SmallVec<[Sought; REQUESTS_MAX]> = SmallVec::new();
        // The collection of the command before is often this one's, too.
        let mut last: Option<(&Key<'_>, Option<Guess>)> = None;
        for call in self.calls.iter().flatten() {
            let Some((key, elements)) = self.elements(call) else { continue };
            let wanted = match elements {
                ElementArgs::Names { first, step } if call.args.len() <= first + step => {
                    call.args.from(first).iter().next().map(Wanted::Named)
                }
                ElementArgs::Names { .. } => None,
                ElementArgs::Index(at) => Args::from(call.args).int(at).ok().map(Wanted::Index),
            };
            let Some(wanted) = wanted else { continue };
            if last.is_none_or(|(other, _)| other != key) {
                last = Some((key, Guess::of(store, key)));
            }
            sought.extend(last.and_then(|(_, guess)| guess?.sought(store, wanted)));
        }
        if sought.len() > 1 {
            store.prefetch_elements(&sought);
        }
    }

    /// Prefetches the elements of a command that names several, before it runs.
    #[inline]
    pub fn prefetch_elements_of(&self, store: &Store, call: &Call<'a>) {
        if let Some((key, ElementArgs::Names { first, step })) = self.elements(call)
            && call.args.len() > first + step
            && let Some(guess) = Guess::of(store, key)
        {
            let names = call.args.from(first).iter().step_by(step).take(TOGETHER_MAX);
            let sought = names.filter_map(|name| guess.sought(store, Wanted::Named(name)));
            store.prefetch_elements(&sought.collect::<SmallVec<[Sought; TOGETHER_MAX]>>());
        }
    }

    /// The key of a command on a collection, and which elements it asks for.
    #[inline]
    fn elements(&self, call: &Call<'a>) -> Option<(&Key<'a>, ElementArgs)> {
        let elements = call.entry.as_ref().ok()?.command.elements?;
        Some((self.keys[call.keys.clone()].first()?, elements))
    }
}
