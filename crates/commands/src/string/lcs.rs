//! LCS: what two strings have in common, in the same order.
//!
//! Owns the command and its algorithm. Of several longest common subsequences it finds the one that Redis finds.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::table::{Access, Arity, Body, Command, Find, Group, KeySpec, Keys, Mode, Use};
use haypile_resp::Reply;
use haypile_resp::pieces::PIECE_BYTES;
use haypile_store::Txn;
use haypile_types::string::{self as strings, Content};

pub(crate) const COMMANDS: &[Command] = &[LCS];

const LCS: Command = Command {
    name: "lcs",
    since: "7.0.0",
    group: Group::String,
    arity: Arity::at_least(3),
    keys: Keys::Many(&[KEYS]),
    summary: "Finds the longest common subsequence of two strings.",
    syntax: "key1:key key2:key [LEN] [IDX] [MINMATCHLEN len:integer] [WITHMATCHLEN]",
    complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
    access: Access::Read,
    body: Body::Txn(lcs),
    ..Command::USUAL
};

/// Two keys, as one range.
const KEYS: KeySpec =
    KeySpec { find: Find::Range { last: 1, step: 1, limit: 0 }, ..KeySpec::at(1).with(Mode::Ro, &[Use::Access]) };

/// Pairs of bytes that an event loop compares; more of them are compared on the I/O pool.
const PAIRS_AT_ONCE: u64 = 1 << 16;

/// Bytes that Redis needs for each pair; it has a bound for all of them.
const REDIS_BYTES_PER_PAIR: u64 = 4;

fn lcs(txn: &mut Txn, args: Args) -> Result<Reply> {
    let [a, b] = [1, 2].map(|i| read(txn, args, i));
    let (a, b) = (a?, b?);
    let options = Options::parse(args)?;
    let pairs = (a.len() as u64 + 1) * (b.len() as u64 + 1);
    if pairs.saturating_mul(REDIS_BYTES_PER_PAIR) > txn.value_bytes_max() {
        return Err(Error::text("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"));
    }
    if pairs > PAIRS_AT_ONCE {
        txn.long()?;
    }
    Ok(options.reply(&Common::of(&a, &b)))
}

/// The string that argument `i` names, whole.
fn read(txn: &mut Txn, args: Args, i: usize) -> Result<Vec<u8>> {
    let key = args.key(txn, i);
    match strings::get(txn, &key) {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(Content::Shared(value))) => Ok(value.to_vec()),
        Ok(Some(Content::Owned(bytes))) => Ok(bytes),
        Ok(Some(Content::Long(mut long))) => {
            txn.long()?;
            let mut bytes = Vec::with_capacity(long.remaining() as usize);
            while long.next(PIECE_BYTES, &mut bytes).map_err(Error::text)? {}
            Ok(bytes)
        }
        Err(haypile_types::Error::WrongType) => Err(Error::text("ERR The specified keys must contain string values")),
        Err(error) => Err(error.into()),
    }
}

#[derive(Default)]
struct Options {
    length: bool,
    matches: bool,
    match_bytes_min: u32,
    with_match_lengths: bool,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let mut options = Options::default();
        let mut i = 3;
        while i < args.len() {
            if args.is(i, "idx") {
                options.matches = true;
            } else if args.is(i, "len") {
                options.length = true;
            } else if args.is(i, "withmatchlen") {
                options.with_match_lengths = true;
            } else if args.is(i, "minmatchlen") && i + 1 < args.len() {
                i += 1;
                options.match_bytes_min = u32::try_from(args.int(i)?.max(0)).unwrap_or(u32::MAX);
            } else {
                return Err(Error::Syntax);
            }
            i += 1;
        }
        if options.matches && options.length {
            return Err(Error::text("ERR If you want both the length and indexes, please just use IDX."));
        }
        Ok(options)
    }

    fn reply(&self, common: &Common) -> Reply {
        if self.matches {
            let long = |found: &&Match| found.len >= self.match_bytes_min;
            let matches = common.matches().iter().filter(long).map(|found| self.match_reply(*found)).collect();
            return Reply::Map(vec![
                (Reply::bulk(&b"matches"[..]), Reply::Array(matches)),
                (Reply::bulk(&b"len"[..]), Reply::Integer(i64::from(common.length))),
            ]);
        }
        match self.length {
            true => Reply::Integer(i64::from(common.length)),
            false => Reply::bulk(common.bytes()),
        }
    }

    fn match_reply(&self, Match { a, b, len }: Match) -> Reply {
        let range = |from: u32| Reply::array([from, from + len - 1].map(|at| Reply::Integer(i64::from(at))));
        let mut reply = vec![range(a), range(b)];
        if self.with_match_lengths {
            reply.push(Reply::Integer(i64::from(len)));
        }
        Reply::Array(reply)
    }
}

