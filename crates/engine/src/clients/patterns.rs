//! The patterns that somebody is subscribed to, in buckets by how they begin or end, so that a message is matched
//! against few of them: those whose first or last bytes are the channel's, and those that begin and end with something
//! special.
//!
//! A bucket that somebody matches against keeps its patterns while others change, so that nothing is locked meanwhile:
//! the change is made to a copy of the one chunk that it is in, and to a copy of the list of chunks.

use crate::clients::parts::PartedMap;
use crate::clients::pubsub::{ByName, Name};
use haypile_config::glob;
use smallvec::SmallVec;
use std::sync::Arc;

/// The bytes of a literal that count: patterns with the same long beginning share a bucket.
const BYTES_MAX: usize = 16;

/// Up to how many patterns, and for a channel of how many bytes, a message is matched without counting.
const QUICK_PATTERNS: usize = 16;
const QUICK_CHANNEL_BYTES: usize = 256;

/// Which bucket a pattern is in: the first bytes of all channels that it matches, or else the last ones, or neither.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Place {
    Start(SmallVec<[u8; BYTES_MAX]>),
    End(SmallVec<[u8; BYTES_MAX]>),
    Anywhere,
}

impl Place {
    fn of(pattern: &[u8]) -> Place {
        let start = glob::literal_start(pattern);
        if !start.is_empty() {
            return Place::Start(first(start, BYTES_MAX).into());
        }
        match glob::literal_end(pattern) {
            Some(end) if !end.is_empty() => Place::End(last(end, BYTES_MAX).into()),
            _ => Place::Anywhere,
        }
    }
}

fn first(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[..count.min(bytes.len())]
}

fn last(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[bytes.len() - count.min(bytes.len())..]
}

/// Patterns of a chunk. A step that ends some hundred patterns beside a match copies as many chunks, and the list of
/// them once: with this, both take about as long for the most patterns that a client may have.
const CHUNK: usize = 32;

/// The patterns of a place, in chunks.
///
/// Invariant: all chunks but the last are full, and none is empty.
#[derive(Clone, Default)]
struct Bucket {
    chunks: Arc<SmallVec<[Arc<Vec<Name>>; 1]>>,
}

impl Bucket {
    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &Name> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Adds a pattern behind all others; returns its index.
    fn push(&mut self, pattern: Name) -> usize {
        let at = self.len();
        let chunks = Arc::make_mut(&mut self.chunks);
        match chunks.get_mut(at / CHUNK) {
            Some(chunk) => Arc::make_mut(chunk).push(pattern),
            // Most buckets have one pattern, and no room to spare.
            None => chunks.push(Arc::new(vec![pattern])),
        }
        at
    }

    /// Removes the pattern with this index, whose place the last one takes; returns that one, if it is another.
    fn swap_remove(&mut self, at: usize) -> Option<&Name> {
        let chunks = Arc::make_mut(&mut self.chunks);
        let last = Arc::make_mut(chunks.last_mut()?);
        let moved = last.pop()?;
        if last.is_empty() {
            chunks.pop();
        }
        let place = Arc::make_mut(chunks.get_mut(at / CHUNK)?).get_mut(at % CHUNK)?;
        *place = moved;
        Some(place)
    }
}

/// All patterns.
#[derive(Default)]
pub(crate) struct Patterns {
    buckets: PartedMap<Place, Bucket>,
    /// Each pattern's index in its bucket.
    places: ByName<u32>,
}

impl Patterns {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a pattern, which is not there yet.
    pub fn add(&mut self, pattern: &Name) {
        debug_assert!(!self.places.contains_key(pattern), "each is added once");
        let at = self.buckets.or_default(Place::of(pattern)).push(pattern.clone());
        *self.places.or_default(pattern.clone()) = at as u32;
    }

    /// Removes a pattern.
    pub fn remove(&mut self, pattern: &[u8]) {
        let Some(at) = self.places.remove(pattern) else { return };
        let place = Place::of(pattern);
        let Some(bucket) = self.buckets.get_mut(&place) else { return };
        if let Some(moved) = bucket.swap_remove(at as usize)
            && let Some(place) = self.places.get_mut(moved)
        {
            *place = at;
        }
        if bucket.is_empty() {
            self.buckets.remove(&place);
        }
    }

    /// Returns the patterns that a channel may match.
    pub fn candidates(&self, channel: &[u8]) -> Candidates {
        let lengths = 1..=BYTES_MAX.min(channel.len());
        let starts = lengths.clone().map(|count| Place::Start(first(channel, count).into()));
        let ends = lengths.map(|count| Place::End(last(channel, count).into()));
        // The empty channel is matched by the empty pattern, and by no other.
        let places = starts.chain(ends).chain([Place::Anywhere]);
        Candidates(places.filter_map(|place| self.buckets.get(&place).cloned()).collect())
    }
}

/// Patterns that a channel may match.
pub(crate) struct Candidates(SmallVec<[Bucket; 4]>);

