//! Users over sockets and across event loops: where they come from, and when their rules hold. The crate `acl` tests
//! what rules mean, `engine` where calls are looked at.

mod process;

use process::following::{field, replica_of};
use process::{Client, Server, TempDir, free_port};
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_change_holds_on_all_event_loops_when_it_is_answered() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &["--workers", "2"]);
    let mut admin = server.client();
    assert_eq!(admin.ask("ACL SETUSER bob on nopass ~* &* +@all"), "+OK\r\n");
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.ask("AUTH bob x"), "+OK\r\n");
    }
    for round in 0..300 {
        let at = round % clients.len();
        assert_eq!(admin.ask("ACL SETUSER bob -get"), "+OK\r\n");
        let refused = "-NOPERM User bob has no permissions to run the 'get' command\r\n";
        assert_eq!(clients[at].ask("GET k"), refused, "round {round}");
        assert_eq!(admin.ask("ACL SETUSER bob +get"), "+OK\r\n");
        assert_eq!(clients[at].ask("GET k"), "$-1\r\n", "round {round}");
    }
    let (subscriber, others) = clients.split_at_mut(1);
    assert!(subscriber[0].ask("SUBSCRIBE a").contains("subscribe"));
    assert_eq!(admin.ask("ACL SETUSER bob resetchannels &b"), "+OK\r\n");
    assert_eq!(subscriber[0].rest(), "", "who is subscribed to what is not his is closed");
    assert_eq!(others[0].ask("PING"), "+PONG\r\n");
    assert_eq!(admin.ask("ACL DELUSER bob"), ":1\r\n");
    for client in others {
        assert_eq!(client.rest(), "", "who is nobody any more is closed");
    }
    server.stop();
}

#[test]
fn a_file_of_users_is_read_at_the_start_and_by_acl_load() {
    let dir = TempDir::new();
    let file = dir.path().join("users.acl");
    let path = file.to_str().expect("a plain path");
    let text = "user default on nopass ~* &* +@all\nuser bob on >pw ~b* +@all\nuser joe on >pw ~* &* +@all\n";
    fs::write(&file, text).expect("it is new");
    let data = dir.path().join("data");
    fs::create_dir(&data).expect("it is new");
    let server = Server::start(&data, &["--aclfile", path]);
    let mut admin = server.client();
    let (mut bob, mut joe) = (server.client(), server.client());
    assert_eq!(bob.ask("AUTH bob pw"), "+OK\r\n");
    assert_eq!(joe.ask("AUTH joe pw"), "+OK\r\n");
    assert_eq!(bob.ask("GET a"), "-NOPERM No permissions to access a key\r\n");

    fs::write(&file, "user bob on +nosuch\nusr\n").expect("it is there");
    let wrong = format!(
        "-ERR {path}:1: Unknown command or category name in ACL. {path}:2 should start with user keyword followed by the \
         username. WARNING: ACL errors detected, no change to the previously active ACL rules was performed\r\n"
    );
    assert_eq!(admin.ask("ACL LOAD"), wrong);
    assert_eq!(bob.ask("GET b"), "$-1\r\n", "nothing has changed");

    fs::write(&file, "user bob on >other ~a* +@all\nuser sue off\n").expect("it is there");
    assert_eq!(admin.ask("ACL LOAD"), "+OK\r\n");
    assert_eq!(bob.ask("GET a"), "$-1\r\n", "who is still there goes on with the new rules");
    assert_eq!(bob.ask("GET b"), "-NOPERM No permissions to access a key\r\n");
    assert_eq!(joe.rest(), "", "who is not is closed");
    let listed = admin.ask("ACL LIST");
    assert!(listed.contains("user default on nopass sanitize-payload ~* &* +@all"), "{listed}");

    assert_eq!(admin.ask("ACL SETUSER sue on >pw +get"), "+OK\r\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is there");
    assert_eq!(admin.ask("ACL SAVE"), "+OK\r\n");
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o640);
    // The file is whole whoever else saves it meanwhile.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = server.client();
            scope.spawn(move || (0..50).for_each(|_| assert_eq!(client.ask("ACL SAVE"), "+OK\r\n")));
        }
    });
    let before = admin.ask("ACL LIST");
    assert!(admin.ask("CONFIG SET aclfile x").contains("can't set immutable config"));
    server.stop();
    let server = Server::start(&data, &["--aclfile", path]);
    assert_eq!(server.client().ask("ACL LIST"), before);
    fs::remove_file(&file).expect("it is there");
    let gone = server.client().ask("ACL LOAD");
    assert!(gone.starts_with("-ERR Error loading ACLs, opening file '") && gone.contains("No such file"), "{gone}");
    server.stop();
}

#[test]
fn who_ends_ones_own_connection_by_a_change_of_users_gets_the_reply() {
    let (dir, beside) = (TempDir::new(), TempDir::new());
    let file = beside.path().join("users.acl");
    fs::write(&file, "").expect("it is new");
    let server = Server::start(dir.path(), &["--aclfile", file.to_str().expect("a plain path")]);
    let mut admin = server.client();
    let rest_of = |admin: &mut Client<TcpStream>, last: &[&str]| {
        assert_eq!(admin.ask("ACL SETUSER bob on nopass +@all ~* &*"), "+OK\r\n");
        let mut client = server.client();
        assert_eq!(client.ask("AUTH bob x"), "+OK\r\n");
        let (before, last) = last.split_at(last.len() - 1);
        before.iter().for_each(|line| drop(client.ask(line)));
        client.send(format!("{}\r\n", last[0]).as_bytes());
        client.rest()
    };
    assert_eq!(rest_of(&mut admin, &["ACL DELUSER bob"]), ":1\r\n");
    assert_eq!(rest_of(&mut admin, &["MULTI", "ACL DELUSER bob", "EXEC"]), "*1\r\n:1\r\n");
    assert_eq!(rest_of(&mut admin, &["ACL LOAD"]), "+OK\r\n", "the file has no such user");
    fs::write(&file, "user bob on nopass +@all ~* &b\n").expect("it is there");
    let subscribed = ["HELLO 3", "SUBSCRIBE a"];
    for change in ["ACL LOAD", "ACL SETUSER bob resetchannels &b"] {
        let lines = [&subscribed[..], &[change]].concat();
        assert_eq!(rest_of(&mut admin, &lines), "+OK\r\n", "{change}");
    }
    server.stop();
}

