//! Limits of what the clients of a user may take, without sockets: `client: command => all that it gets`. The server's
//! tests have those that wait and those that are closed.

mod server;

use server::{Server, check, check_on};

#[test]
fn limits_are_rules_of_a_user() {
    check(
        "they are shown where there are any, and go with the others",
        "
        0: ACL SETUSER bob on nopass ~* +@all rate=1000 bandwidth=10mb memory=64mb connections=7 => +OK
        0: ACL LIST => *2 $117 user bob on nopass sanitize-payload ~* resetchannels +@all rate=1000 bandwidth=10485760 \
         memory=67108864 connections=7 $51 user default on nopass sanitize-payload ~* &* +@all
        ",
    );
}

#[test]
fn calls_beyond_a_limit_are_refused() {
    let mut server = Server::new();
    let refused = "-LIMIT the bandwidth of user 'bob' is used up, try again in";
    check_on(
        &mut server,
        "where the policy says so",
        "
        0: CONFIG SET user-limit-policy refuse => +OK
        0: ACL SETUSER bob on nopass ~* +@all => +OK
        1: AUTH bob x => +OK
        0: ACL SETUSER bob bandwidth=1 => +OK
        1: SET k v => +OK
        ",
    );
    let error = server.ask(1, "GET k");
    assert!(error.starts_with(refused), "{error}");
    check_on(
        &mut server,
        "a block as a whole",
        "
        0: ACL SETUSER bob bandwidth=0 => +OK
        1: MULTI => +OK
        1: SET k w => +QUEUED
        0: ACL SETUSER bob bandwidth=1 => +OK
        ",
    );
    let error = server.ask(1, "EXEC");
    let aborted = format!("-EXECABORT Transaction discarded because of: {}", &refused[1..]);
    assert!(error.starts_with(&aborted), "{error}");
    check_on(
        &mut server,
        "who is somebody else is not concerned",
        "
        1: AUTH default x => +OK
        1: GET k => $1 v
        2: GET k => $1 v
        ",
    );
}

#[test]
fn the_rate_of_a_user_is_that_of_all_its_clients() {
    let mut server = Server::new();
    server.ask(0, "CONFIG SET user-limit-policy refuse");
    server.ask(0, "ACL SETUSER bob on nopass ~* +@all rate=2");
    let mut ran = 0;
    for round in 0..20 {
        for client in [1, 2] {
            if round == 0 {
                assert_eq!(server.ask(client, "AUTH bob x"), "+OK");
            }
            ran += usize::from(server.ask(client, "PING") == "+PONG");
        }
    }
    assert!((2..10).contains(&ran), "{ran} of 40 calls ran");
    let info = server.ask(0, "INFO clients");
    assert!(info.contains("limits0:user=bob,used_connections=2,used_memory=0,"), "{info}");
    assert!(info.contains(&format!("refused={}", 40 - ran)) && info.contains(",rate=2"), "{info}");
}

#[test]
fn connections_of_a_user_are_counted() {
    let full = "-ERR max number of connections of user 'bob' reached: 2";
    check(
        "a login beyond the limit fails, until somebody has gone",
        &format!(
            "
            0: ACL SETUSER bob on >pw ~* +@all connections=2 => +OK
            1: AUTH bob pw => +OK
            2: AUTH bob pw => +OK
            1: AUTH bob pw => +OK
            3: AUTH bob pw => {full}
            3: HELLO 3 AUTH bob pw => {full}
            3: ACL WHOAMI => $7 default
            3: AUTH bob no => -WRONGPASS invalid username-password pair or user is disabled.
            2: RESET => +RESET
            3: AUTH bob pw => +OK
            2: AUTH bob pw => {full}
            0: ACL SETUSER bob connections=3 => +OK
            2: AUTH bob pw => +OK
            0: ACL SETUSER bob connections=1 => +OK
            2: PING => +PONG
            3: PING => +PONG
            "
        ),
    );
    check(
        "of the default user as well; whoever comes then may log in as somebody else",
        "
        1: PING => +PONG
        0: ACL SETUSER default connections=2 => +OK
        0: ACL SETUSER bob on >pw ~* +@all => +OK
        2: PING => -ERR max number of connections of user 'default' reached: 2
        2: AUTH bob pw => +OK
        2: PING => +PONG
        1: AUTH bob pw => +OK
        3: PING => +PONG
        1: RESET => +RESET
        1: PING => -ERR max number of connections of user 'default' reached: 2
        ",
    );
}

