//! Runs files of cases: what a client sends, and what it gets. Knows the notation and how a command is run as the
//! server runs it (inline, or loaded and run again); which store lies below is the caller's affair.
//!
//! ```text
//! == the rule that the case shows
//! SET k "x"*20000+"y" PX 100 → OK
//! +101ms
//! MGET k l → [nil, "v"]
//! ```
//!
//! A line is a command, an arrow and a reply; `+101ms` lets time pass. Words in double quotes take `\xhh`, `\r`, `\n`,
//! `\t`, `\"` and `\\`, may be repeated by `*` and joined by `+`. A reply is a status or an integer as it is, `nil`, a
//! quoted bulk string, `error` and its text, a list in brackets (a map as in RESP2), a list in any order with `~`
//! before it, or `one of` a list. Every case begins with empty databases and database 0.

#![allow(dead_code)] // Each test file uses its own part.

use haypile_commands::{Args, Body, Error, Table, Tried};
use haypile_resp::decode::Decoder;
use haypile_resp::{OwnedArgs, Pieces, Protocol, Reply};
use haypile_store::{Call, Mode, Pins, Refusal, Stop, Store, Txn, TxnBuffers};

/// Runs all cases of a file. `settle` is called after each command, to move the rows to where the next one shall find
/// them.
pub fn run(file: &str, text: &str, store: &Store, settle: &dyn Fn()) {
    let mut client = Client::new(store);
    let mut case = "";
    for (number, line) in text.lines().enumerate() {
        if let Some(rule) = line.strip_prefix("== ") {
            case = rule;
            client.database = 0;
            client.call(&["FLUSHALL".into()]);
        } else if let Some(ms) = line.strip_prefix('+').and_then(|rest| rest.strip_suffix("ms")) {
            client.now_ms += ms.parse::<u64>().expect("a number of milliseconds");
        } else if let Some((command, reply)) = line.split_once(" → ") {
            let expected = Notation(reply).reply();
            let seen = client.call(&Notation(command).words());
            assert!(
                expected.fits(&seen),
                "{file}:{}: {case}\n  command   {command}\n  expected  {reply}\n  seen      {}",
                number + 1,
                seen.shown()
            );
            settle();
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{file}:{}: what is {line:?}?", number + 1);
        }
    }
}

/// A connection that runs one command at a time.
pub struct Client<'s> {
    store: &'s Store,
    table: Table,
    pub now_ms: u64,
    database: u32,
    /// Each command has its own random numbers.
    seed: u64,
}

impl<'s> Client<'s> {
    pub fn new(store: &'s Store) -> Client<'s> {
        Client { store, table: Table::new(), now_ms: 1_700_000_000_000, database: 0, seed: 7 }
    }

    pub fn call(&mut self, words: &[Vec<u8>]) -> Shown {
        Shown::of(self.reply(words))
    }

    /// Runs a command; its reply is not taken apart.
    pub fn reply(&mut self, words: &[Vec<u8>]) -> Reply {
        if words[0] == b"SELECT" {
            self.database = String::from_utf8_lossy(&words[1]).parse().expect("a database's number");
            return Reply::ok();
        }
        self.seed += 1;
        let args: OwnedArgs = words.iter().collect();
        self.execute(args.as_args().into())
    }

    /// Inline first; where that would wait, the rows are loaded without locks, then inline again with them; at last,
    /// and for what takes long, where it may wait.
    fn execute(&self, args: Args) -> Reply {
        let run = match self.table.resolve(args) {
            Ok(entry) => entry.command.body,
            Err(error) => return error.into_reply(),
        };
        // Nothing waits here, as in a transaction.
        let function = |txn: &mut Txn, args: Args| match run {
            Body::Txn(function) => function(txn, args),
            Body::Wait(function) => function(txn, args).map(Tried::at_once),
            // Cases have no network: a migration is refused before one is needed.
            Body::Migrate(parse) => parse(args).map(|migration| panic!("{migration:?} wants a network")),
            _ => panic!("cases use commands on data only"),
        };
        let mut pins = Pins::default();
        let mut mode = Mode::Memory;
        let (mut loads, mut is_exclusive) = (0, false);
        loop {
            let call = Call { now_ms: self.now_ms, seed: self.seed, database: self.database, mode, pins: Some(&pins) };
            let mut txn = self.store.begin(TxnBuffers::default(), call);
            if is_exclusive {
                txn.set_exclusive();
            }
            let mut result = function(&mut txn, args);
            if mode == Mode::Load {
                let loaded = txn.take_pins();
                drop(txn);
                pins = loaded;
                mode = Mode::Memory;
                continue;
            }
            assert!(result.is_err() || txn.names_all_keys(), "a record names each key whose elements it writes");
            // A commit too may have to wait.
            if result.is_ok()
                && let Err(stop) = txn.commit()
            {
                result = Err(stop.into());
            }
            match result {
                Ok(reply) => return reply,
                Err(Error::Stop(Stop::Long)) => mode = Mode::Disk,
                // Nobody else is here.
                Err(Error::Stop(Stop::NeedsLocks)) => is_exclusive = true,
                Err(Error::Stop(Stop::WouldBlock)) => {
                    mode = if loads < 3 { Mode::Load } else { Mode::Disk };
                    loads += 1;
                }
                // A machine under load is no subject here: the command had no effect, and comes again after a flush.
                Err(Error::Stop(Stop::Refused(Refusal::FlushBehind))) => {
                    drop(txn);
                    self.store.flush_now().expect("nothing is broken");
                }
                Err(error) => return error.into_reply(),
            }
        }
    }
}

/// A reply as the notation tells it.
#[derive(Debug)]
pub enum Shown {
    /// A status, an integer, nil or an error.
    Word(String),
    Bulk(Vec<u8>),
    List(Vec<Shown>),
}

impl Shown {
    fn of(reply: Reply) -> Shown {
        match reply {
            Reply::Simple(text) => Shown::Word(text.into()),
            Reply::Integer(value) => Shown::Word(value.to_string()),
            Reply::Null | Reply::NullArray => Shown::Word("nil".into()),
            Reply::Error(text) => Shown::Word(format!("error {text}")),
            Reply::Bulk(bytes) => Shown::Bulk(bytes.into_vec()),
            Reply::Array(elements) => Shown::List(elements.into_iter().map(Shown::of).collect()),
            Reply::Map(pairs) => {
                Shown::List(pairs.into_iter().flat_map(|(key, value)| [Shown::of(key), Shown::of(value)]).collect())
            }
            Reply::Set(elements) => Shown::List(elements.into_iter().map(Shown::of).collect()),
            // A reply that is encoded already, or comes in pieces, is read as a client would.
            other => Shown::of(as_client_reads(other)),
        }
    }