/// The longest common subsequence of two strings.
struct Common<'s> {
    a: &'s [u8],
    b: &'s [u8],
    length: u32,
    /// For the first bytes of both, `i` and `j` of them, at `i * (b.len() + 1) + j`: whether more is common without the
    /// last of `a` than without the last of `b`.
    without_a: Vec<u64>,
}

/// Bytes that follow each other in both strings: where they begin, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Match {
    a: u32,
    b: u32,
    len: u32,
}

impl<'s> Common<'s> {
    /// Compares two strings by dynamic programming, with a bit for each pair of bytes.
    fn of(a: &'s [u8], b: &'s [u8]) -> Common<'s> {
        let width = b.len() + 1;
        let mut without_a = vec![0u64; ((a.len() + 1) * width).div_ceil(64)];
        // Lengths of what is common to the first bytes of `a`, one more with each row, and the first `j` of `b`.
        let (mut above, mut row) = (vec![0u32; width], vec![0u32; width]);
        for (i, byte) in a.iter().enumerate() {
            for j in 1..width {
                row[j] = if *byte == b[j - 1] {
                    above[j - 1] + 1
                } else {
                    let at = (i + 1) * width + j;
                    without_a[at / 64] |= u64::from(above[j] > row[j - 1]) << (at % 64);
                    above[j].max(row[j - 1])
                };
            }
            std::mem::swap(&mut above, &mut row);
        }
        Common { a, b, length: above[b.len()], without_a }
    }

    /// Pairs of positions of its bytes, from the last one to the first.
    fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        let (mut i, mut j) = (self.a.len(), self.b.len());
        std::iter::from_fn(move || {
            while i > 0 && j > 0 {
                if self.a[i - 1] == self.b[j - 1] {
                    (i, j) = (i - 1, j - 1);
                    return Some((i, j));
                }
                let at = i * (self.b.len() + 1) + j;
                if self.without_a[at / 64] >> (at % 64) & 1 == 1 { i -= 1 } else { j -= 1 }
            }
            None
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.positions().map(|(i, _)| self.a[i]).collect();
        bytes.reverse();
        bytes
    }

    /// The matches, from the last one to the first.
    fn matches(&self) -> Vec<Match> {
        let mut matches: Vec<Match> = Vec::new();
        for (i, j) in self.positions() {
            let (i, j) = (i as u32, j as u32);
            match matches.last_mut() {
                Some(last) if (last.a, last.b) == (i + 1, j + 1) => *last = Match { a: i, b: j, len: last.len + 1 },
                _ => matches.push(Match { a: i, b: j, len: 1 }),
            }
        }
        matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subsequence_and_its_matches_are_found() {
        let common = Common::of(b"ohmytext", b"mynewtext");
        assert_eq!((common.bytes().as_slice(), common.length), (&b"mytext"[..], 6));
        let expected = [Match { a: 4, b: 5, len: 4 }, Match { a: 2, b: 0, len: 2 }];
        assert_eq!(common.matches(), expected);
        for (a, b) in [(&b""[..], &b""[..]), (b"a", b""), (b"", b"a"), (b"abc", b"xyz")] {
            let common = Common::of(a, b);
            assert_eq!((common.bytes().len(), common.length, common.matches().len()), (0, 0, 0));
        }
    }
}
