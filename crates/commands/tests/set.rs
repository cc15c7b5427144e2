//! Sets of more members than one row, one step or one reply has, through their commands.

mod runner;

use haypile_store::testing::{TestStore, memory_store};
use runner::{Client, Shown};
use std::collections::{BTreeMap, BTreeSet};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn strings(shown: &Shown) -> Vec<String> {
    let Shown::List(elements) = shown else { panic!("a list, not {shown:?}") };
    let string = |element: &Shown| match element {
        Shown::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("a string, not {other:?}"),
    };
    elements.iter().map(string).collect()
}

fn list(client: &mut Client, line: &str) -> Vec<String> {
    strings(&client.call(&words(line)))
}

fn set_of(client: &mut Client, line: &str) -> BTreeSet<String> {
    let found = list(client, line);
    let set: BTreeSet<String> = found.iter().cloned().collect();
    assert_eq!(set.len(), found.len(), "{line}: each once");
    set
}

fn integer(client: &mut Client, line: &str) -> i64 {
    match client.call(&words(line)) {
        Shown::Word(word) => word.parse().unwrap_or_else(|_| panic!("{line}: {word}")),
        other => panic!("{line}: {other:?}"),
    }
}

/// Adds `name:N` for the numbers of a range.
fn fill(client: &mut Client, key: &str, range: std::ops::Range<usize>) -> BTreeSet<String> {
    let members: Vec<String> = range.map(|i| format!("member:{i}")).collect();
    for part in members.chunks(500) {
        assert_eq!(integer(client, &format!("SADD {key} {}", part.join(" "))), part.len() as i64);
    }
    members.into_iter().collect()
}

/// Runs a test with all rows in the memtable, and with all of them on a base that an event loop does not reach.
fn both_ways(test: impl Fn(&TestStore, &dyn Fn())) {
    let warm = memory_store();
    test(&warm, &|| {});
    let cold = memory_store();
    cold.base.set_cold(true);
    test(&cold, &|| {
        cold.flush_now().expect("flushes to memory");
        cold.base.set_cold(true);
    });
}

#[test]
fn a_scan_of_a_set_shows_each_member_that_stays() {
    for (options, most) in [("", 10), (" COUNT 7", 7), (" COUNT 100000000", 1000)] {
        let db = memory_store();
        let mut client = Client::new(&db);
        let members = fill(&mut client, "s", 0..3000);
        let (mut cursor, mut steps, mut seen) = ("0".to_string(), 0, BTreeMap::new());
        loop {
            let (next, found) = scan_step(&mut client, &format!("SSCAN s {cursor}{options}"));
            assert!(found.len() <= most + 4, "{} members in a step", found.len());
            found.into_iter().for_each(|member| *seen.entry(member).or_insert(0) += 1);
            (cursor, steps) = (next, steps + 1);
            if cursor == "0" {
                break;
            }
            client.call(&words(&format!("SADD s new:{steps}")));
            client.call(&words(&format!("SREM s new:{}", steps - 1)));
            if steps == 3 {
                db.flush_now().expect("flushes to memory");
            }
        }
        for member in &members {
            assert_eq!(seen.remove(member), Some(1), "{member} with{options}");
        }
        assert!(seen.keys().all(|member| member.starts_with("new:")), "{seen:?}");
    }
}

/// Returns the next cursor and the elements of a step.
fn scan_step(client: &mut Client, line: &str) -> (String, Vec<String>) {
    let Shown::List(parts) = client.call(&words(line)) else { panic!("a list") };
    let [Shown::Bulk(next), found] = &parts[..] else { panic!("a cursor and elements") };
    (String::from_utf8_lossy(next).into_owned(), strings(found))
}

#[test]
fn a_scan_shows_at_once_what_redis_holds_in_one_piece() {
    both_ways(|db, settle| {
        let mut client = Client::new(db);
        for number in 0..100 {
            client.call(&words(&format!("HSET hash f{number} {number}")));
            client.call(&words(&format!("ZADD zset {number} m{number}")));
            client.call(&words(&format!("SADD words w{number}")));
            client.call(&words(&format!("SADD numbers {number}")));
        }
        settle();
        for cursor in ["0", "12345", "18446744073709551615"] {
            for (scan, elements) in
                [("HSCAN hash", 200), ("ZSCAN zset", 200), ("SSCAN words", 100), ("SSCAN numbers", 100)]
            {
                let (next, found) = scan_step(&mut client, &format!("{scan} {cursor} COUNT 5"));
                assert_eq!((&*next, found.len()), ("0", elements), "{scan} {cursor}");
            }
        }
        client.call(&words(&format!("HSET hash long {}", "v".repeat(65))));
        assert_ne!(scan_step(&mut client, "HSCAN hash 0 COUNT 5").0, "0", "it is a table by now");
    });
}

#[test]
fn large_sets_are_shown_whole() {
    both_ways(|db, settle| {
        let mut client = Client::new(db);
        for size in [64, 65, 1024, 1025, 5000] {
            let members = fill(&mut client, "s", 0..size);
            settle();
            assert_eq!(set_of(&mut client, "SMEMBERS s"), members, "{size}");
            assert_eq!(set_of(&mut client, "SRANDMEMBER s 9999"), members, "{size}");
            assert_eq!(set_of(&mut client, "SUNION s s"), members, "{size}");
            assert_eq!(integer(&mut client, "SCARD s"), size as i64);
            settle();
            assert_eq!(set_of(&mut client, "SPOP s 9999"), members, "{size}");
            assert_eq!(integer(&mut client, "EXISTS s"), 0);
        }
    });
}

