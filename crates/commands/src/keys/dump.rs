//! DUMP and RESTORE: a value as the payload that Redis has for it, and back. How values are taken apart and made is in
//! `transfer`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::statement;
use crate::table::{Access, Arity, Body, Category, Command, Flag, Group, Keys, Use};
use crate::transfer::{self, Broken, Outgoing, Receiver, Refused};
use haypile_rdb::{Failure, Kind, Measure, Measured, Memory, Payload, Seal, Writer};
use haypile_resp::pieces::PIECE_BYTES;
use haypile_resp::{Pieces, Protocol, Reply, write};
use haypile_store::{Key, Txn};
use haypile_types::key::Entry;
use haypile_types::{event, key, string};

pub(crate) const COMMANDS: &[Command] = &[DUMP, RESTORE, RESTORE_ASKING];

const DUMP: Command = Command {
    name: "dump",
    since: "2.6.0",
    group: Group::Generic,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[Use::Access]),
    summary: "Returns a key's value as a payload that RESTORE takes.",
    syntax: "key",
    complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of Redis objects \
                 composing the value and M their average size. For small string values the time complexity is thus \
                 O(1)+O(1*M) where M is small, so simply O(1).",
    access: Access::Read,
    body: Body::Txn(dump),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

/// The payload of a value; null if the key is absent.
fn dump(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = key::lookup(txn, &key)? else { return Ok(Reply::Null) };
    Ok(match Dump::of(txn, &key, entry)? {
        Dump::Whole(payload) => Reply::bulk(payload),
        Dump::Long(long) => Reply::Stream(Box::new(LongReply { long, has_begun: false })),
    })
}

/// The payload of a value.
pub enum Dump {
    Whole(Vec<u8>),
    /// A payload too long to be held in memory.
    Long(Box<LongDump>),
}

/// A longer payload goes out in pieces: a string that is not read in pieces itself, not compressed, with what stands
/// around it, is no longer.
const WHOLE_BYTES_MAX: usize = string::LONG_FROM_BYTES as usize + 64;

/// Shorter strings of a value are held without asking for room.
const ROOM_FROM_BYTES: usize = 256 << 10;

impl Dump {
    /// The payload of a value that was looked up. A long one is written twice: to be counted now, and from views when
    /// it is read.
    pub(crate) fn of(txn: &mut Txn, key: &Key, entry: Entry) -> Result<Dump> {
        let bytes_max = txn.value_bytes_max();
        let mut writer = Writer::new(Measure::new(WHOLE_BYTES_MAX, bytes_max));
        let kind = transfer::kind(txn, key, &entry)?;
        let mut held_bytes = 0;
        writer.kind(kind).map_err(transfer::unwritten)?;
        // Until the reply counts what it holds.
        let mut room = txn.room();
        let measured = match string::length_of(key, &entry) {
            // A long string's bytes are counted without being read.
            Ok(length) if length > string::LONG_FROM_BYTES => {
                writer.begin_string(length).map_err(transfer::unwritten)?;
                writer.skip(length).and_then(|()| writer.measured())
            }
            _ => {
                transfer::write(txn, key, entry.clone(), kind, &mut writer)?;
                held_bytes = held_times(kind).saturating_mul(writer.longest());
                if held_bytes > ROOM_FROM_BYTES {
                    room.grow_to(held_bytes)?;
                }
                writer.measured()
            }
        };
        let bytes = match measured.map_err(transfer::unwritten)? {
            Measured::Whole(payload) => return Ok(Dump::Whole(payload)),
            Measured::Long(bytes) => bytes,
        };
        if let Some(outgoing) = Outgoing::open(txn, key, entry.clone(), kind)? {
            return Ok(Dump::Long(Box::new(LongDump::new(kind, outgoing, bytes, held_bytes))));
        }
        // All of it lies in one row, and so in memory.
        let mut writer = Writer::new(Memory::new(usize::try_from(bytes_max).unwrap_or(usize::MAX)));
        writer.kind(kind).map_err(transfer::unwritten)?;
        transfer::write(txn, key, entry, kind, &mut writer)?;
        Ok(Dump::Whole(writer.seal()))
    }
}

impl Dump {
    /// Bytes of the payload.
    pub fn bytes(&self) -> u64 {
        match self {
            Dump::Whole(payload) => payload.len() as u64,
            Dump::Long(long) => long.bytes,
        }
    }

