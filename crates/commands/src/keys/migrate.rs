//! MIGRATE: what it asks for, what of a key is sent, and how the key goes when the other server has it. The exchange
//! itself, and who waits meanwhile, is the engine's.

use crate::args::Args;
use crate::error::{Error, Result};
use crate::keys::dump::Dump;
use crate::keyspec::{Begin, Find, Hidden, KeySpec, Mode};
use crate::migration::Migration;
use crate::statement;
use crate::table::{Access, Arity, Body, Category, Command, Group, Keys, Use};
use haypile_resp::number;
use haypile_store::Txn;
use haypile_types::{event, key};
use std::time::Duration;

pub(crate) const COMMANDS: &[Command] = &[MIGRATE];

const MIGRATE: Command = Command {
    name: "migrate",
    since: "2.6.0",
    group: Group::Generic,
    arity: Arity::at_least(6),
    keys: Keys::Many(&[
        KeySpec {
            mode: Mode::Rw,
            uses: &[Use::Access, Use::Delete],
            begin: Begin::Nearly(&Begin::Index(3), Hidden::KeyOfMigrate),
            ..KeySpec::at(3)
        },
        KeySpec {
            mode: Mode::Rw,
            uses: &[Use::Access, Use::Delete, Use::Incomplete],
            begin: Begin::Nearly(&Begin::Keyword { word: "KEYS", from: -2 }, Hidden::KeysOfMigrate),
            find: Find::Range { last: -1, step: 1, limit: 0 },
            ..KeySpec::at(3)
        },
    ]),
    summary: "Moves keys to another server.",
    syntax: "host port:integer key_or_empty_string=(key | '' empty_string:pure-token) destination-db:integer timeout:integer \
             [COPY@3.0.0] [REPLACE@3.0.0] [authentication=([AUTH password@4.0.7] | [AUTH2 username_password@6.0.0=(username \
             password)])] [KEYS key@3.0.6...]",
    complexity: "This command actually executes a DUMP+DEL in the source instance, and a RESTORE in the target instance. See \
                 the pages of these commands for time complexity. Also an O(N) data transfer between the two instances is \
                 performed.",
    access: Access::Write,
    body: Body::Migrate(parse),
    categories: &[Category::Dangerous],
    tips: &["nondeterministic_output"],
    history: &[
        ("3.0.0", "Added the `COPY` and `REPLACE` options."),
        ("3.0.6", "Added the `KEYS` option."),
        ("4.0.7", "Added the `AUTH` option."),
        ("6.0.0", "Added the `AUTH2` option."),
    ],
    ..Command::USUAL
};

/// The timeout where the caller gives none.
const TIMEOUT: Duration = Duration::from_secs(1);

fn parse(args: Args<'_>) -> Result<Migration<'_>> {
    let (mut copy, mut replace, mut login, mut keys) = (false, false, None, 3..4);
    let mut i = 6;
    while i < args.len() {
        let words = |count: usize| {
            let words = i + 1..i + 1 + count;
            if words.end <= args.len() {
                Ok(words.map(|at| args.get(at)).collect::<Vec<_>>())
            } else {
                Err(Error::Syntax)
            }
        };
        if args.is(i, "copy") {
            copy = true;
        } else if args.is(i, "replace") {
            replace = true;
        } else if args.is(i, "auth") {
            login = Some(words(1)?);
            i += 1;
        } else if args.is(i, "auth2") {
            login = Some(words(2)?);
            i += 2;
        } else if args.is(i, "keys") {
            if !args.get(3).is_empty() {
                return Err(Error::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                ));
            }
            keys = i + 1..args.len();
            break;
        } else {
            return Err(Error::Syntax);
        }
        i += 1;
    }
    let timeout_ms = args.int(5)?;
    let database = args.int(4)?;
    let timeout = match u64::try_from(timeout_ms) {
        Ok(0) | Err(_) => TIMEOUT,
        Ok(timeout_ms) => Duration::from_millis(timeout_ms),
    };
    Ok(Migration { host: args.get(1), port: port(args.get(2)), database, timeout, copy, replace, login, keys })
}

/// A port, read as C reads a number and cut as a socket takes it.
fn port(text: &[u8]) -> u16 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    number::parse_i64(&text[..digits]).unwrap_or(0) as u16
}

/// A key as it is sent.
pub struct Parcel {
    /// The payload, as RESTORE takes it.
    pub payload: Dump,
    /// The deadline in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
}

/// A key of the transaction's database as it is to be sent; nothing if readers see none.
pub fn pack(txn: &mut Txn, name: &[u8]) -> Result<Option<Parcel>> {
    let key = txn.key(name);
    let Some(entry) = key::lookup(txn, &key)? else { return Ok(None) };
    let deadline_ms = entry.header.deadline_ms;
    Ok(Some(Parcel { payload: Dump::of(txn, &key, entry)?, deadline_ms }))
}

/// Removes a key that has gone to the target.
pub fn remove(txn: &mut Txn, name: &[u8]) -> Result<()> {
    let key = txn.key(name);
    if key::delete(txn, &key)? {
        txn.on_event(event::GENERIC, "del", &key);
    }
    // A key that has expired meanwhile is stated as deleted, too.
    statement::state_deletion(txn, name);
    Ok(())
}
