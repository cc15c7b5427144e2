//! A record as JSON: what it has done to the data, in commands.
//!
//! The commands are the record's statements, which a Redis that follows would be sent, and the notes of what there was
//! before them (`commands::before`). A record that changes data and says nothing of it is told as such: a reader who
//! cannot go on by changes alone has to know.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haypile_commands::table::Databases;
use haypile_commands::{Args, Group, Table};
use haypile_config::glob;
use haypile_log::{Effect, Index, Kind, effects};
use haypile_resp::{Limits, OwnedArgs, Parser};
use haypile_store::{NOTE, UNSAID, is_stated};
use std::io::{self, Error, ErrorKind};

/// The changes that a reader wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub database: Option<u32>,
    /// Patterns of keys; none means all.
    pub patterns: Vec<Vec<u8>>,
    /// Each change comes with what there was before.
    pub before: bool,
}

/// A record, as far as its JSON is made of it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub index: Index,
    pub time_ms: u64,
    pub kind: Kind,
    pub body: &'a [u8],
}

/// Bytes of a record whose changes are told, at most: its JSON is twice as long, and longer only where it has very many
/// very short values.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Commands that are in the log for a Redis that follows, and change no data.
const NO_CHANGES: [&str; 4] = ["publish", "spublish", "ping", "replconf"];

impl Record<'_> {
    /// Returns the record as a JSON object; None if it has nothing that is wanted. One that is too long, and one that
    /// changes data and does not say how, is said to be there.
    ///
    /// # Errors
    /// The record is damaged.
    pub fn json(&self, table: &Table, wanted: &Wanted) -> io::Result<Option<Vec<u8>>> {
        if self.kind != Kind::Effects {
            return Ok(None);
        }
        let head = format!("{{\"index\":{},\"time_ms\":{}", self.index.0, self.time_ms);
        let unsaid = || Ok(Some(format!("{head},\"unsaid\":true}}").into_bytes()));
        if self.body.len() > RECORD_BYTES_MAX {
            return unsaid();
        }
        let (mut json, mut count) = (format!("{head},\"changes\":[").into_bytes(), 0);
        let (mut is_data, mut is_said, mut is_unsaid) = (false, false, false);
        let mut notes = Notes::default();
        for effect in effects(self.body) {
            match effect.map_err(|error| damaged(self.index, &error.to_string()))? {
                Effect::Statement { database: None, text } if text == UNSAID => is_unsaid = true,
                Effect::Statement { database, text: [NOTE, note @ ..] } => {
                    is_said = true;
                    notes = Notes { database, left: if wanted.before { calls(note, self.index)? } else { Vec::new() } };
                }
                Effect::Statement { database, text } => {
                    is_said = true;
                    for call in calls(text, self.index)? {
                        let change = Change { database, call: &call, notes: &mut notes };
                        if change.write(table, wanted, count > 0, &mut json) {
                            count += 1;
                        }
                    }
                }
                effect => is_data |= effect.key().is_some_and(is_stated),
            }
        }
        if is_unsaid || (is_data && !is_said) {
            return unsaid();
        }
        json.extend_from_slice(b"]}");
        Ok((count > 0).then_some(json))
    }
}

fn damaged(index: Index, why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("record {index}: {why}"))
}

/// Takes apart the arrays of a statement or a note.
fn calls(mut text: &[u8], index: Index) -> io::Result<Vec<OwnedArgs>> {
    let limits = Limits {
        bulk_bytes_max: u64::from(u32::MAX),
        multibulk_len_max: i32::MAX as u32,
        inline_bytes_max: 64 << 10,
        request_bytes_max: u32::MAX,
        authenticated: true,
    };
    let (mut calls, mut ranges) = (Vec::new(), Vec::new());
    while !text.is_empty() {
        if text[0] != b'*' {
            return Err(damaged(index, "a statement is no command"));
        }
        let mut parser = Parser::new(limits);
        let request = parser.next(text, &mut ranges).map_err(|_| damaged(index, "a statement is no command"))?;
        let request = request.ok_or_else(|| damaged(index, "a statement is cut off"))?;
        let mut call = OwnedArgs::default();
        request.args(text, &ranges).iter().for_each(|word| call.push(word));
        text = &text[request.bytes()..];
        calls.push(call);
    }
    Ok(calls)
}

/// The notes of what there was before a command. A command of which nothing was noted, because the record has notes
/// enough, comes behind the notes of an earlier one.
#[derive(Default)]
struct Notes {
    /// The database of the keys.
    database: Option<u32>,
    /// Invariant: no change of the record since the note has changed one of these keys.
    left: Vec<OwnedArgs>,
}

