//! The short form of `make raft-chaos`: the checker on histories that are known to be sound or not, on systems in
//! memory that lie, and on one server that is killed.

use std::path::Path;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use haypile_harness::raft_chaos::check::porcupine::Checker;
use haypile_harness::raft_chaos::check::{Verdict, check};
use haypile_harness::raft_chaos::group::{Group, Surroundings};
use haypile_harness::raft_chaos::history::History;
use haypile_harness::raft_chaos::lies::{Liar, Lie};
use haypile_harness::raft_chaos::load::{Board, Client, Counts};
use haypile_harness::raft_chaos::memory::Memory;
use haypile_harness::raft_chaos::network::Network;
use haypile_harness::raft_chaos::operation::{Kind, Session};
use haypile_harness::raft_chaos::scenario::Scenario;
use haypile_harness::raft_chaos::systems::single::{DIRECTIVES, Single};
use haypile_harness::raft_chaos::{Options, run};
use haypile_harness::random::{Random, fresh_seed};
use haypile_harness::server::{Template, haypile_binary};

/// The checker, built once. The first build fetches Porcupine.
fn checker() -> &'static Checker {
    static CHECKER: OnceLock<Checker> = OnceLock::new();
    CHECKER.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("raft-chaos");
        Checker::build(&place).expect("go must be installed")
    })
}

fn verdict(history: &History) -> Verdict {
    check(history, checker(), Duration::from_secs(60)).expect("the checker runs")
}

/// Checks histories, each with its name; the verdict on all of them must be the same.
fn check_all(is_sound: bool, histories: &[(&str, &str)]) {
    for (name, text) in histories {
        let verdict = verdict(&History::parse(text).expect("operations are written as they are read"));
        assert_eq!(verdict.violations.is_empty(), is_sound, "{name}: {:#?}", verdict.violations);
    }
}

#[test]
fn sound_histories_pass() {
    check_all(
        true,
        &[
            (
                "a read beside a write sees either",
                "register:1 1 0 10 write 5 =\nregister:1 2 20 40 write 6 =\nregister:1 3 25 30 read = 6\n\
                 register:1 4 21 29 read = 5",
            ),
            (
                "a write of unknown outcome shows later",
                "register:1 1 0 ? write 5\nregister:1 2 10 20 read = 0\nregister:1 2 900 910 read = 5",
            ),
            ("a write of unknown outcome never shows", "register:1 1 0 ? write 5\nregister:1 2 900 910 read = 0"),
            ("a write that failed never shows", "register:1 1 0 ! write 5\nregister:1 2 900 910 read = 0"),
            (
                "a swap says what was held",
                "register:1 1 0 10 write 5 =\nregister:1 2 20 30 swap 5 6 = 5\nregister:1 3 40 50 swap 5 7 = 6\n\
                 register:1 3 60 70 read = 6",
            ),
            ("additions at once, in either order", "counter:1 1 0 10 add 3 = 8\ncounter:1 2 0 10 add 5 = 5"),
            (
                "an append of unknown outcome shows later",
                "list:1 1 0 ? append 5\nlist:1 2 10 20 append 6 = 1\nlist:1 2 30 40 read = 6\nlist:1 2 50 60 read = 6 5",
            ),
            (
                "a sorted set is in order",
                "sorted:1 1 0 10 score 2 7 = 1\nsorted:1 1 20 30 score 1 7 = 1\nsorted:1 1 40 50 raise 3 2 = 2\n\
                 sorted:1 2 60 70 read = 3 2 1 7 2 7\nsorted:1 2 80 90 remove 3 = 1\nsorted:1 2 91 92 score 1 9 = 0",
            ),
            (
                "both of a pair are written and exchanged",
                "pair:1 1 0 10 both 1 2 =\npair:1 2 5 20 exchange = 1 2\npair:1 3 30 40 read = 2 1",
            ),
            (
                "transactions see each other in one order",
                "family:1 1 0 10 transact 0+5 1+6 =\nfamily:1 2 5 20 transact 0? 1? = 5 | 6\n\
                 family:1 3 15 30 transact 0+7 0? = 5 7",
            ),
            (
                "a transaction of unknown outcome shows as a whole",
                "family:1 1 0 ? transact 0+5 1+6 =\nfamily:1 2 5 20 transact 0? 1? = |\n\
                 family:1 3 30 40 transact 0? 1? = 5 | 6",
            ),
        ],
    );
}

