//! FUNCTION: what its subcommands answer, word by word as redis-server 7.0 does. That libraries are data, and what runs
//! of functions are, is tested over sockets, with the server.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::{Server, check_on};

/// A library of one function, as `FUNCTION LOAD` of a test line takes it.
fn code(library: &str, function: &str) -> String {
    format!(
        "#!lua␣name={library}␤redis.register_function{{function_name='{function}',flags={{'no-writes'}},\
         description='reads',callback=function()␣return␣1␣end}}"
    )
}

/// The entry of such a library in FUNCTION LIST, to RESP2.
fn listed(library: &str, function: &str) -> String {
    let length = library.len();
    format!(
        "$12 library_name ${length} {library} $6 engine $3 LUA $9 functions *1 *6 $4 name $2 {function} $11 description $5 \
         reads $5 flags *1 +no-writes"
    )
}

/// A server with the libraries `one` and `other`.
fn server() -> Server {
    let mut server = Server::new();
    assert_eq!(server.ask(0, &format!("FUNCTION LOAD {}", code("one", "f1"))), "$3 one");
    assert_eq!(server.ask(0, &format!("FUNCTION LOAD {}", code("other", "f2"))), "$5 other");
    server
}

#[test]
fn libraries_are_listed_by_patterns_of_their_names() {
    let mut server = server();
    let (one, other) = (listed("one", "f1"), listed("other", "f2"));
    let text = code("one", "f1").replace('␣', " ").replace('␤', "\n");
    let length = text.len();
    check_on(
        &mut server,
        "with their code where it is asked for",
        &format!(
            "
            0: FUNCTION LIST => *2 *6 {one} *6 {other}
            0: FUNCTION LIST LIBRARYNAME on* => *1 *6 {one}
            0: FUNCTION LIST libraryname O?E => *1 *6 {one}
            0: FUNCTION LIST LIBRARYNAME x* => *0
            0: FUNCTION LIST LIBRARYNAME => -ERR library name argument was not given
            0: FUNCTION LIST NOSUCH => -ERR Unknown argument NOSUCH
            0: FUNCTION LIST WITHCODE WITHCODE => -ERR Unknown argument WITHCODE
            0: FUNCTION LIST LIBRARYNAME a LIBRARYNAME b => -ERR Unknown argument LIBRARYNAME
            "
        ),
    );
    let with_code = format!("*1 *8 {one} $12 library_code ${length} {text}");
    assert_eq!(server.ask(0, "FUNCTION LIST WITHCODE LIBRARYNAME one"), with_code);
    assert_eq!(server.ask(0, "FUNCTION LIST LIBRARYNAME one WITHCODE"), with_code);
    server.ask(0, "HELLO 3");
    let in_resp3 = one.replace("*6", "%3").replace("flags *1", "flags ~1");
    assert_eq!(server.ask(0, "FUNCTION LIST LIBRARYNAME one"), format!("*1 %3 {in_resp3}"));
}

#[test]
fn libraries_are_deleted_by_their_names_or_all_together() {
    let mut server = server();
    let other = listed("other", "f2");
    check_on(
        &mut server,
        "whether the client waits for it or not",
        &format!(
            "
            0: FUNCTION DELETE nosuch => -ERR Library not found
            0: FUNCTION DELETE ONE => -ERR Library not found
            0: FUNCTION DELETE => -ERR wrong number of arguments for 'function|delete' command
            0: FUNCTION DELETE one => +OK
            0: FCALL f1 0 => -ERR Function not found
            0: FUNCTION LIST => *1 *6 {other}
            0: FUNCTION FLUSH NOW => -ERR FUNCTION FLUSH only supports SYNC|ASYNC option
            0: FUNCTION FLUSH ASYNC x => -ERR unknown subcommand or wrong number of arguments for 'FLUSH'. Try FUNCTION HELP.
            0: FUNCTION flush a b => -ERR unknown subcommand or wrong number of arguments for 'flush'. Try FUNCTION HELP.
            0: FCALL f2 0 => :1
            0: FUNCTION FLUSH SYNC => +OK
            0: FUNCTION LIST => *0
            0: FCALL f2 0 => -ERR Function not found
            "
        ),
    );
    for how in ["", " ASYNC", " async", " SYNC"] {
        server.ask(0, &format!("FUNCTION LOAD {}", code("one", "f1")));
        assert_eq!(server.ask(0, "FCALL f1 0"), ":1");
        assert_eq!(server.ask(0, &format!("FUNCTION FLUSH{how}")), "+OK");
        assert_eq!(server.ask(0, "FUNCTION LIST"), "*0", "{how}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_the_words_of_redis() {
    let mut server = server();
    let kept = server.ask(0, "FUNCTION LIST WITHCODE");
    for (command, reply) in [
        ("RESTORE x", "-ERR DUMP payload version or checksum are wrong"),
        ("RESTORE x KEEP", "-ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."),
        (
            "RESTORE x APPEND y",
            "-ERR unknown subcommand or wrong number of arguments for 'RESTORE'. Try FUNCTION HELP.",
        ),
        ("restore a b c", "-ERR unknown subcommand or wrong number of arguments for 'restore'. Try FUNCTION HELP."),
        ("RESTORE", "-ERR wrong number of arguments for 'function|restore' command"),
        ("DUMP x", "-ERR wrong number of arguments for 'function|dump' command"),
        ("KILL x", "-ERR wrong number of arguments for 'function|kill' command"),
        ("HELP x", "-ERR wrong number of arguments for 'function|help' command"),
        ("NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try FUNCTION HELP."),
        ("LOAD REPLACE", "-ERR Missing library metadata"),
        ("LOAD FOO #!lua␣name=a␤", "-ERR Unknown option given: FOO"),
        ("LOAD #!lua␣name=x␤", "-ERR No functions registered"),
    ] {
        assert_eq!(server.ask(0, &format!("FUNCTION {command}")), reply, "{command}");
    }
    assert_eq!(server.ask(0, "FUNCTION LIST WITHCODE"), kept);
}

#[test]
fn help_of_functions_names_each_subcommand() {
    let mut server = Server::new();
    let help = server.ask(0, "FUNCTION HELP");
    assert!(help.contains("+FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"), "{help}");
    for line in [
        "+DELETE <library-name>",
        "+DUMP",
        "+FLUSH [ASYNC|SYNC]",
        "+HELP",
        "+KILL",
        "+LIST [LIBRARYNAME <library-name-pattern>] [WITHCODE]",
        "+LOAD [REPLACE] <function-code>",
        "+RESTORE <serialized-value> [FLUSH|APPEND|REPLACE]",
        "+STATS",
    ] {
        assert!(help.contains(&format!(" {line} +    ")), "{line}: {help}");
    }
}
