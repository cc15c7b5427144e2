//! Commands of very many keys whose rows are on disk: their rows are looked up in order, and nobody can tell.
#![cfg(not(feature = "shuttle"))]

mod server;

use haypile_store::row;
use server::Server;

/// More arguments than an event loop works on at once.
const KEYS: usize = 5000;

/// The content of a key of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    String,
    List,
    /// A deadline that has passed.
    Expired,
    Nothing,
}

fn holds(number: usize) -> Holds {
    match number % 10 {
        3 => Holds::List,
        5 => Holds::Expired,
        7 => Holds::Nothing,
        _ => Holds::String,
    }
}

/// A server with cold keys `k0` and so on.
fn server() -> Server {
    let mut server = Server::new();
    for number in 0..KEYS {
        match holds(number) {
            Holds::String => _ = server.ask(0, &format!("SET k{number} value:{number}")),
            Holds::List => _ = server.ask(0, &format!("RPUSH k{number} element")),
            Holds::Expired => _ = server.ask(0, &format!("SET k{number} old PX 1")),
            Holds::Nothing => {}
        }
    }
    // The I/O pool goes by the clock of the machine.
    while server.engine.now_ms() <= server.now_ms + 1 {
        std::thread::yield_now();
    }
    server.now_ms = server.engine.now_ms();
    freeze(&mut server);
    server
}

/// Moves all rows out of the memtable, onto the pretended disk.
fn freeze(server: &mut Server) {
    server.freeze();
    server.ask(0, "SET another v");
    server.freeze();
}

/// Numbers of keys as a request has them: in no order, some of them twice.
fn request() -> Vec<usize> {
    let numbers = (0..KEYS).map(|at| at * 1237 % KEYS);
    numbers.flat_map(|number| std::iter::repeat_n(number, 1 + usize::from(number.is_multiple_of(9)))).collect()
}

fn command(name: &str, numbers: &[usize]) -> String {
    let names: String = numbers.iter().map(|number| format!(" k{number}")).collect();
    format!("{name}{names}")
}

#[test]
fn replies_are_those_of_the_order_of_the_request() {
    let mut server = server();
    let request = request();
    let is_there = |number: &&usize| matches!(holds(**number), Holds::String | Holds::List);
    let there = request.iter().filter(is_there).count();
    for name in ["EXISTS", "TOUCH"] {
        assert_eq!(server.ask(0, &command(name, &request)), format!(":{there}"), "{name}");
    }
    let values = request.iter().map(|&number| match holds(number) {
        Holds::String => format!(" ${} value:{number}", format!("value:{number}").len()),
        _ => " $-1".into(),
    });
    let expected = format!("*{}{}", request.len(), values.collect::<String>());
    assert!(server.ask(0, &command("MGET", &request)) == expected, "each value is in its place");
    // The last value counts of a key that a MSET names twice.
    let pairs: String = request.iter().enumerate().map(|(at, number)| format!(" k{number} new:{at}")).collect();
    assert_eq!(server.ask(0, &format!("MSET{pairs}")), "+OK");
    for number in (0..KEYS).step_by(9) {
        let at = request.iter().rposition(|other| *other == number).expect("it is there");
        let value = format!("new:{at}");
        assert_eq!(server.ask(0, &format!("GET k{number}")), format!("${} {value}", value.len()));
    }
    freeze(&mut server);
    let (some, rest) = request.split_at(4500);
    let mut unique = some.to_vec();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(server.ask(0, &command("DEL", some)), format!(":{}", unique.len()));
    assert_eq!(server.ask(0, &command("UNLINK", rest)), format!(":{}", KEYS - unique.len()));
    assert_eq!(server.ask(0, "DBSIZE"), ":1", "the other key");
}

/// Returns the lookups of single rows that a command makes, the ordered reads, and how many lookups go back.
fn looked_up(server: &mut Server, command: &str) -> (u64, u64, u64) {
    let (faults, before) = (server.store.faults.clone(), server.store.faults.reads());
    let back = faults.gets_back();
    server.ask(0, command);
    let after = faults.reads();
    (after.0 - before.0, after.1 - before.1, faults.gets_back() - back)
}

#[test]
fn rows_are_looked_up_in_their_order_and_by_one_read_where_they_go() {
    let mut server = server();
    let request = request();
    let (gets, views, back) = looked_up(&mut server, &command("MGET", &request));
    assert!(gets > KEYS as u64 / 2 && views == 0 && back <= 1, "{gets} lookups, {back} of them back, {views} reads");
    let pairs: String = request.iter().map(|number| format!(" k{number} v")).collect();
    let (gets, views, _) = looked_up(&mut server, &format!("MSET{pairs}"));
    assert!(gets < 10 && views <= 1, "{gets} lookups, {views} reads");
    freeze(&mut server);
    let (gets, views, _) = looked_up(&mut server, &command("DEL", &request));
    assert!(gets < 10 && views == 1, "{gets} lookups, {views} reads");
}

#[test]
fn events_are_told_in_the_order_of_the_request() {
    let mut server = server();
    assert_eq!(server.ask(0, "CONFIG SET notify-keyspace-events Eg"), "+OK");
    server.ask(1, "SUBSCRIBE __keyevent@0__:del");
    let request = request();
    server.ask(0, &command("DEL", &request));
    let told = server.ask(1, "PING");
    let told: Vec<&str> = told.split_whitespace().filter(|word| word.starts_with('k')).collect();
    let mut expected: Vec<String> = Vec::new();
    for number in request {
        let name = format!("k{number}");
        if matches!(holds(number), Holds::String | Holds::List) && expected.last() != Some(&name) {
            expected.push(name);
        }
    }
    assert!(told == expected, "{} events of {}", told.len(), expected.len());
}

#[test]
fn keys_of_the_test_are_in_no_order() {
    let server = Server::new();
    let rows = request().into_iter().map(|number| {
        let name = format!("k{number}");
        row::meta_row(&server.store.store.key(0, name.as_bytes())).to_vec()
    });
    assert!(!rows.collect::<Vec<_>>().is_sorted());
}