#[test]
fn anomalies_of_one_object_are_found() {
    check_all(
        false,
        &[
            ("a stale read", "register:1 1 0 10 write 5 =\nregister:1 1 20 30 write 6 =\nregister:1 2 40 50 read = 5"),
            (
                "two reads go back in time",
                "register:1 1 0 90 write 5 =\nregister:1 2 10 20 read = 5\nregister:1 2 30 40 read = 0",
            ),
            ("a lost write", "register:1 1 0 10 write 5 =\nregister:1 2 20 30 read = 0"),
            ("a value that was never written", "register:1 1 0 10 write 5 =\nregister:1 2 20 30 read = 7"),
            ("a write that failed and shows", "register:1 1 0 ! write 5\nregister:1 2 20 30 read = 5"),
            (
                "a write of unknown outcome shows and vanishes",
                "register:1 1 0 ? write 5\nregister:1 2 10 20 read = 5\nregister:1 2 30 40 read = 0",
            ),
            (
                "a lost update: two swaps of one value",
                "register:1 1 0 10 write 5 =\nregister:1 2 20 30 swap 5 6 = 5\nregister:1 3 20 30 swap 5 7 = 5",
            ),
            ("a lost addition", "counter:1 1 0 10 add 3 = 3\ncounter:1 2 0 10 add 5 = 5"),
            ("an addition that came twice", "counter:1 1 0 10 add 3 = 3\ncounter:1 1 20 30 read = 6"),
            (
                "a member that comes back",
                "sorted:1 1 0 9 score 1 7 = 1\nsorted:1 1 10 19 remove 1 = 1\nsorted:1 2 20 29 read = 1 7",
            ),
            ("half of a MULTI", "pair:1 1 0 10 both 1 2 =\npair:1 1 20 40 both 3 4 =\npair:1 2 25 30 read = 3 2"),
            ("half of a script", "pair:1 1 0 10 both 1 2 =\npair:1 2 20 40 exchange = 1 2\npair:1 3 25 30 read = 2 2"),
        ],
    );
}

#[test]
fn anomalies_of_lists_are_found() {
    check_all(
        false,
        &[
            ("a lost append", "list:1 1 0 10 append 5 = 1\nlist:1 1 20 30 append 6 = 1\nlist:1 2 40 50 read = 6"),
            (
                "a lost append, in a transaction",
                "family:1 1 0 10 transact 0+5 =\nfamily:1 2 20 30 transact 0+6 =\nfamily:1 3 40 50 transact 0? = 6",
            ),
            ("a doubled append", "family:1 1 0 10 transact 0+5 =\nfamily:1 2 20 30 transact 0? = 5 5"),
            (
                "an element that was never appended",
                "family:1 1 0 10 transact 0+5 =\nfamily:1 2 20 30 transact 0? = 5 9",
            ),
            ("an append that failed and shows", "family:1 1 0 ! transact 0+5\nfamily:1 2 20 30 transact 0? = 5"),
            ("half of a transaction", "family:1 1 0 10 transact 0+5 1+6 =\nfamily:1 2 5 20 transact 0? 1? = 5 |"),
            (
                "half of a transaction of unknown outcome",
                "family:1 1 0 ? transact 0+5 1+6\nfamily:1 2 5 20 transact 0? 1? = 5 |",
            ),
            (
                "a transaction of unknown outcome shows and vanishes",
                "family:1 1 0 ? transact 0+5\nfamily:1 2 5 20 transact 0? = 5\nfamily:1 2 30 40 transact 0? =",
            ),
            (
                "one list in two orders",
                "family:1 1 0 90 transact 0+5 =\nfamily:1 2 0 90 transact 0+6 =\nfamily:1 3 0 90 transact 0? = 5 6\n\
                 family:1 4 0 90 transact 0? = 6 5",
            ),
            (
                "two transactions that did not see each other",
                "family:1 1 0 90 transact 0? 1+5 =\nfamily:1 2 0 90 transact 1? 0+6 =\n\
                 family:1 3 91 99 transact 0? 1? = 6 | 5",
            ),
            (
                "the inside of a transaction",
                "family:1 1 0 90 transact 0+5 0+6 =\nfamily:1 2 0 90 transact 0? = 5\nfamily:1 3 91 99 transact 0? = 5 6",
            ),
            (
                "a stale read of lists",
                "family:1 1 0 10 transact 0+5 =\nfamily:1 2 20 30 transact 1+6 =\nfamily:1 3 40 50 transact 0? 1? = | 6\n\
                 family:1 3 60 70 transact 0? = 5",
            ),
            ("a transaction that does not see itself", "family:1 1 0 10 transact 0+5 0? ="),
        ],
    );
}