#[test]
fn a_long_reply_is_whole() {
    both_ways(|db, settle| {
        let mut client = Client::new(db);
        let long = "x".repeat(30_000);
        for key in ["a", "b"] {
            for i in 0..60 {
                client.call(&words(&format!("SADD {key} {long}{i}{}", if i % 2 == 0 { key } else { "" })));
            }
        }
        settle();
        assert_eq!(set_of(&mut client, "SMEMBERS a").len(), 60, "1.8 MB");
        assert_eq!(set_of(&mut client, "SUNION a b").len(), 90);
        assert_eq!(set_of(&mut client, "SINTER a b").len(), 30, "0.9 MB");
        assert_eq!(set_of(&mut client, "SDIFF a none").len(), 60);
        assert_eq!(set_of(&mut client, "SPOP a 55").len(), 55);
        assert_eq!(integer(&mut client, "SCARD a"), 5);
    });
}

#[test]
fn operations_on_large_sets() {
    both_ways(|db, settle| {
        let mut client = Client::new(db);
        let a = fill(&mut client, "a", 0..4000);
        let b = fill(&mut client, "b", 3000..9000);
        let c = fill(&mut client, "c", 3500..3600);
        settle();
        let small: BTreeSet<String> = c.clone();
        assert_eq!(set_of(&mut client, "SINTER a b"), a.intersection(&b).cloned().collect());
        assert_eq!(set_of(&mut client, "SINTER b c a"), small, "members of the small set are looked up");
        assert_eq!(set_of(&mut client, "SDIFF c a"), BTreeSet::new());
        assert_eq!(set_of(&mut client, "SDIFF a b c"), a.difference(&b).cloned().collect());
        assert_eq!(set_of(&mut client, "SUNION a b c"), a.union(&b).cloned().collect());
        assert_eq!(integer(&mut client, "SINTERCARD 2 a b"), 1000);
        assert_eq!(integer(&mut client, "SINTERCARD 2 a b LIMIT 10"), 10);
        settle();
        assert_eq!(integer(&mut client, "SUNIONSTORE d a b"), 9000);
        assert_eq!(integer(&mut client, "SDIFFSTORE e d b"), 3000);
        assert_eq!(integer(&mut client, "SINTERSTORE a a b c"), 100);
        settle();
        assert_eq!(set_of(&mut client, "SMEMBERS d").len(), 9000);
        assert_eq!(set_of(&mut client, "SMEMBERS e"), (0..3000).map(|i| format!("member:{i}")).collect());
        assert_eq!(set_of(&mut client, "SMEMBERS a"), small);
    });
}

#[test]
fn samples_have_the_size_that_is_asked_for() {
    both_ways(|db, settle| {
        let mut client = Client::new(db);
        let members = fill(&mut client, "s", 0..3000);
        settle();
        for count in [1, 2, 30, 100, 374, 375, 2000, 2999] {
            let sample = set_of(&mut client, &format!("SRANDMEMBER s {count}"));
            assert!(sample.len() == count && sample.is_subset(&members), "{count}");
            let any = list(&mut client, &format!("SRANDMEMBER s -{count}"));
            assert!(any.len() == count && any.iter().all(|member| members.contains(member)), "{count}");
        }
        fill(&mut client, "t", 0..50);
        assert_eq!(list(&mut client, "SRANDMEMBER t -5000").len(), 5000, "piece by piece");
        let mut left = members;
        for count in [1, 20, 100, 400, 1500, 800, 170] {
            let popped = set_of(&mut client, &format!("SPOP s {count}"));
            assert!(popped.len() == count && popped.is_subset(&left), "{count}");
            left.retain(|member| !popped.contains(member));
            settle();
            assert_eq!(set_of(&mut client, "SMEMBERS s"), left);
        }
    });
}

/// SPOP that takes most of a set makes a new set of the rest, as Redis 7.2 does (`spopWithCountCommand`).
#[test]
fn what_is_left_of_a_large_set_is_a_small_one() {
    let db = memory_store();
    let mut client = Client::new(&db);
    let encoding = |client: &mut Client| match client.call(&words("OBJECT ENCODING s")) {
        Shown::Bulk(name) => String::from_utf8_lossy(&name).into_owned(),
        other => panic!("{other:?}"),
    };
    fill(&mut client, "s", 0..600);
    client.call(&words("SPOP s 400"));
    assert_eq!(encoding(&mut client), "hashtable", "a third is left");
    client.call(&words("SPOP s 190"));
    assert_eq!((encoding(&mut client), integer(&mut client, "SCARD s")), ("listpack".into(), 10));
}

#[test]
fn the_card_of_many_members_is_exact_with_approx_as_well() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "a", 0..20_000);
        fill(&mut client, "b", 15_000..30_000);
        settle();
        for (line, count) in [
            ("SUNIONCARD 2 a b", 30_000),
            ("SUNIONCARD 2 a b APPROX", 30_000),
            ("SUNIONCARD 2 a b APPROX LIMIT 12345", 12_345),
            ("SDIFFCARD 2 a b", 15_000),
            ("SDIFFCARD 2 b a LIMIT 77", 77),
            ("SINTERCARD 2 a b", 5_000),
        ] {
            assert_eq!(integer(&mut client, line), count, "{line}");
            settle();
        }
    });
}
