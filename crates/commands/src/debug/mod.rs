//! DEBUG: for those who test servers and clients, if `enable-debug-command` allows it.
//!
//! One command whose subcommands are a table of its own, because COMMAND does not know them. Those that look at data
//! run in a transaction (`Rows::in_transaction`). Tuning of what this server does not have is accepted as Redis accepts
//! it.

pub(crate) mod digest;
pub(crate) mod protocol;
pub(crate) mod reload;

use crate::args::Args;
use crate::error::{Error, Result};
use crate::host::{Act, Answer, DebugAccess, Host, Wait, WaitKind};
use crate::keys::object::{Encoding, string_encoding};
use crate::memory::footprint;
use crate::memory::sizes::{rdb_bytes, sds_bytes};
use crate::table::{ActFn, Arity, Body, Command, Flag, Group, HostFn, Keys, TxnFn};
use haypile_config::{glob, value as config_value};
use haypile_resp::{Reply, number};
use haypile_store::Txn;
use haypile_types::key::{self, Type};
use haypile_types::value;
use std::ops::RangeInclusive;
use std::time::Duration;

pub(crate) const COMMANDS: &[Command] = &[DEBUG];

const DEBUG: Command = Command {
    name: "debug",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::at_least(2),
    keys: Keys::NONE,
    summary: "A container for commands that help to test servers and clients.",
    syntax: "",
    complexity: "Depends on subcommand.",
    body: Body::Act(debug),
    flags: &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
    syscmd: true,
    ..Command::USUAL
};

/// A subcommand.
struct Subcommand {
    name: &'static str,
    /// Arguments behind its name.
    arguments: RangeInclusive<usize>,
    /// The arguments as HELP shows them.
    syntax: &'static str,
    about: &'static str,
    run: Action,
}

enum Action {
    /// Asks the session or the server.
    Session(HostFn),
    /// Asks for changes of the server.
    Server(ActFn),
    /// Looks at data.
    Data(TxnFn),
}

use Action::{Data, Server, Session};

