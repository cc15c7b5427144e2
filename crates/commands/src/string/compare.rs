//! Comparisons of a string with a value or with its digest: DIGEST, DELEX, and the conditions of SET (Redis 8.4).
//!
//! The digest of a value is its 64 bits of XXH3, as 16 hexadecimal digits.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keyspec::Mode;
use crate::statement;
use crate::table::{Access, Arity, Body, Command, Flag, Group, Keys, Use};
use haypile_resp::Reply;
use haypile_resp::pieces::PIECE_BYTES;
use haypile_store::{Key, Txn};
use haypile_types::event;
use haypile_types::key::{self, Entry};
use haypile_types::string::{self, Content};
use xxhash_rust::xxh3::Xxh3;

pub(crate) const COMMANDS: &[Command] = &[DIGEST, DELEX];

const DIGEST: Command = Command {
    name: "digest",
    since: "8.4.0",
    group: Group::String,
    arity: Arity::exactly(2),
    keys: Keys::first(1),
    summary: "Returns the digest of a string: its XXH3 of 64 bits, in hexadecimal digits.",
    syntax: "key",
    complexity: "O(N) where N is the length of the string value.",
    access: Access::Read,
    body: Body::Txn(digest),
    flags: &[Flag::Fast],
    ..Command::USUAL
};

fn digest(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    Ok(match string::get(txn, &key)? {
        Some(content) => Reply::bulk(digest_of(content)?.into_bytes()),
        None => Reply::Null,
    })
}

const DELEX: Command = Command {
    name: "delex",
    since: "8.4.0",
    group: Group::String,
    arity: Arity::at_least(2),
    keys: Keys::first(1).rw(&[Use::Delete, Use::VariableFlags]),
    summary: "Deletes a key, if its string compares so with a value or a digest.",
    syntax: "key [condition=(IFEQ ifeq-value | IFNE ifne-value | IFDEQ ifdeq-digest | IFDNE ifdne-digest)]",
    complexity: "O(1) for IFEQ and IFNE, O(N) for IFDEQ and IFDNE where N is the length of the string value.",
    access: Access::Write,
    body: Body::Txn(delex),
    flags: &[Flag::Fast],
    uses: Some(uses_of_delex),
    ..Command::USUAL
};

/// The effect of a DELEX on its key, which is read only for a condition.
fn uses_of_delex(args: Args) -> (Mode, &'static [Use]) {
    if args.len() > 2 { (Mode::Rw, &[Use::Access, Use::Delete]) } else { (Mode::Rm, &[Use::Delete]) }
}

fn delex(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    if args.len() != 2 && args.len() != 4 {
        return Err(Error::WrongArity("delex".into()));
    }
    let Some(entry) = key::lookup_update(txn, &key)? else { return Ok(Reply::Integer(0)) };
    let header = entry.header;
    if args.len() == 4 {
        if string::check_type(&entry).is_err() {
            return Err(Error::text("ERR Key should be of string type if conditions are specified"));
        }
        let condition =
            Comparison::parse(args, 2).ok_or(Error::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
        if !condition.holds(txn, args, &key, entry)? {
            return Ok(Reply::Integer(0));
        }
    }
    key::remove(txn, &key, &header)?;
    txn.on_event(event::GENERIC, "del", &key);
    statement::state_deletion(txn, key.name);
    Ok(Reply::Integer(1))
}

/// A comparison of a string with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// The argument is a digest.
    pub with_digest: bool,
    /// The strings have to differ.
    pub differs: bool,
    /// The argument.
    pub at: usize,
}

impl Comparison {
    /// Returns the comparison that the word at an argument asks for; what it compares with is the next one.
    pub fn parse(args: Args, at: usize) -> Option<Comparison> {
        let words = [("IFEQ", false, false), ("IFNE", false, true), ("IFDEQ", true, false), ("IFDNE", true, true)];
        let (_, with_digest, differs) = words.into_iter().find(|(word, ..)| args.is(at, word))?;
        Some(Comparison { with_digest, differs, at: at + 1 })
    }

    /// Returns whether the same word asks for both comparisons.
    pub fn is_like(self, other: Comparison) -> bool {
        (self.with_digest, self.differs) == (other.with_digest, other.differs)
    }

    /// Returns whether the comparison holds for the string of a key that was looked up.
    ///
    /// # Errors
    /// The key holds no string, or the argument is not as long as a digest.
    pub fn holds(self, txn: &mut Txn, args: Args, key: &Key, entry: Entry) -> Result<bool> {
        string::check_type(&entry)?;
        let other = args.get(self.at);
        if self.with_digest && other.len() != DIGEST_CHARACTERS {
            return Err(Error::text("ERR must be exactly 16 hexadecimal characters"));
        }
        let is_equal = if self.with_digest {
            digest_of(string::content(txn, key, entry)?)?.as_bytes().eq_ignore_ascii_case(other)
        } else {
            string::length_of(key, &entry)? == other.len() as u64 && is_equal(string::content(txn, key, entry)?, other)?
        };
        Ok(is_equal != self.differs)
    }
}

const DIGEST_CHARACTERS: usize = 16;

fn digest_of(content: Content) -> Result<String> {
    let mut hash = Xxh3::new();
    each_piece(content, |piece| {
        hash.update(piece);
        true
    })?;
    Ok(format!("{:016x}", hash.digest()))
}

/// Whether a string equals bytes that are as long.
fn is_equal(content: Content, mut bytes: &[u8]) -> Result<bool> {
    let mut is_equal = true;
    each_piece(content, |piece| {
        let (expected, rest) = bytes.split_at(piece.len().min(bytes.len()));
        bytes = rest;
        is_equal = expected == piece;
        is_equal
    })?;
    Ok(is_equal)
}

/// Gives a string to `each` in pieces, until it returns false.
fn each_piece(content: Content, mut each: impl FnMut(&[u8]) -> bool) -> Result<()> {
    match content {
        Content::Shared(value) => _ = each(&value),
        Content::Owned(bytes) => _ = each(&bytes),
        Content::Long(mut long) => {
            let mut piece = Vec::new();
            loop {
                piece.clear();
                let more = long.next(PIECE_BYTES, &mut piece).map_err(Error::text)?;
                if !each(&piece) || !more {
                    break;
                }
            }
        }
    }
    Ok(())
}