    /// The checksum with which the payload ends. Reads to its end what was not read.
    ///
    /// # Errors
    /// A text that says why it does not come to its end.
    pub fn checksum(&mut self) -> std::result::Result<[u8; 8], String> {
        let long = match self {
            Dump::Whole(payload) => return Ok(*payload.last_chunk().expect("a payload ends with its checksum")),
            Dump::Long(long) => long,
        };
        let mut piece = Vec::new();
        loop {
            if let Some(checksum) = long.checksum {
                return Ok(checksum);
            }
            piece.clear();
            long.next(&mut piece)?;
        }
    }
}

/// How often the longest string of a value is held while a payload is made: in its row, and for a stream in a node and
/// in the payload, too.
fn held_times(kind: Kind) -> usize {
    if matches!(kind, Kind::Stream | Kind::IdempotentStream | Kind::NackedStream) { 3 } else { 1 }
}

/// A payload that is made as it is read, of a value as it was when it was asked for.
pub struct LongDump {
    outgoing: Outgoing,
    writer: Writer<Memory>,
    /// The form, which goes first.
    head: Option<Kind>,
    seal: Seal,
    /// Bytes of the whole payload.
    bytes: u64,
    /// The most bytes that are held of the value at a time: a long row, or a long node of a stream.
    held_bytes: usize,
    /// Bytes that have been made so far.
    made: u64,
    /// The checksum at the payload's end, once that was made.
    checksum: Option<[u8; 8]>,
}

impl LongDump {
    fn new(kind: Kind, outgoing: Outgoing, bytes: u64, held_bytes: usize) -> LongDump {
        let writer = Writer::new(Memory::new(usize::MAX));
        LongDump {
            outgoing,
            writer,
            head: Some(kind),
            seal: Seal::default(),
            bytes,
            held_bytes,
            made: 0,
            checksum: None,
        }
    }

