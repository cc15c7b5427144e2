//! The arguments of a call, as a handler reads them.
//!
//! Owns how an argument becomes a number, an option word or a key. Never looks at the store: a key is only named here.
//! The texts of what can go wrong are in `error.rs`; the bytes themselves belong to `haypile-resp`.

use crate::error::{Error, Result, as_text};
use haypile_resp::{self as resp, number};
use haypile_store::{Key, Txn};

/// All arguments of a call, the command's name first (and its subcommand's second).
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    args: resp::Args<'a>,
    /// The keys that were located already to be locked, by argument, in rising order.
    keys: &'a [(usize, Key<'a>)],
}

impl<'a> From<resp::Args<'a>> for Args<'a> {
    fn from(args: resp::Args<'a>) -> Self {
        Self { args, keys: &[] }
    }
}

impl<'a> Args<'a> {
    /// Arguments with the keys that the engine has located (slot and hash computed) to lock them, in rising order of
    /// their argument.
    pub fn with_keys(args: resp::Args<'a>, keys: &'a [(usize, Key<'a>)]) -> Self {
        Self { args, keys }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// Argument `i`; it is there because the table's arity was checked, or because `i < len()`.
    #[inline]
    pub fn get(&self, i: usize) -> &'a [u8] {
        self.args.get(i)
    }

    /// Argument `i`, if there is one.
    #[inline]
    pub fn opt(&self, i: usize) -> Option<&'a [u8]> {
        self.args.opt(i)
    }

    /// The call that begins at argument `i`, as COMMAND GETKEYS is given one.
    pub fn tail(&self, i: usize) -> Args<'a> {
        Args { args: self.args.from(i), keys: &[] }
    }

    /// The arguments from `i` on.
    #[inline]
    pub fn iter_from(
        &self,
        i: usize,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        self.args.from(i).iter()
    }

    /// Whether argument `i` is this word, in any case.
    #[inline]
    pub fn is(&self, i: usize, word: &str) -> bool {
        self.opt(i).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Argument `i` as a signed 64-bit integer.
    #[inline]
    pub fn int(&self, i: usize) -> Result<i64> {
        number::parse_i64(self.get(i)).ok_or(Error::NotInteger)
    }

    /// Argument `i` as the number of a database; `None` if there is no such one.
    pub fn database(&self, txn: &Txn, i: usize) -> Result<Option<u32>> {
        let number = i32::try_from(self.int(i)?).map_err(|_| Error::NotInt)?;
        Ok(u32::try_from(number).ok().filter(|number| *number < txn.databases()))
    }

    /// The key that argument `i` names, in the selected database.
    #[inline]
    pub fn key(&self, txn: &Txn, i: usize) -> Key<'a> {
        match self.keys {
            // One key is by far the most frequent case.
            [(at, key)] if *at == i => *key,
            keys => match keys.binary_search_by_key(&i, |(at, _)| *at) {
                Ok(found) => keys[found].1,
                Err(_) => txn.key(self.get(i)),
            },
        }
    }

    /// The error of a subcommand that alone knows how many arguments it takes, or which.
    pub fn wrong_subcommand(&self) -> Error {
        let word = as_text(self.get(1));
        let shown = &word[..word.len().min(128)];
        let after = format!("'. Try {} HELP.", String::from_utf8_lossy(self.get(0)).to_uppercase());
        Error::quoting("ERR unknown subcommand or wrong number of arguments for '", shown, &after)
    }
}
