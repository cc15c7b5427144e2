//! Statements: the commands that another server is told, a Redis that follows this one. They have there the effect that
//! a command has had here, whenever they run: no time from now on, no random choice, no option that is younger than
//! Redis 7.0, nothing that waits.
//!
//! As a rule that is the command itself, and nobody has to do anything for it. A handler whose command is not repeated
//! so says instead what it has done ([`state`]), or that a Redis has no words for it ([`state_nothing`]). Keys and
//! fields that a command has found expired are deleted by a statement before its own, because a Redis that follows acts
//! on no deadline by itself. Whether anybody listens is the store's to know (`Store::begin_to_state`); until somebody
//! does, all of this is one look at a flag.

use crate::args::Args;
use crate::before;
use crate::error::Result;
use crate::lookup::Entry;
use crate::transfer;
use haypile_resp::write;
use haypile_store::{Before, Key, NOTE, STATEMENTS_BYTES_MAX, Txn, Unstated};
use haypile_types::key;
use smallvec::SmallVec;

/// The beginning of a command, where it is stated.
pub struct Stating {
    before: Before,
    /// The note of what there was before the command.
    note: Option<Vec<u8>>,
}

/// Begins a command's part of the transaction, if it is to be stated.
///
/// # Errors
/// The note of what there is before it is wanted, and that cannot be read.
#[inline]
pub fn begin(txn: &mut Txn<'_>, entry: &Entry, args: Args<'_>) -> Result<Option<Stating>> {
    let note = match txn.notes_before() && entry.command.access.writes() {
        true => before::note(txn, entry, args)?,
        false => None,
    };
    Ok(if txn.states() { Some(Stating { before: txn.begin_statement(), note }) } else { None })
}

/// Begins a part of the transaction that no command asked for, if it is to be stated. Nothing is noted of what there
/// was before.
#[inline]
pub fn begin_unasked(txn: &mut Txn<'_>) -> Option<Stating> {
    if txn.states() { Some(Stating { before: txn.begin_statement(), note: None }) } else { None }
}

/// States what a command has done, in its own words if it has not found others.
#[inline]
pub fn end(txn: &mut Txn<'_>, stating: Option<Stating>, database: u32, entry: &Entry, args: Args<'_>) {
    if let Some(stating) = stating {
        state_command(txn, &stating.before, database, entry, args);
        end_stating(txn, stating, database);
    }
}

/// States what a command that may have waited has done: it has found words itself, because nothing that waits is said.
#[inline]
pub fn end_waiting(txn: &mut Txn<'_>, stating: Option<Stating>) {
    if let Some(stating) = stating {
        let database = txn.database();
        end_stating(txn, stating, database);
    }
}

/// Adds what comes before the words of the command, and the note that it has none.
#[cold]
fn end_stating(txn: &mut Txn<'_>, stating: Stating, database: u32) {
    let Stating { before, note } = stating;
    if txn.lacks_words(&before) {
        txn.state_in(database, 1, |text| text.push(NOTE));
    }
    if let Some(note) = note.filter(|note| txn.has_stated(&before) && txn.may_state(note.len())) {
        txn.state_before(&before, |txn| txn.state_in(database, note.len(), |text| text.extend_from_slice(&note)));
    }
    if txn.has_unstated() {
        state_expired(txn, &before);
    }
}

#[cold]
fn state_command(txn: &mut Txn<'_>, before: &Before, database: u32, entry: &Entry, args: Args<'_>) {
    if txn.lacks_statement(before) && is_known_to_old(entry.command.since) {
        // By the name of the table: this server may call it otherwise.
        let (name, word) =
            entry.full_name.split_once('|').map_or((&*entry.full_name, None), |(of, word)| (of, Some(word)));
        let own = std::iter::once(name).chain(word).map(str::as_bytes);
        let words: SmallVec<[&[u8]; 8]> = own.chain(args.iter_from(1 + usize::from(word.is_some()))).collect();
        state_words(txn, database, words.iter().copied());
    }
}