/// A history that Porcupine cannot decide in a second must not pass: many additions of unknown outcome, of which only
/// some subset explains a sum.
#[test]
fn a_history_that_cannot_be_decided_does_not_pass() {
    let mut lines: Vec<String> =
        (0..40).map(|number| format!("counter:1 {number} 0 ? add {}", 1_u64 << number)).collect();
    lines.push(format!("counter:1 99 10 20 read = {}", (1_u64 << 39) - 1));
    lines.push("counter:1 99 30 40 read = 1".into());
    let history = History::parse(&lines.join("\n")).expect("operations are written as they are read");
    let verdict = check(&history, checker(), Duration::from_secs(1)).expect("the checker runs");
    assert!(!verdict.violations.is_empty());
    assert!(verdict.violations[0].text.starts_with("not decided"), "{:?}", verdict.violations);
}

/// Runs clients on a system in memory, whose sessions may lie.
fn run_in_memory(lie: Option<Lie>, kinds: &[Kind]) -> Verdict {
    let (memory, board) = (Memory::default(), Board::default());
    let mut clients: Vec<Client<'_>> = (0..6)
        .map(|number| {
            let (mut random, session) = (Random::of_part(20, number), memory.clone());
            let session: Box<dyn Session> = match lie {
                Some(lie) => Box::new(Liar::new(Box::new(session), lie, Random::new(random.next()))),
                None => Box::new(session),
            };
            let (history, counts) = (History::default(), Counts::default());
            Client { board: &board, number, kinds, random, session, history, counts }
        })
        .collect();
    thread::scope(|threads| {
        for client in &mut clients {
            threads.spawn(|| client.run_operations(400).expect("the replies have their forms"));
        }
    });
    let mut history = History::default();
    clients.into_iter().for_each(|client| history.append(client.history));
    verdict(&history)
}

#[test]
fn a_system_that_keeps_its_word_passes() {
    let verdict = run_in_memory(None, &Kind::ALL);
    assert!(verdict.violations.is_empty(), "{:#?}", verdict.violations);
    assert_eq!(verdict.operations, 2400);
}

#[test]
fn lies_are_found() {
    use Kind::*;
    let lies: [(Lie, &[Kind]); 3] = [
        (Lie::StaleRead, &[Register, Counter, List, Sorted, Pair]),
        (Lie::LostWrite, &[Register, Pair]),
        (Lie::DoubleWrite, &[Counter, List]),
    ];
    for (lie, kinds) in lies {
        for kind in kinds {
            let verdict = run_in_memory(Some(lie), &[*kind]);
            assert!(!verdict.violations.is_empty(), "{lie:?} on objects of the kind {kind:?}");
        }
    }
}

fn single() -> Single {
    let binary = haypile_binary().expect("the server is built before its tests");
    Single { template: Template::haypile(&binary, DIRECTIVES).expect("the template has its marks") }
}

#[test]
fn clocks_are_moved() {
    let (system, surroundings) = (single(), Surroundings { clocks: true, ..Surroundings::default() });
    let mut group = Group::start(&system, Network::Loopback, 1, surroundings).expect("the server starts");
    let port = group.members()[0].client_port;
    let mut client = haypile_harness::client::Client::connect(port, Duration::from_secs(10)).expect("it listens");
    let mut hour = || -> u64 {
        let reply = client.command("TIME").expect("it answers");
        let seconds = reply.elements().and_then(|parts| parts[0].bytes()).expect("two numbers");
        String::from_utf8_lossy(seconds).parse::<u64>().expect("a number") / 3600
    };
    let before = hour();
    group.offset_clock(0, 36_000).expect("the file can be written");
    assert!((10..=11).contains(&(hour() - before)));
}

#[test]
fn a_server_that_is_killed_is_as_good_as_one_that_is_not() {
    let system = single();
    let options = Options {
        system: &system,
        network: Network::Loopback,
        nodes: 1,
        seed: fresh_seed(),
        time: Duration::from_secs(10),
        clients: 8,
        scenario: Scenario::named("kills"),
        may_miss: false,
        lie: None,
    };
    assert!(run(&options).expect("the server can be run"), "see the seed and the history above");
}