const ANY: usize = usize::MAX;

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "AOF-FLUSH-SLEEP",
        arguments: 1..=1,
        syntax: "<microsec>",
        about: "Accepted, without effect.",
        run: Session(accepted),
    },
    Subcommand { name: "ASSERT", arguments: 0..=0, syntax: "", about: "Ends the process at once.", run: Server(crash) },
    Subcommand {
        name: "CHANGE-REPL-ID",
        arguments: 0..=0,
        syntax: "",
        about: "Accepted, without effect.",
        run: Session(accepted),
    },
    Subcommand {
        name: "CLIENT-EVICTION",
        arguments: 0..=0,
        syntax: "",
        about: "An error: clients are not kept in buckets by their memory.",
        run: Session(client_eviction),
    },
    Subcommand {
        name: "CLUSTERLINK",
        arguments: 3..=3,
        syntax: "KILL <to|from|all> <node-id>",
        about: "An error: there is no cluster.",
        run: Session(clusterlink),
    },
    Subcommand {
        name: "DICT-RESIZING",
        arguments: 1..=1,
        syntax: "<0|1>",
        about: "Accepted, without effect.",
        run: Session(accepted),
    },
    Subcommand {
        name: "DIGEST",
        arguments: 0..=0,
        syntax: "",
        about: "Returns a fingerprint of all data.",
        run: Data(digest::digest),
    },
    Subcommand {
        name: "DIGEST-VALUE",
        arguments: 0..=ANY,
        syntax: "<key> [<key> ...]",
        about: "Returns a fingerprint of each value.",
        run: Data(digest::digest_values),
    },
    Subcommand {
        name: "DROP-CLUSTER-PACKET-FILTER",
        arguments: 1..=1,
        syntax: "<packet-type>",
        about: "Accepted, without effect.",
        run: Session(packet_filter),
    },
    Subcommand {
        name: "ERROR",
        arguments: 1..=1,
        syntax: "<string>",
        about: "Returns an error with this text.",
        run: Session(error),
    },
    Subcommand {
        name: "HTSTATS",
        arguments: 1..=1,
        syntax: "<dbid>",
        about: "Returns facts about the keys of a database.",
        run: Data(htstats),
    },
    Subcommand {
        name: "HTSTATS-KEY",
        arguments: 1..=1,
        syntax: "<key>",
        about: "Returns a line if Redis would hold the value in a hash table, else an error.",
        run: Data(htstats_key),
    },
    Subcommand {
        name: "LISTPACK",
        arguments: 1..=1,
        syntax: "<key>",
        about: "Answers in words if Redis would hold the value in a listpack, else an error.",
        run: Data(listpack),
    },
    Subcommand {
        name: "LOADAOF",
        arguments: 0..=ANY,
        syntax: "",
        about: "Closes the data and opens them again, from the log as far as the base does not have them.",
        run: Server(reload::load_log),
    },
    Subcommand {
        name: "LOG",
        arguments: 1..=1,
        syntax: "<message>",
        about: "Writes a message to the server's log.",
        run: Server(log),
    },
    Subcommand {
        name: "OBJECT",
        arguments: 1..=1,
        syntax: "<key>",
        about: "Returns facts about a key's value.",
        run: Data(object),
    },
    Subcommand { name: "OOM", arguments: 0..=0, syntax: "", about: "Ends the process at once.", run: Server(crash) },
    Subcommand { name: "PANIC", arguments: 0..=0, syntax: "", about: "Ends the process at once.", run: Server(crash) },
    Subcommand {
        name: "PAUSE-CRON",
        arguments: 1..=1,
        syntax: "<0|1>",
        about: "Accepted, without effect.",
        run: Session(accepted),
    },
    Subcommand {
        name: "PROTOCOL",
        arguments: 1..=1,
        syntax: "<type>",
        about: "Returns a value of a type of the protocol.",
        run: Session(protocol::protocol),
    },
    Subcommand {
        name: "QUICKLIST",
        arguments: 1..=2,
        syntax: "<key> [<0|1>]",
        about: "Answers in words if Redis would hold the value in a quicklist, else an error.",
        run: Data(quicklist),
    },
    Subcommand {
        name: "QUICKLIST-PACKED-THRESHOLD",
        arguments: 1..=1,
        syntax: "<size>",
        about: "Accepted, without effect.",
        run: Session(packed_threshold),
    },
    Subcommand {
        name: "RELOAD",
        arguments: 0..=ANY,
        syntax: "[MERGE] [NOFLUSH] [NOSAVE]",
        about: "Closes the data and opens them again, from the base; with NOSAVE as LOADAOF does.",
        run: Server(reload::reload),
    },
    Subcommand {
        name: "REPLYBUFFER",
        arguments: 2..=2,
        syntax: "PEAK-RESET-TIME <NEVER|RESET|milliseconds> | RESIZING <0|1>",
        about: "Accepted, without effect.",
        run: Session(replybuffer),
    },
    Subcommand {
        name: "SDSLEN",
        arguments: 1..=1,
        syntax: "<key>",
        about: "Returns the lengths of a key and its string.",
        run: Data(sdslen),
    },
    Subcommand {
        name: "SEGFAULT",
        arguments: 0..=0,
        syntax: "",
        about: "Ends the process at once.",
        run: Server(crash),
    },
    Subcommand {
        name: "SET-ACTIVE-EXPIRE",
        arguments: 1..=1,
        syntax: "<0|1>",
        about: "Whether expired keys go although nobody asks for them.",
        run: Server(set_active_expire),
    },
    Subcommand {
        name: "SET-DISABLE-DENY-SCRIPTS",
        arguments: 1..=1,
        syntax: "<0|1>",
        about: "Accepted, without effect.",
        run: Session(accepted),
    },
    Subcommand {
        name: "SET-REPLY-AGE",
        arguments: 1..=1,
        syntax: "<seconds>",
        about: "How long a client may take to read one long reply, before it is closed.",
        run: Server(set_reply_age),
    },
    Subcommand {
        name: "SET-SKIP-CHECKSUM-VALIDATION",
        arguments: 1..=1,
        syntax: "<0|1>",
        about: "Accepted, without effect.",
        run: Session(accepted),
    },
    Subcommand {
        name: "SLEEP",
        arguments: 1..=1,
        syntax: "<seconds>",
        about: "Answers after this time. Decimals are allowed; others are not delayed.",
        run: Server(sleep),
    },
    Subcommand {
        name: "STRINGMATCH-LEN",
        arguments: 2..=2,
        syntax: "<pattern> <string>",
        about: "Returns whether a glob pattern matches.",
        run: Session(stringmatch),
    },
    Subcommand {
        name: "STRUCTSIZE",
        arguments: 0..=0,
        syntax: "",
        about: "Returns the sizes of structures as MEMORY USAGE counts them.",
        run: Session(structsize),
    },
    Subcommand { name: "HELP", arguments: 0..=0, syntax: "", about: "Returns these lines.", run: Session(help) },
];