/// Whether Redis 7.0 knows a command that came with this version. A younger one that has found no other words has done
/// nothing but to remove what had expired.
fn is_known_to_old(since: &str) -> bool {
    let mut numbers = since.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) <= (7, 0)
}

/// States a command of these words.
fn state_words<'w>(txn: &mut Txn<'_>, database: u32, words: impl ExactSizeIterator<Item = &'w [u8]> + Clone) {
    let of_words: usize = words.clone().map(|word| write::bulk_bytes(word.len())).sum();
    txn.state_in(database, write::length_bytes(words.len()) + of_words, |text| {
        write::array_len(text, words.len());
        words.for_each(|word| write::bulk(text, word));
    });
}

/// States that the keys and fields that were found expired are gone, before what the command says itself.
fn state_expired(txn: &mut Txn<'_>, before: &Before) {
    let expired = txn.take_unstated(before);
    if expired.is_empty() {
        return;
    }
    txn.state_before(before, |txn| {
        for Unstated { database, name, field } in &expired {
            match field {
                None => state_in(txn, *database, &[b"DEL", name]),
                Some(field) => state_in(txn, *database, &[b"HDEL", name, field]),
            }
        }
    });
}

/// States a command instead of the one that runs, if somebody listens.
#[inline]
pub(crate) fn state(txn: &mut Txn<'_>, words: &[&[u8]]) {
    if txn.states() {
        state_in(txn, txn.database(), words);
    }
}

#[cold]
fn state_in(txn: &mut Txn<'_>, database: u32, words: &[&[u8]]) {
    state_words(txn, database, words.iter().copied());
}

/// Returns a command as it is sent.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    write::array_len(&mut text, words.len());
    words.iter().for_each(|word| write::bulk(&mut text, word));
    text
}

/// States nothing of the command that runs: a Redis has no words for what it does.
#[inline]
pub(crate) fn state_nothing(txn: &mut Txn<'_>) {
    if txn.states() {
        txn.state_nothing();
    }
}

/// States that a key has gone.
#[inline]
pub fn state_deletion(txn: &mut Txn<'_>, name: &[u8]) {
    state(txn, &[b"DEL", name]);
}

/// States the deadline of a key, or that it has none any more.
#[inline]
pub(crate) fn state_deadline(txn: &mut Txn<'_>, name: &[u8], deadline_ms: Option<u64>) {
    if !txn.states() {
        return;
    }
    match deadline_ms {
        Some(ms) => state(txn, &[b"PEXPIREAT", name, &digits(ms)]),
        None => state(txn, &[b"PERSIST", name]),
    }
}

/// Returns the digits of a number in a statement.
pub(crate) fn digits(number: u64) -> SmallVec<[u8; 24]> {
    let (mut digits, mut rest) = (SmallVec::new(), number);
    loop {
        digits.push(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            digits.reverse();
            return digits;
        }
    }
}

/// States a whole value, whatever the command that runs has done to it.
pub(crate) fn state_value(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<()> {
    if !txn.states() {
        return Ok(());
    }
    let Some(entry) = key::peek(txn, key)? else {
        state_deletion(txn, key.name);
        return Ok(());
    };
    let deadline = digits(entry.header.deadline_ms.unwrap_or(0));
    match transfer::payload_for_old(txn, key, entry, STATEMENTS_BYTES_MAX)? {
        Some(payload) => state(txn, &[b"RESTORE", key.name, &deadline, &payload, b"REPLACE", b"ABSTTL"]),
        None => txn.state_too_much(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        for number in [0, 7, 10, 1_795_804_869_797, u64::MAX] {
            assert_eq!(&digits(number)[..], number.to_string().as_bytes());
        }
    }

    #[test]
    fn commands_are_known_up_to_seven_nought() {
        assert!(["1.0.0", "2.6.12", "6.2.0", "7.0.0", "7.0.15"].into_iter().all(is_known_to_old));
        assert!(!["7.2.0", "7.4.0", "8.0.0", "8.10.0", "10.0.0"].into_iter().any(is_known_to_old));
    }
}