    pub fn shown(&self) -> String {
        match self {
            Shown::Word(word) => word.clone(),
            Shown::Bulk(bytes) if bytes.len() > 200 => {
                format!("\"{}\"... of {} bytes", bytes[..200].escape_ascii(), bytes.len())
            }
            Shown::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
            Shown::List(elements) => format!("[{}]", elements.iter().map(Shown::shown).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// A reply encoded for RESP2 and decoded again.
fn as_client_reads(reply: Reply) -> Reply {
    let (mut pieces, mut encoded) = (reply.into_pieces(), Vec::new());
    while pieces.next(Protocol::Resp2, &mut encoded).expect("memory can be read") {}
    let (taken, decoded) = Decoder::new().next(&encoded).expect("a reply");
    assert_eq!(taken, encoded.len(), "nothing comes behind the reply");
    decoded.expect("a whole reply")
}

/// The reply that a case expects.
#[derive(Debug)]
enum Expected {
    Word(String),
    Bulk(Vec<u8>),
    List(Vec<Expected>),
    AnyOrder(Vec<Expected>),
    OneOf(Vec<Expected>),
}

impl Expected {
    fn fits(&self, seen: &Shown) -> bool {
        match (self, seen) {
            (Expected::Word(expected), Shown::Word(seen)) => expected == seen,
            (Expected::Bulk(expected), Shown::Bulk(seen)) => expected == seen,
            (Expected::List(expected), Shown::List(seen)) => {
                expected.len() == seen.len() && expected.iter().zip(seen).all(|(expected, seen)| expected.fits(seen))
            }
            // No case lists an element twice.
            (Expected::AnyOrder(expected), Shown::List(seen)) => {
                expected.len() == seen.len()
                    && expected.iter().all(|expected| seen.iter().any(|seen| expected.fits(seen)))
            }
            (Expected::OneOf(expected), seen) => expected.iter().any(|expected| expected.fits(seen)),
            _ => false,
        }
    }
}

/// The rest of a line.
struct Notation<'t>(&'t str);

impl Notation<'_> {
    /// A command's words.
    fn words(mut self) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        loop {
            self.0 = self.0.trim_start();
            if self.0.is_empty() {
                return words;
            }
            words.push(if self.0.starts_with('"') {
                self.quoted()
            } else {
                let end = self.0.find(' ').unwrap_or(self.0.len());
                self.take(end).as_bytes().to_vec()
            });
        }
    }

    fn reply(mut self) -> Expected {
        let expected = self.value();
        assert!(self.0.trim().is_empty(), "{:?} is left of a reply", self.0);
        expected
    }

    fn value(&mut self) -> Expected {
        if self.skip("~[") {
            Expected::AnyOrder(self.elements())
        } else if self.skip("one of [") {
            Expected::OneOf(self.elements())
        } else if self.skip("[") {
            Expected::List(self.elements())
        } else if self.0.starts_with('"') {
            Expected::Bulk(self.quoted())
        } else if self.0.starts_with("error ") {
            Expected::Word(self.take(self.0.len()).into())
        } else {
            let end = self.0.find([',', ']']).unwrap_or(self.0.len());
            Expected::Word(self.take(end).into())
        }
    }

    /// Elements of a list, and its end.
    fn elements(&mut self) -> Vec<Expected> {
        let mut elements = Vec::new();
        while !self.skip("]") {
            elements.push(self.value());
            self.skip(", ");
        }
        elements
    }

    /// `"abc"*3+"d"`.
    fn quoted(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            assert!(self.skip("\""), "a quote at {:?}", self.0);
            let mut part = Vec::new();
            while !self.skip("\"") {
                part.push(self.byte());
            }
            let mut times = 1;
            if self.skip("*") {
                let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
                times = self.take(end).parse().expect("a number of times");
            }
            bytes.extend(part.repeat(times));
            if !self.skip("+") {
                return bytes;
            }
        }
    }

    fn byte(&mut self) -> u8 {
        if !self.skip("\\") {
            return self.take(1).as_bytes()[0];
        }
        match self.take(1) {
            "x" => u8::from_str_radix(self.take(2), 16).expect("two hexadecimal digits"),
            "r" => b'\r',
            "n" => b'\n',
            "t" => b'\t',
            itself => itself.as_bytes()[0],
        }
    }

    fn skip(&mut self, prefix: &str) -> bool {
        let rest = self.0.strip_prefix(prefix);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

impl<'t> Notation<'t> {
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }
}