#[test]
fn calls_that_fail_count_as_others() {
    let mut server = Server::new();
    server.ask(0, "CONFIG SET user-limit-policy refuse");
    for (user, rights, call, answer) in [
        ("ann", "+@all", "NOSUCH", "-ERR unknown command"),
        ("bob", "+@all", "GET", "-ERR wrong number of arguments"),
        ("cid", "+get", "SET a b", "-NOPERM"),
        ("dan", "+@all", "PING", "+PONG"),
    ] {
        server.ask(0, &format!("ACL SETUSER {user} on nopass ~* {rights}"));
        assert_eq!(server.ask(1, &format!("AUTH {user} x")), "+OK");
        server.ask(0, &format!("ACL SETUSER {user} rate=2"));
        let replies: Vec<String> = (0..20).map(|_| server.ask(1, call)).collect();
        let (ran, refused): (Vec<&String>, Vec<&String>) = replies.iter().partition(|reply| reply.starts_with(answer));
        assert!((1..10).contains(&ran.len()), "{call}: {replies:?}");
        let error = format!("-LIMIT the rate of user '{user}' is used up");
        assert!(refused.iter().all(|reply| reply.starts_with(&error)), "{call}: {refused:?}");
    }
    // Logins are let through, and paid for.
    server.ask(0, "ACL SETUSER eve on nopass ~* +@all");
    assert_eq!(server.ask(1, "AUTH eve x"), "+OK");
    server.ask(0, "ACL SETUSER eve rate=1");
    for _ in 0..5 {
        assert!(server.ask(1, "HELLO 2").starts_with("*14"));
    }
    assert!(server.ask(1, "PING").starts_with("-LIMIT the rate"));
}

#[test]
fn a_call_that_is_held_counts_once() {
    let mut server = Server::new();
    for command in ["CONFIG SET user-limit-policy refuse", "ACL SETUSER bob on nopass ~* +@all"] {
        server.ask(0, command);
    }
    server.ask(1, "AUTH bob x");
    server.ask(0, "ACL SETUSER bob rate=3");
    server.ask(0, "CLIENT PAUSE 100000 WRITE");
    server.send(1, "SET k v");
    for _ in 0..10 {
        // A held command looks again each time, and finds another pause.
        server.send_together(0, &["CLIENT UNPAUSE", "CLIENT PAUSE 100000 WRITE"]);
    }
    server.ask(0, "CLIENT UNPAUSE");
    assert_eq!(server.reply(1), "+OK");
    let info = server.ask(0, "INFO clients");
    assert!(info.contains(",calls=1,"), "{info}");
}

#[test]
fn strangers_take_nothing_from_the_default_user() {
    check(
        "neither a connection nor a call",
        "
        0: CONFIG SET user-limit-policy refuse => +OK
        0: ACL SETUSER bob on nopass ~* +@all => +OK
        0: AUTH bob x => +OK
        0: ACL SETUSER default resetpass >pw connections=1 rate=1000 => +OK
        1: PING => -NOAUTH Authentication required.
        2: PING => -NOAUTH Authentication required.
        2: NOSUCH => -ERR unknown command 'NOSUCH', with args beginning with:
        3: AUTH pw => +OK
        3: PING => +PONG
        2: AUTH pw => -ERR max number of connections of user 'default' reached: 1
        ",
    );
}