impl Notes {
    /// Takes out the notes of the keys that a change has. One that names no keys, or goes beyond its database, may have
    /// changed any.
    fn take(&mut self, database: Option<u32>, keys: &[&[u8]], is_across: bool) -> Vec<OwnedArgs> {
        let mut taken = Vec::new();
        if database == self.database {
            for key in keys {
                let at = self.left.iter().position(|note| note.as_args().opt(0) == Some(key));
                taken.extend(at.map(|at| self.left.remove(at)));
            }
        }
        if keys.is_empty() || is_across {
            self.left.clear();
        }
        taken
    }
}

/// One change of a record.
struct Change<'a> {
    database: Option<u32>,
    call: &'a OwnedArgs,
    notes: &'a mut Notes,
}

impl Change<'_> {
    /// Adds the change to an array that has some already or not; returns whether it is one, and wanted.
    fn write(self, table: &Table, wanted: &Wanted, is_next: bool, out: &mut Vec<u8>) -> bool {
        let args = Args::from(self.call.as_args());
        let Some(name) = args.opt(0).map(<[u8]>::to_ascii_lowercase) else { return false };
        if NO_CHANGES.iter().any(|known| known.as_bytes() == name) {
            return false;
        }
        let entry = table.lookup(args);
        let keys: Vec<&[u8]> =
            entry.iter().flat_map(|entry| entry.command.keys(args)).map(|(at, _)| args.get(at)).collect();
        // A command that may be about two databases is told whichever of them is wanted.
        let is_across = entry.is_some_and(|entry| entry.command.databases != Databases::Selected);
        let database = self.database.filter(|_| !is_across);
        // A change that is not wanted has changed its keys, too.
        let before = self.notes.take(self.database, &keys, is_across);
        if !is_wanted(wanted, database, &keys) {
            return false;
        }
        if is_next {
            out.push(b',');
        }
        out.extend_from_slice(b"{");
        if let Some(database) = self.database {
            out.extend_from_slice(format!("\"db\":{database},").as_bytes());
        }
        out.extend_from_slice(b"\"op\":");
        string(&name, out);
        out.extend_from_slice(b",\"type\":");
        match entry.and_then(|entry| type_of(entry.command.group)) {
            Some(name) => string(name.as_bytes(), out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"keys\":");
        strings(keys.iter().copied(), out);
        out.extend_from_slice(b",\"args\":");
        strings(args.iter_from(1), out);
        write_before(&before, out);
        out.push(b'}');
        true
    }
}

/// Adds what was noted of the keys of a change, if something was.
fn write_before(notes: &[OwnedArgs], out: &mut Vec<u8>) {
    for (at, note) in notes.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b",\"before\":[" } else { b"," });
        write_note(note, out);
    }
    if !notes.is_empty() {
        out.push(b']');
    }
}

/// Writes what there was of a key: `commands::before` says what a note has.
fn write_note(note: &OwnedArgs, out: &mut Vec<u8>) {
    let note = Args::from(note.as_args());
    let word = |at: usize| String::from_utf8_lossy(note.opt(at).unwrap_or_default()).into_owned();
    out.extend_from_slice(b"{\"key\":");
    string(note.opt(0).unwrap_or_default(), out);
    let kind = word(1);
    out.extend_from_slice(b",\"type\":");
    string(kind.as_bytes(), out);
    let length = word(3);
    if !length.is_empty() {
        out.extend_from_slice(format!(",\"length\":{length}").as_bytes());
    }
    let extent = word(2);
    if extent == "whole" || extent == "part" {
        if extent == "part" {
            out.extend_from_slice(b",\"part\":true");
        }
        let elements = note.iter_from(4);
        match kind.as_str() {
            "string" => {
                out.extend_from_slice(b",\"value\":");
                string(note.opt(4).unwrap_or_default(), out);
            }
            "hash" | "zset" => {
                out.extend_from_slice(if kind == "hash" { b",\"fields\":" } else { b",\"scores\":" });
                pairs(elements, out);
            }
            _ => {
                out.extend_from_slice(b",\"elements\":");
                strings(elements, out);
            }
        }
    }
    out.push(b'}');
}

/// A change of another database is none that was asked for; one of no database is.
fn is_wanted(wanted: &Wanted, database: Option<u32>, keys: &[&[u8]]) -> bool {
    let is_there = wanted.database.is_none() || database.is_none() || wanted.database == database || keys.is_empty();
    let matches = |key: &&[u8]| wanted.patterns.iter().any(|pattern| glob::matches(pattern, key, false));
    is_there && (wanted.patterns.is_empty() || keys.is_empty() || keys.iter().any(matches))
}