    /// Bytes of the payload.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the next bytes to `out`; whether there are more. They are as many as were told, or it fails.
    ///
    /// # Errors
    /// A text that says why there will be no more.
    pub fn next(&mut self, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        let LongDump { outgoing, writer, head, .. } = self;
        let from = out.len();
        let more = writer.at_end_of(out, |writer| {
            if let Some(kind) = head.take() {
                writer.kind(kind)?;
            }
            while writer.bytes().len() < from + PIECE_BYTES {
                if !outgoing.next(writer)? {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        let more = more.map_err(|broken: Broken| String::from(broken))?;
        self.seal.add(&out[from..]);
        if !more {
            let footer = self.seal.end(self.writer.version());
            out.extend_from_slice(&footer);
            self.checksum = footer.last_chunk().copied();
        }
        self.made += (out.len() - from) as u64;
        if self.made > self.bytes || !more && self.made < self.bytes {
            return Err("a payload is not as long as it was before".into());
        }
        Ok(more)
    }
}

/// A payload as a reply.
struct LongReply {
    long: Box<LongDump>,
    /// The length is out.
    has_begun: bool,
}

impl Pieces for LongReply {
    fn next(&mut self, _: Protocol, out: &mut Vec<u8>) -> std::result::Result<bool, String> {
        if !self.has_begun {
            self.has_begun = true;
            let bytes = usize::try_from(self.long.bytes()).map_err(|error| error.to_string())?;
            write::bulk_len(out, bytes);
        }
        let more = self.long.next(out)?;
        if !more {
            out.extend_from_slice(b"\r\n");
        }
        Ok(more)
    }

    /// The row on its way out counts; rows of the memtable that its view holds beside it do not.
    fn weight(&self) -> haypile_resp::Weight {
        haypile_resp::Weight { held_bytes: self.long.held_bytes, encoded_bytes: self.long.bytes() as usize }
    }
}

const RESTORE: Command = Command {
    name: "restore",
    since: "2.6.0",
    group: Group::Generic,
    arity: Arity::at_least(4),
    keys: Keys::first(1).ow(&[Use::Update]),
    summary: "Gives a key the value of a payload that DUMP made.",
    syntax: "key ttl:integer serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME seconds:integer@5.0.0] [FREQ \
             frequency:integer@5.0.0]",
    complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the \
                 number of Redis objects composing the value and M their average size. For small string values the time \
                 complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the \
                 complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
    access: Access::Write,
    body: Body::Txn(restore),
    flags: &[Flag::Denyoom],
    categories: &[Category::Dangerous],
    history: &[
        ("3.0.0", "Added the `REPLACE` modifier."),
        ("5.0.0", "Added the `ABSTTL` modifier."),
        ("5.0.0", "Added the `IDLETIME` and `FREQ` options."),
    ],
    ..Command::USUAL
};

const RESTORE_ASKING: Command = Command {
    name: "restore-asking",
    since: "3.0.0",
    group: Group::Server,
    summary: "RESTORE, for a cluster that moves a slot.",
    flags: &[Flag::Denyoom, Flag::Asking],
    categories: &[Category::Keyspace, Category::Dangerous],
    syscmd: true,
    ..RESTORE
};

/// The options of RESTORE.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(args: Args) -> Result<Options> {
        let (mut options, mut i) = (Options::default(), 4);
        while i < args.len() {
            let has_value = i + 1 < args.len();
            if args.is(i, "replace") {
                options.replace = true;
            } else if args.is(i, "absttl") {
                options.absolute = true;
            } else if args.is(i, "idletime") && has_value && options.frequency.is_none() {
                i += 1;
                let idle = u64::try_from(args.int(i)?);
                options.idle_s = Some(idle.map_err(|_| Error::text("ERR Invalid IDLETIME value, must be >= 0"))?);
            } else if args.is(i, "freq") && has_value && options.idle_s.is_none() {
                i += 1;
                let frequency = u8::try_from(args.int(i)?);
                let invalid = "ERR Invalid FREQ value, must be >= 0 and <= 255";
                options.frequency = Some(frequency.map_err(|_| Error::text(invalid))?);
            } else {
                return Err(Error::Syntax);
            }
            i += 1;
        }
        Ok(options)
    }

    /// The access stamp that the key gets, under the present eviction policy.
    fn access(&self, txn: &Txn) -> Option<haypile_store::Access> {
        let now_ms = txn.now_ms();
        if txn.has_frequency_policy() {
            return self.frequency.map(|frequency| haypile_store::Access::counted(now_ms, frequency));
        }
        self.idle_s.map(|idle| haypile_store::Access::at(now_ms.saturating_sub(idle.saturating_mul(1000))))
    }
}

/// Payloads that are longer are looked at on the I/O pool.
const INLINE_BYTES_MAX: usize = 64 << 10;

fn restore(txn: &mut Txn, args: Args) -> Result<Reply> {
    let options = Options::parse(args)?;
    let key = args.key(txn, 1);
    let before = key::lookup_write(txn, &key)?;
    if before.is_some() && !options.replace {
        return Err(Error::text("BUSYKEY Target key name already exists."));
    }
    let ttl = args.int(2)?;
    if ttl < 0 {
        return Err(Error::text("ERR Invalid TTL value, must be >= 0"));
    }
    if args.get(3).len() > INLINE_BYTES_MAX {
        txn.long()?;
    }
    let payload =
        Payload::check(args.get(3)).map_err(|_| Error::text("ERR DUMP payload version or checksum are wrong"))?;
    let here = txn.savepoint();
    let received = receive(txn, &key, &payload)?;
    if let Some(before) = &before {
        key::remove(txn, &key, &before.header)?;
    }
    let now_ms = txn.now_ms() as i64;
    let deadline = match ttl {
        0 => None,
        ttl if options.absolute => Some(ttl),
        ttl => Some(ttl.wrapping_add(now_ms)),
    };
    let has_passed = deadline.is_some_and(|deadline| deadline <= txn.expiry_ms() as i64);
    let is_there = !has_passed && received.finish(txn, &key, deadline.map(|deadline| deadline as u64))?;
    if is_there {
        if let Some(access) = options.access(txn) {
            txn.set_access(&key, access);
        }
        txn.on_event(event::GENERIC, "restore", &key);
        statement::state_value(txn, &key)?;
        return Ok(Reply::ok());
    }
    // No row of the payload stays, which no key would name.
    txn.rollback(here);
    if let Some(before) = &before {
        key::remove(txn, &key, &before.header)?;
        txn.on_event(event::GENERIC, "del", &key);
        statement::state_deletion(txn, key.name);
    }
    Ok(Reply::ok())
}

/// The value of a payload, which no key has yet.
fn receive(txn: &mut Txn, key: &Key, payload: &Payload<'_>) -> Result<Receiver> {
    let bad = || Error::text("ERR Bad data format");
    let mut receiver = Receiver::new(payload.kind().map_err(|_| bad())?);
    match payload.read(|part| receiver.take(txn, key, part)) {
        Ok(0) | Err(Failure::Input(_) | Failure::Sink(Refused::Corrupt(_))) => Err(bad()),
        Err(Failure::Sink(Refused::Stop(error))) => Err(error.into()),
        Ok(_) => Ok(receiver),
    }
}
