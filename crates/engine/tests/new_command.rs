//! A command of a new kind needs its own file and a line in a table. The one here is a read that waits for a list and
//! has no timeout: no command of Redis combines these. It runs in every way there is without a word in the engine.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_commands::error::Result;
use haypile_commands::table::{Arity, Group, Keys, Use};
use haypile_commands::{Access, Args, Awaited, Body, Command, Table, Tried};
use haypile_resp::Reply;
use haypile_store::Txn;
use haypile_types::key::Type;
use haypile_types::list;
use server::{Data, Server, check_on};

const AWAITLEN: Command = Command {
    name: "awaitlen",
    since: "7.2.0",
    group: Group::List,
    arity: Arity::exactly(2),
    keys: Keys::first(1).ro(&[Use::Access]),
    summary: "Waits until there is a list, and returns its length.",
    syntax: "key",
    access: Access::Read,
    body: Body::Wait(awaitlen),
    ..Command::USUAL
};

fn awaitlen(txn: &mut Txn, args: Args) -> Result<Tried> {
    let key = args.key(txn, 1);
    Ok(match list::read(txn, &key)? {
        Some(list) => Tried::Got(Reply::Integer(list.len() as i64)),
        None => Tried::Nothing(Awaited::new(1..2, Type::List, None, Reply::Null)),
    })
}

#[test]
fn a_command_of_a_new_kind_needs_its_entry_and_its_function() {
    let mut server = Server::with_table(Data::new(), Table::with(&[AWAITLEN]));
    check_on(
        &mut server,
        "at once, in a block, from the disk, and when its key has come",
        "0: RPUSH l a b => :2
         0: AWAITLEN l => :2
         0: AWAITLEN l m => -ERR wrong number of arguments for 'awaitlen' command
         0: MULTI => +OK
         0: AWAITLEN l => +QUEUED
         0: AWAITLEN none => +QUEUED
         0: SET s v => +QUEUED
         0: AWAITLEN s => +QUEUED
         0: EXEC => *4 :2 $-1 +OK -WRONGTYPE Operation against a key holding the wrong kind of value
         freeze
         0: AWAITLEN l => :2
         freeze
         0: MULTI => +OK
         0: AWAITLEN l => +QUEUED
         0: EXEC => *1 :2",
    );
    server.send(0, "AWAITLEN later");
    assert!(server.waits(0));
    assert_eq!(server.ask(1, "RPUSH later x y z"), ":3");
    assert_eq!(server.reply(0), ":3");
    let info = server.ask(1, "COMMAND INFO awaitlen");
    assert!(info.contains("+readonly") && info.contains("+blocking") && !info.contains("+write"), "{info}");
}
