//! DUMP and RESTORE: a value as the payload that Redis has for it, and back. How values are taken apart and made is in `transfer`.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::table::{Arity, Category, Command, Flag, Group, Keys, Run, Use};
use crate::transfer::{self, Receiver, Refused};
use haypile_rdb::{Failure, Memory, Payload, Writer};
use haypile_resp::Reply;
use haypile_store::{Access, Key, Txn};
use haypile_types::key::Entry;
use haypile_types::{event, key};

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
    run: Run::Read(dump),
    tips: &["nondeterministic_output"],
    ..Command::USUAL
};

/// The payload of a value; null if the key is absent.
fn dump(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 1);
    let Some(entry) = key::lookup(txn, &key)? else { return Ok(Reply::Null) };
    payload(txn, &key, entry).map(Reply::bulk)
}

/// The payload of a value that was looked up.
pub(crate) fn payload(txn: &mut Txn, key: &Key, entry: Entry) -> Result<Vec<u8>> {
    let bytes_max = usize::try_from(txn.value_bytes_max()).unwrap_or(usize::MAX);
    let mut writer = Writer::new(Memory::new(bytes_max));
    let kind = transfer::kind(txn, key, &entry)?;
    writer.kind(kind).map_err(|error| Error::text(format!("ERR {error}")))?;
    transfer::write(txn, key, entry, kind, &mut writer)?;
    Ok(writer.seal())
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
    run: Run::Write(restore),
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

    /// What is to be noted of a key's past, under the policy that there is.
    fn access(&self, txn: &Txn) -> Option<Access> {
        let now_ms = txn.now_ms();
        if txn.has_frequency_policy() {
            return self.frequency.map(|frequency| Access::counted(now_ms, frequency));
        }
        self.idle_s.map(|idle| Access::at(now_ms.saturating_sub(idle.saturating_mul(1000))))
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
    let has_passed = deadline.is_some_and(|deadline| deadline <= now_ms);
    let is_there = !has_passed && received.finish(txn, &key, deadline.map(|deadline| deadline as u64))?;
    if is_there {
        if let Some(access) = options.access(txn) {
            txn.set_access(&key, access);
        }
        txn.on_event(event::GENERIC, "restore", &key);
    } else if before.is_some() {
        txn.on_event(event::GENERIC, "del", &key);
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