#[test]
fn channels_of_new_users_are_those_of_the_directive_of_the_moment() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (mut admin, mut client) = (server.client(), server.client());
    let channels = |admin: &mut Client<TcpStream>, user: &str| {
        let user = admin.ask(&format!("ACL GETUSER {user}"));
        let lines: Vec<&str> = user.lines().collect();
        let at = lines.iter().position(|line| *line == "channels").expect("it is shown");
        lines[at + 2].to_owned()
    };
    for (given, expected) in [(None, ""), (Some("allchannels"), "&*"), (Some("resetchannels"), "")] {
        if let Some(given) = given {
            assert_eq!(admin.ask(&format!("CONFIG SET acl-pubsub-default {given}")), "+OK\r\n");
        }
        let name = format!("of-{}", given.unwrap_or("default"));
        assert_eq!(admin.ask(&format!("ACL SETUSER {name} on nopass +@all ~*")), "+OK\r\n");
        assert_eq!(channels(&mut admin, &name), expected, "{name}");
        assert_eq!(client.ask(&format!("AUTH {name} x")), "+OK\r\n");
        let published = client.ask("PUBLISH news hello");
        let is_refused = published == "-NOPERM No permissions to access a channel\r\n";
        assert_eq!(is_refused, expected.is_empty(), "{name}: {published}");
    }
    assert_eq!(channels(&mut admin, "of-allchannels"), "&*", "who was there stays as it was");
    server.stop();
}

#[test]
fn the_log_of_denials_keeps_as_many_as_the_directive_of_the_moment_says() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let (mut admin, mut client) = (server.client(), server.client());
    assert_eq!(admin.ask("ACL SETUSER bob on nopass +@all ~none"), "+OK\r\n");
    assert_eq!(client.ask("AUTH bob x"), "+OK\r\n");
    let mut deny = |from: usize, to: usize| {
        (from..to).for_each(|n| assert!(client.ask(&format!("GET denied:{n}")).starts_with("-NOPERM")));
    };
    let objects = |admin: &mut Client<TcpStream>| {
        let log = admin.ask("ACL LOG 1000");
        log.lines().filter_map(|line| line.strip_prefix("denied:").map(str::to_owned)).collect::<Vec<_>>()
    };
    deny(0, 20);
    assert_eq!(objects(&mut admin).len(), 20);
    assert_eq!(admin.ask("CONFIG SET acllog-max-len 5"), "+OK\r\n");
    deny(20, 21);
    assert_eq!(objects(&mut admin), ["20", "19", "18", "17", "16"], "the newest stay");
    assert_eq!(admin.ask("CONFIG SET acllog-max-len 8"), "+OK\r\n");
    deny(21, 30);
    assert_eq!(objects(&mut admin), ["29", "28", "27", "26", "25", "24", "23", "22"]);
    assert_eq!(admin.ask("CONFIG SET acllog-max-len 0"), "+OK\r\n");
    deny(30, 31);
    assert!(objects(&mut admin).is_empty());
    server.stop();
}

#[test]
fn a_replica_ends_with_its_user() {
    let dirs = [TempDir::new(), TempDir::new()];
    let master = Server::start(dirs[0].path(), &["--user", "repl", "on", ">pw", "+@all", "~*"]);
    let replica = replica_of(&master, dirs[1].path(), &["--masteruser", "repl", "--masterauth", "pw"]);
    let mut admin = master.client();
    assert!(admin.ask("CLIENT LIST TYPE replica").contains(" user=repl "));
    assert_eq!(admin.ask("ACL DELUSER repl"), ":1\r\n");
    process::wait_until("the replica has gone", || field(&mut admin, "connected_slaves") == "0");
    let mut client = replica.client();
    process::wait_until("it is not let in again", || field(&mut client, "master_link_status") == "down");
    replica.stop();
    master.stop();
}

#[test]
fn lines_of_the_configuration_make_users() {
    let dir = TempDir::new();
    let users =
        ["--user", "bob", "on", ">s3cret", "~b*", "(+get", "~a*)", "--user", "joe", "off", "--requirepass", "pw"];
    let port = free_port();
    let server = Server::spawn(dir.path(), port, &users);
    process::wait_until("it listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut client = server.client();
    assert_eq!(client.ask("AUTH bob s3cret"), "+OK\r\n");
    process::wait_until("it serves", || client.ask("GET a") == "$-1\r\n");
    assert_eq!(client.ask("GET b"), "-NOPERM No permissions to access a key\r\n");
    assert!(client.ask("AUTH joe x").starts_with("-WRONGPASS"));
    assert!(server.client().ask("PING").starts_with("-NOAUTH"), "the password is the default user's");
    assert_eq!(client.ask("AUTH pw"), "+OK\r\n");
    assert!(client.ask("ACL SAVE").starts_with("-ERR This Redis instance is not configured to use an ACL file."));
    let seen = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("it runs");
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(!seen.contains("s3cret") && seen.contains("--user"), "{seen}");
    let info = client.ask("INFO everything");
    assert!(!info.contains("s3cret"), "{info}");
    server.stop();
}