/// Returns the type of value that the commands of a group are for.
fn type_of(group: Group) -> Option<&'static str> {
    match group {
        Group::String | Group::Bitmap | Group::Hyperloglog => Some("string"),
        Group::Hash => Some("hash"),
        Group::List => Some("list"),
        Group::Set => Some("set"),
        Group::SortedSet | Group::Geo => Some("zset"),
        Group::Stream => Some("stream"),
        _ => None,
    }
}

/// Writes bytes: as a string if they are UTF-8 and take no more than twice their length so, else as
/// `{"base64":"..."}`. A long value of control characters would take six times its length.
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes).ok().filter(|text| escaped_bytes(text) <= 2 * text.len()) {
        Some(text) => serde_json::to_writer(out, text).expect("a vector takes everything"),
        None => {
            out.extend_from_slice(b"{\"base64\":\"");
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.extend_from_slice(b"\"}");
        }
    }
}

/// Returns the bytes that a text takes in JSON, without its quotes.
fn escaped_bytes(text: &str) -> usize {
    let of = |byte: u8| match byte {
        b'"' | b'\\' | b'\x08' | b'\t' | b'\n' | b'\x0c' | b'\r' => 2,
        0..=0x1f => br"\u0000".len(),
        _ => 1,
    };
    text.bytes().map(of).sum()
}

fn strings<'w>(words: impl Iterator<Item = &'w [u8]>, out: &mut Vec<u8>) {
    out.push(b'[');
    words.enumerate().for_each(|(at, word)| {
        if at > 0 {
            out.push(b',');
        }
        string(word, out);
    });
    out.push(b']');
}