/// Redis's text for a caller who may not.
const NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run \
                           it from a local connection, otherwise you need to set this option in the configuration file, and then \
                           restart the server.";

fn debug(host: &mut dyn Host, args: Args) -> Result<Answer> {
    let allowed = match host.debug_access() {
        DebugAccess::No => false,
        DebugAccess::Yes => true,
        DebugAccess::Local => host.is_local(),
    };
    if !allowed {
        return Err(Error::text(NOT_ALLOWED));
    }
    let found = SUBCOMMANDS.iter().find(|sub| args.is(1, sub.name) && sub.arguments.contains(&(args.len() - 2)));
    match found.map(|sub| &sub.run) {
        Some(Session(run)) => run(host, args).map(Answer::from),
        Some(Server(run)) => run(host, args),
        Some(Data(run)) => host.in_transaction(&mut |txn| run(txn, args)).map(Answer::from),
        None => Err(args.wrong_subcommand()),
    }
}

fn help(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    let mut lines = vec![Reply::Simple("DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    for Subcommand { name, syntax, about, .. } in SUBCOMMANDS {
        lines.push(Reply::Status(format!("{name} {syntax}").trim_end().to_owned()));
        lines.push(Reply::Status(format!("    {about}")));
    }
    Ok(Reply::Array(lines))
}

fn accepted(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::ok())
}

fn crash(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::Crash(String::from_utf8_lossy(args.get(1)).into_owned())))
}

fn client_eviction(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Err(Error::text("ERR maxmemory-clients is disabled."))
}

fn clusterlink(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Err(Error::text("ERR Debug option only available for cluster mode enabled setup!"))
}

fn packet_filter(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    args.int(2).map(|_| Reply::ok())
}

fn error(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    Err(Error::Quoting(args.get(2).to_vec()))
}

fn log(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::LogLine(args.get(2).to_vec())))
}

const PACKED_BYTES_MAX: u64 = 4 << 30;

fn packed_threshold(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    match config_value::bytes(args.get(2)) {
        Some(..PACKED_BYTES_MAX) => Ok(Reply::ok()),
        _ => Err(Error::text("ERR argument must be a memory value bigger than 1 and smaller than 4gb")),
    }
}

fn replybuffer(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    match (args.is(2, "peak-reset-time"), args.is(2, "resizing")) {
        (true, _) if args.is(3, "never") || args.is(3, "reset") => Ok(Reply::ok()),
        (true, _) => args.int(3).map(|_| Reply::ok()),
        (_, true) => Ok(Reply::ok()),
        _ => Err(args.wrong_subcommand()),
    }
}

fn set_active_expire(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    Ok(Answer::ok(Act::SetActiveExpire(leading_number(args.get(2)) != 0.0)))
}

fn set_reply_age(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    let age_ms = (leading_number(args.get(2)) * 1000.0) as u64;
    Ok(Answer::ok(Act::SetReplyAge(Duration::from_millis(age_ms))))
}

fn sleep(_host: &mut dyn Host, args: Args) -> Result<Answer> {
    // The cast takes what is negative for 0, and what is too much for the longest time that there is.
    let timeout_ms = Some((leading_number(args.get(2)) * 1000.0) as u64);
    Ok(Answer::ok(Act::Wait(Wait { kind: WaitKind::Sleep, timeout_ms })))
}

/// The number that a word begins with, as C reads it; 0 if it begins with none.
fn leading_number(word: &[u8]) -> f64 {
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E');
    let mut end = word.iter().position(|byte| !is_part(byte)).unwrap_or(word.len());
    loop {
        match std::str::from_utf8(&word[..end]).ok().and_then(|text| text.parse().ok()) {
            Some(number) => return number,
            None if end == 0 => return 0.0,
            None => end -= 1,
        }
    }
}

fn stringmatch(_host: &mut dyn Host, args: Args) -> Result<Reply> {
    Ok(Reply::Integer(i64::from(glob::matches(args.get(2), args.get(3), false))))
}

fn structsize(_host: &mut dyn Host, _args: Args) -> Result<Reply> {
    Ok(Reply::bulk("bits:64 robj:16 dictentry:24 sdshdr5:1 sdshdr8:3 sdshdr16:5 sdshdr32:9 sdshdr64:17 "))
}