impl Candidates {
    /// Returns whether the candidates are so few, and the channel so short, that the matcher's steps need not be
    /// counted.
    pub fn are_quick(&self, channel: &[u8]) -> bool {
        channel.len() <= QUICK_CHANNEL_BYTES && self.0.iter().map(Bucket::len).sum::<usize>() <= QUICK_PATTERNS
    }

    /// Returns the candidates that the channel does match; `None` if that takes more than `steps` of the matcher.
    pub fn matching(&self, channel: &[u8], mut steps: u64) -> Option<Vec<Name>> {
        self.matching_within(channel, &mut steps)
    }

    /// Returns what `matching` does, and subtracts the steps taken from `steps`.
    pub fn matching_within(&self, channel: &[u8], steps: &mut u64) -> Option<Vec<Name>> {
        let mut found = Vec::new();
        for pattern in self.0.iter().flat_map(Bucket::iter) {
            // To look at it is one, too.
            *steps = steps.checked_sub(1)?;
            if glob::matches_within(pattern, channel, false, steps)? {
                found.push(pattern.clone());
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.as_bytes().into()
    }

    #[test]
    fn few_patterns_are_looked_at() {
        let mut patterns = Patterns::default();
        for number in 0..10_000 {
            patterns.add(&name(&format!("news.{number}.*")));
            patterns.add(&name(&format!("*.{number}")));
            patterns.add(&name(&format!("*a*b*c{number}*{number}")));
        }
        patterns.add(&name("[n]ews*"));
        let matching = patterns.candidates(b"news.77.x").matching(b"news.77.x", 1000).expect("few steps");
        assert_eq!(matching, [name("news.77.*"), name("[n]ews*")]);
        let matching = patterns.candidates(b"other.9876").matching(b"other.9876", 1000).expect("few steps");
        assert_eq!(matching, [name("*.9876")]);
        let long = b"abc".repeat(7000);
        assert_eq!(patterns.candidates(&long).matching(&long, 1000).expect("none ends so"), []);
    }

    /// Random patterns and channels, with patterns that come and go: those that match are found, as by matching all.
    #[test]
    fn what_matches_is_found() {
        let mut state = 7u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(0x2545_f491_4f6c_dd1d);
            (state >> 33) as usize % n
        };
        let (mut patterns, mut all) = (Patterns::default(), Vec::<Name>::new());
        let mut found = 0;
        for round in 0..20_000 {
            let bytes: Vec<u8> = (0..below(6)).map(|_| b"ab*?[]\\"[below(7)]).collect();
            let pattern: Name = bytes.into();
            match all.iter().position(|known| *known == pattern) {
                Some(at) => {
                    all.swap_remove(at);
                    patterns.remove(&pattern);
                }
                None if all.len() < 300 => {
                    all.push(pattern.clone());
                    patterns.add(&pattern);
                }
                None => {
                    let gone = all.swap_remove(below(300));
                    patterns.remove(&gone);
                }
            }
            let channel: Vec<u8> = (0..below(5)).map(|_| b"ab]"[below(3)]).collect();
            let mut expected: Vec<Name> =
                all.iter().filter(|pattern| glob::matches(pattern, &channel, false)).cloned().collect();
            let mut matching = patterns.candidates(&channel).matching(&channel, u64::MAX).expect("steps without end");
            expected.sort();
            matching.sort();
            found += matching.len();
            assert_eq!(matching, expected, "round {round}, the channel {}", channel.escape_ascii());
        }
        assert!(found > 100_000, "{found} matches");
        all.iter().for_each(|pattern| patterns.remove(pattern));
        assert!(patterns.is_empty() && patterns.buckets.is_empty());
    }

    /// However many patterns a bucket has, a change beside a match copies one chunk of them.
    #[test]
    fn a_change_beside_a_match_copies_few_patterns() {
        let names: Vec<Name> = (0..10 * CHUNK).map(|number| name(&format!("*{number}*"))).collect();
        let mut patterns = Patterns::default();
        names.iter().for_each(|name| patterns.add(name));
        let before: Vec<usize> = names.iter().map(Arc::strong_count).collect();
        let candidates = patterns.candidates(b"x");
        let copied =
            |names: &[Name]| names.iter().zip(&before).filter(|(name, n)| Arc::strong_count(name) > **n).count();
        patterns.remove(&names[0]);
        patterns.add(&name("*added*"));
        assert!(copied(&names) <= 2 * CHUNK, "{} of {} were copied", copied(&names), names.len());
        assert_eq!(candidates.0[0].len(), names.len(), "the match goes on with all");
        drop(candidates);
        names[1..].iter().for_each(|name| patterns.remove(name));
        assert_eq!(patterns.candidates(b"x").0[0].len(), 1);
    }

    #[test]
    fn a_match_goes_on_while_patterns_change() {
        let mut patterns = Patterns::default();
        patterns.add(&name("a*"));
        let candidates = patterns.candidates(b"ab");
        patterns.add(&name("a?"));
        patterns.remove(b"a*");
        assert_eq!(candidates.matching(b"ab", 100), Some(vec![name("a*")]), "as it was when it began");
        assert_eq!(patterns.candidates(b"ab").matching(b"ab", 100), Some(vec![name("a?")]));
    }
}
