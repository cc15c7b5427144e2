//! `Scored`: members with scores, encoded while they are collected, without an allocation for each.

use crate::{Protocol, write};

/// Members with scores: an array of pairs, or of both in turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scored {
    /// Bulk strings.
    members: Vec<u8>,
    /// The end of each member, and its score.
    scores: Vec<(usize, f64)>,
    nesting: Nesting,
}

/// Whether each member has an array of its own, with its score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nesting {
    /// Members have arrays of their own in RESP3 only.
    #[default]
    Resp3,
    Never,
    Always,
}

impl Nesting {
    pub fn nests(self, protocol: Protocol) -> bool {
        match self {
            Nesting::Resp3 => protocol == Protocol::Resp3,
            Nesting::Never => false,
            Nesting::Always => true,
        }
    }
}

impl Scored {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn nesting(mut self, nesting: Nesting) -> Self {
        self.nesting = nesting;
        self
    }

    #[inline]
    pub fn push(&mut self, member: &[u8], score: f64) {
        write::bulk(&mut self.members, member);
        self.scores.push((self.members.len(), score));
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// Returns the bytes of the encoded reply, about.
    pub fn bytes(&self) -> usize {
        const SCORE_BYTES: usize = 16;
        self.members.len() + self.scores.len() * SCORE_BYTES
    }

    pub(crate) fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        out.reserve(self.bytes());
        let nests = self.nesting.nests(protocol);
        write::array_len(out, self.scores.len() * if nests { 1 } else { 2 });
        let mut from = 0;
        for &(end, score) in &self.scores {
            if nests {
                write::array_len(out, 2);
            }
            out.extend_from_slice(&self.members[from..end]);
            write::double(protocol, out, score);
            from = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;

    #[test]
    fn pairs_nest_where_they_are_asked_to() {
        let pairs = [("a", 1.5), ("", f64::INFINITY)];
        let scored = pairs.iter().fold(Scored::new(), |mut scored, (member, score)| {
            scored.push(member.as_bytes(), *score);
            scored
        });
        let both = |(member, score): (&'static str, f64)| [Reply::bulk(member), Reply::Double(score)];
        let flat = Reply::array(pairs.into_iter().flat_map(both));
        let nested = Reply::array(pairs.into_iter().map(|pair| Reply::array(both(pair))));
        let check = |scored: &Scored, protocol, expected: &Reply| {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            scored.encode(protocol, &mut ours);
            expected.encode(protocol, &mut theirs);
            assert_eq!(ours, theirs);
        };
        check(&scored, Protocol::Resp2, &flat);
        check(&scored, Protocol::Resp3, &nested);
        check(&scored.clone().nesting(Nesting::Always), Protocol::Resp2, &nested);
        check(&scored.nesting(Nesting::Never), Protocol::Resp3, &flat);
    }
}