/// Returns the encoding in which Redis would hold the collection of an existing key; `None` for a string.
fn encoding_of(txn: &mut Txn, args: Args) -> Result<Option<&'static str>> {
    let key = args.key(txn, 2);
    let entry = key::peek(txn, &key)?.ok_or(Error::NoSuchKey)?;
    Ok(value::encoding_name(&entry)?)
}

fn htstats(txn: &mut Txn, args: Args) -> Result<Reply> {
    let database = u32::try_from(args.int(2)?).ok().filter(|database| *database < txn.databases());
    let space = txn.space(database.ok_or(Error::text("ERR Out of range database"))?);
    let count = |counter| txn.peek_counter(space, counter);
    let (keys, deadlines) = (count(haypile_store::Counter::Keys), count(haypile_store::Counter::Deadlines));
    let text = format!(
        "[Dictionary HT]\nNo table of all keys: {keys} keys lie in sorted runs.\n\
         [Expires HT]\nNo table of all deadlines: {deadlines} lie in the order of time.\n"
    );
    Ok(Reply::Verbatim("txt", text.into()))
}

fn htstats_key(txn: &mut Txn, args: Args) -> Result<Reply> {
    // A skiplist has a table beside it.
    if matches!(encoding_of(txn, args)?, Some("hashtable" | "skiplist")) {
        return Ok(Reply::Verbatim("txt", "No table: the elements lie in sorted runs.\n".into()));
    }
    Err(Error::text("ERR The value stored at the specified key is not represented using an hash table"))
}

fn listpack(txn: &mut Txn, args: Args) -> Result<Reply> {
    match encoding_of(txn, args)? {
        Some("listpack") => Ok(Reply::Simple("Listpack structure printed on stdout")),
        _ => Err(Error::text("ERR Not a listpack encoded object.")),
    }
}

fn quicklist(txn: &mut Txn, args: Args) -> Result<Reply> {
    match encoding_of(txn, args)? {
        Some("quicklist") => Ok(Reply::Simple("Quicklist structure printed on stdout")),
        _ => Err(Error::text("ERR Not a quicklist encoded object.")),
    }
}

fn sdslen(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let entry = key::peek(txn, &key)?.ok_or(Error::NoSuchKey)?;
    if entry.header.type_of() != Type::String {
        return Err(Error::text("ERR Not an sds encoded string."));
    }
    let name = key.name.len() as u64;
    let (encoding, length) = string_encoding(txn, &key, entry)?;
    if matches!(encoding, Encoding::Int(_)) {
        return Err(Error::text("ERR Not an sds encoded string."));
    }
    let (name_bytes, bytes) = (sds_bytes(name, true), sds_bytes(length, false));
    Ok(Reply::Status(format!(
        "key_sds_len:{name}, key_sds_avail:0, key_zmalloc: {name_bytes}, val_sds_len:{length}, val_sds_avail:0, val_zmalloc: {bytes}"
    )))
}

/// Describes a key in one line as Redis does; the address is no more than a number of the key.
fn object(txn: &mut Txn, args: Args) -> Result<Reply> {
    let key = args.key(txn, 2);
    let entry = key::peek(txn, &key)?.ok_or(Error::NoSuchKey)?;
    let (encoding, references, serialized) = match value::encoding_name(&entry)? {
        Some(name) => (name, 1, footprint::serialized(txn, &key, &entry)?),
        None => {
            let (encoding, length) = string_encoding(txn, &key, entry)?;
            (encoding.name(), encoding.references(), serialized_bytes(encoding, length))
        }
    };
    let (address, lru, idle_s) = (key.hash, txn.access(&key).low_bits(), txn.idle_s(&key));
    Ok(Reply::Status(format!(
        "Value at:0x{address:x} refcount:{references} encoding:{encoding} serializedlength:{serialized} lru:{lru} lru_seconds_idle:{idle_s}",
    )))
}

/// Bytes of a string in an RDB file that is not compressed.
fn serialized_bytes(encoding: Encoding, length: u64) -> u64 {
    let digits = |value: i64| {
        let mut text = Vec::new();
        number::write_i64(&mut text, value);
        text.len() as u64 + 1
    };
    match encoding {
        Encoding::Int(value) if i8::try_from(value).is_ok() => 2,
        Encoding::Int(value) if i16::try_from(value).is_ok() => 3,
        Encoding::Int(value) if i32::try_from(value).is_ok() => 5,
        Encoding::Int(value) => digits(value),
        _ => rdb_bytes(length),
    }
}
