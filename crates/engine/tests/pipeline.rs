//! Commands that come in one go: parsed and located ahead of each other, they still see what the ones before them did.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::Server;

/// Sends all commands at once and compares all that comes back.
fn check(what: &str, server: &mut Server, commands: &[&str], expected: &str) {
    server.send_together(0, commands);
    assert_eq!(server.reply(0), expected, "{what}");
}

#[test]
fn a_pipeline_is_answered_in_order() {
    let commands = ["SET a 1", "MULTI", "INCR a", "EXEC", "GET a", "NOSUCH", "PING"];
    let expected = "+OK +OK +QUEUED *1 :2 $1 2 -ERR unknown command 'NOSUCH', with args beginning with:  +PONG";
    check("replies and errors", &mut Server::new(), &commands, expected);
    let many: Vec<&str> = std::iter::repeat_n("INCR n", 100).collect();
    let numbers: Vec<String> = (1..=100).map(|number| format!(":{number}")).collect();
    check("more than are parsed ahead", &mut Server::new(), &many, &numbers.join(" "));
}

#[test]
fn what_a_command_changes_holds_for_the_next_one() {
    let mut server = Server::new();
    let commands = ["SET k zero", "SELECT 1", "SET k one", "GET k", "SELECT 0", "GET k", "SWAPDB 0 1", "GET k"];
    check(
        "the database of a key that was located before",
        &mut server,
        &commands,
        "+OK +OK +OK $3 one +OK $4 zero +OK $3 one",
    );
    let commands = ["SET a 1", "FLUSHALL", "GET a", "SET a 2", "GET a", "DBSIZE"];
    check("all keys are gone", &mut server, &commands, "+OK +OK $-1 +OK $1 2 :1");
}

#[test]
fn who_has_to_wait_holds_up_only_what_is_behind() {
    let mut server = Server::new();
    server.ask(0, "SET cold 1");
    server.freeze();
    let commands = ["SET hot 1", "INCR cold", "INCR hot", "MGET cold hot", "INCR cold", "GET nosuch"];
    check("a row that only the disk has", &mut server, &commands, "+OK :2 :2 *2 $1 2 $1 2 :3 $-1");
}

#[test]
fn a_key_that_is_not_there_is_known_to_be_absent() {
    let mut server = Server::new();
    server.ask(0, "SET cold 1");
    server.freeze();
    server.send(0, "GET nosuch");
    assert!(!server.waits(0), "the base was empty when it was opened: what was not written is not there");
    assert_eq!(server.reply(0), "$-1");
    server.send(0, "GET cold");
    assert!(server.waits(0), "what was written is looked for");
    assert_eq!(server.reply(0), "$1 1");
}

#[test]
fn many_keys_of_one_command_are_all_found() {
    let mut server = Server::new();
    let names: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    let pairs: Vec<String> = names.iter().map(|name| format!("{name} {name}")).collect();
    assert_eq!(server.ask(0, &format!("MSET {}", pairs.join(" "))), "+OK");
    let values: Vec<String> = names.iter().map(|name| format!("${} {name}", name.len())).collect();
    let expected = format!("*200 {} {}", values.join(" "), values[7]);
    check("more than are located ahead", &mut server, &[&format!("MGET {}", names.join(" ")), "GET k7"], &expected);
}

#[test]
fn what_is_no_request_ends_the_connection_behind_the_replies() {
    let mut server = Server::new();
    server.send_bytes(0, b"PING\r\nPING\r\n*1\r\n!\r\nPING\r\n");
    assert_eq!(server.reply_so_far(0), "+PONG\r\n+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n");
    assert!(server.is_closed(0));
    server.send_bytes(1, b"PING\r\nQUIT\r\nPING\r\n");
    assert_eq!(server.reply_so_far(1), "+PONG\r\n+OK\r\n", "nothing runs behind QUIT");
}