fn pairs<'w>(mut words: impl Iterator<Item = &'w [u8]>, out: &mut Vec<u8>) {
    out.push(b'[');
    let mut is_next = false;
    while let (Some(one), Some(other)) = (words.next(), words.next()) {
        if std::mem::replace(&mut is_next, true) {
            out.push(b',');
        }
        strings([one, other].into_iter(), out);
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::Body;
    use haypile_store::row::{Key, Slot, Space, data_row, meta_row};

    fn meta(name: &[u8]) -> Vec<u8> {
        meta_row(&Key { space: Space(0), slot: Slot(1), hash: 2, name }).to_vec()
    }

    fn told(body: &Body, wanted: &Wanted) -> Option<String> {
        let record = Record { index: Index(7), time_ms: 9, kind: Kind::Effects, body: body.bytes() };
        record.json(&Table::new(), wanted).unwrap().map(|json| String::from_utf8(json).unwrap())
    }

    fn state(body: &mut Body, database: Option<u32>, words: &[&[u8]]) {
        body.statement(database, &[&haypile_commands::statement::encode(words)]);
    }

    #[test]
    fn a_record_has_its_commands() {
        let mut body = Body::new();
        body.put(&[&meta(b"k")], &[b"v"]);
        state(&mut body, Some(0), &[b"SET", b"k", b"\xff"]);
        state(&mut body, Some(3), &[b"zadd", b"z", b"1", b"a\"b"]);
        state(&mut body, None, &[b"PING"]);
        let expected = concat!(
            r#"{"index":7,"time_ms":9,"changes":["#,
            r#"{"db":0,"op":"set","type":"string","keys":["k"],"args":["k",{"base64":"/w=="}]},"#,
            r#"{"db":3,"op":"zadd","type":"zset","keys":["z"],"args":["z","1","a\"b"]}]}"#,
        );
        assert_eq!(told(&body, &Wanted::default()).as_deref(), Some(expected));
        let wanted = |database, pattern: &[u8]| Wanted { database, patterns: vec![pattern.to_vec()], before: false };
        assert!(told(&body, &wanted(Some(3), b"*")).unwrap().contains(r#""changes":[{"db":3"#));
        assert!(told(&body, &wanted(None, b"k*")).unwrap().ends_with(r#""args":["k",{"base64":"/w=="}]}]}"#));
        assert_eq!(told(&body, &wanted(Some(0), b"z")), None);
    }

    #[test]
    fn a_record_without_words_says_so() {
        let mut body = Body::new();
        body.put(&[&data_row(Space(0), Slot(1), haypile_store::ObjectId(5), b"e")], &[b"v"]);
        assert_eq!(told(&body, &Wanted::default()), None, "an element ahead of its commit");
        body.touch(&meta(b"k"));
        let unsaid = r#"{"index":7,"time_ms":9,"unsaid":true}"#;
        assert_eq!(told(&body, &Wanted::default()).as_deref(), Some(unsaid));
        body.statement(Some(0), &[&[NOTE]]);
        assert_eq!(told(&body, &Wanted::default()), None, "there is nothing to say");
        body.statement(None, &[UNSAID]);
        assert_eq!(told(&body, &Wanted::default()).as_deref(), Some(unsaid));
    }

    #[test]
    fn a_change_has_what_there_was_before_it() {
        let encode = haypile_commands::statement::encode;
        let mut body = Body::new();
        let note = [
            vec![NOTE],
            encode(&[b"h", b"hash", b"part", b"500", b"f", b"old"]),
            encode(&[b"s", b"string", b"whole", b"2", b"ab"]),
            encode(&[b"n", b"none"]),
        ];
        body.statement(Some(0), &[&note.concat()]);
        state(&mut body, Some(0), &[b"HSET", b"h", b"f", b"v"]);
        state(&mut body, Some(0), &[b"DEL", b"n", b"s"]);
        state(&mut body, Some(0), &[b"DEL", b"h"]);
        let told = told(&body, &Wanted { before: true, ..Wanted::default() }).unwrap();
        let hash = r#""before":[{"key":"h","type":"hash","length":500,"part":true,"fields":[["f","old"]]}]}"#;
        let both = r#""before":[{"key":"n","type":"none"},{"key":"s","type":"string","length":2,"value":"ab"}]}"#;
        assert!(told.contains(hash) && told.contains(both), "{told}");
        assert!(told.ends_with(r#""args":["h"]}]}"#), "it was noted before the first change: {told}");
    }

    #[test]
    fn a_change_without_a_note_has_none_of_an_earlier_command() {
        let encode = haypile_commands::statement::encode;
        let note = |body: &mut Body, database, key: &[u8]| {
            let words = encode(&[key, b"string", b"whole", b"3", b"old"]);
            body.statement(Some(database), &[&[NOTE], words.as_slice()]);
        };
        let wanted = Wanted { before: true, ..Wanted::default() };
        // The last change of each record comes behind the notes' bound.
        let check = |what: &str, wanted: &Wanted, changes: &[(u32, &[&[u8]])], expected: bool| {
            let mut body = Body::new();
            note(&mut body, 0, b"k");
            changes.iter().for_each(|(database, words)| state(&mut body, Some(*database), words));
            let told = told(&body, wanted).expect("the last one is wanted");
            assert_eq!(told.contains("before"), expected, "{what}: {told}");
        };
        check("its own", &wanted, &[(0, &[b"SET", b"k", b"v"])], true);
        check("another key first", &wanted, &[(0, &[b"SET", b"x", b"v"]), (0, &[b"SET", b"k", b"v"])], true);
        check("another database's key", &wanted, &[(3, &[b"SET", b"k", b"v"])], false);
        check("all keys were removed", &wanted, &[(0, &[b"FLUSHALL"]), (0, &[b"SET", b"k", b"v"])], false);
        let moved: &[&[u8]] = &[b"SWAPDB", b"0", b"1"];
        check("the databases were exchanged", &wanted, &[(0, moved), (0, &[b"SET", b"k", b"v"])], false);
        let some = Wanted { patterns: vec![b"x*".to_vec()], ..wanted.clone() };
        let both: &[&[u8]] = &[b"MSET", b"k", b"v", b"x", b"v"];
        check("one that is not wanted has changed it", &some, &[(0, &[b"DEL", b"k"]), (0, both)], false);
    }

    #[test]
    fn long_values_take_no_more_than_twice_their_bytes() {
        let json = |bytes: &[u8]| {
            let mut out = Vec::new();
            string(bytes, &mut out);
            out
        };
        for (bytes, expected) in [
            (&b""[..], &br#""""#[..]),
            (b"\n\t\"\\", br#""\n\t\"\\""#),
            (b"\x01", br#"{"base64":"AQ=="}"#),
            (b"long enough\x01", br#""long enough\u0001""#),
            ("\u{e9}\x7f".as_bytes(), "\"\u{e9}\x7f\"".as_bytes()),
        ] {
            assert_eq!(json(bytes), expected, "{}", bytes.escape_ascii());
        }
        let long = vec![0; 1 << 20];
        assert!(json(&long).len() < 2 * long.len());
        // The count is that of the JSON.
        for byte in 0..=0x7f_u8 {
            let text = format!("{}{}", "a".repeat(10), char::from(byte));
            assert_eq!(escaped_bytes(&text) + 2, json(text.as_bytes()).len(), "{byte}");
        }
    }

    #[test]
    fn damaged_statements_are_errors() {
        for text in [&b"*1\r\n$3\r\nSE"[..], b"*1\r\n+x\r\n", b"hello\r\n"] {
            let mut body = Body::new();
            body.statement(Some(0), &[text]);
            let record = Record { index: Index(7), time_ms: 9, kind: Kind::Effects, body: body.bytes() };
            assert!(record.json(&Table::new(), &Wanted::default()).is_err(), "{}", text.escape_ascii());
        }
    }
}
