//! Walks over more keys than one step takes: SCAN shows every key that stays, KEYS shows all, RANDOMKEY reaches all.

mod runner;

use haypile_store::testing::memory_store;
use runner::{Client, Shown};
use std::collections::{BTreeMap, BTreeSet};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn names(shown: &Shown) -> Vec<String> {
    let Shown::List(elements) = shown else { panic!("a list, not {shown:?}") };
    let name = |element: &Shown| match element {
        Shown::Bulk(name) => String::from_utf8_lossy(name).into_owned(),
        other => panic!("a name, not {other:?}"),
    };
    elements.iter().map(name).collect()
}

/// One step of a scan: the next cursor, and names.
fn step(client: &mut Client, cursor: &str, options: &str) -> (String, Vec<String>) {
    match client.call(&words(&format!("SCAN {cursor}{options}"))) {
        Shown::List(parts) => match &parts[..] {
            [Shown::Bulk(cursor), found] => (String::from_utf8_lossy(cursor).into_owned(), names(found)),
            _ => panic!("a cursor and names"),
        },
        other => panic!("a list, not {other:?}"),
    }
}

/// Sets keys all over the slots, and as many in one slot; every tenth is gone at once, but not removed.
fn fill(client: &mut Client, count: usize) -> BTreeSet<String> {
    let mut live = BTreeSet::new();
    for i in 0..count {
        for name in [format!("key:{i}"), format!("{{tag}}:{i}")] {
            client.call(&words(&if i % 10 == 0 { format!("SET {name} v PX 1") } else { format!("SET {name} v") }));
            if i % 10 != 0 {
                live.insert(name);
            }
        }
    }
    client.now_ms += 2;
    live
}

#[test]
fn a_scan_shows_each_key_that_stays_once_whatever_happens_meanwhile() {
    for (options, most) in [("", 10), (" COUNT 7", 7), (" COUNT 100000000", 1000)] {
        for flushed in [false, true] {
            let db = memory_store();
            let mut client = Client::new(&db);
            let live = fill(&mut client, 1000);
            let (mut cursor, mut steps) = ("0".to_string(), 0);
            let mut seen = BTreeMap::new();
            loop {
                let (next, found) = step(&mut client, &cursor, options);
                // A hint, as in Redis: each place that has keys may add some.
                assert!(found.len() <= 4 * most, "{} names in a step", found.len());
                found.into_iter().for_each(|name| *seen.entry(name).or_insert(0) += 1);
                (cursor, steps) = (next, steps + 1);
                if cursor == "0" {
                    break;
                }
                // Others come and go; some of them may be shown.
                client.call(&words(&format!("SET new:{steps} v")));
                client.call(&words(&format!("DEL new:{}", steps - 1)));
                if flushed && steps % 16 == 0 {
                    db.flush_now().expect("flushes to memory");
                }
            }
            for name in &live {
                assert_eq!(seen.remove(name), Some(1), "{name} with{options}");
            }
            assert!(seen.keys().all(|name| name.starts_with("new:")), "{seen:?}");
        }
    }
}

#[test]
fn keys_takes_as_many_steps_as_it_needs() {
    let db = memory_store();
    let mut client = Client::new(&db);
    let live = fill(&mut client, 3000);
    let found = names(&client.call(&words("KEYS *")));
    assert_eq!(found.len(), live.len());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), live);
    let expected: BTreeSet<String> = live.into_iter().filter(|name| name.starts_with("{tag}:29")).collect();
    let found = names(&client.call(&words("KEYS {tag}:29*")));
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn a_cursor_beyond_all_keys_ends_the_scan() {
    let db = memory_store();
    let mut client = Client::new(&db);
    fill(&mut client, 20);
    for cursor in ["18446744073709551615", "-1", "70368744177664"] {
        assert_eq!(step(&mut client, cursor, ""), ("0".into(), vec![]), "{cursor}");
    }
}

#[test]
fn every_key_comes_up_at_random() {
    for (prefix, why) in [("", "in many slots"), ("{tag}:", "in one slot")] {
        let db = memory_store();
        let mut client = Client::new(&db);
        let names: BTreeSet<String> = (0..60).map(|i| format!("{prefix}{i}")).collect();
        for name in &names {
            client.call(&words(&format!("SET {name} v")));
        }
        client.call(&words("SET {tag}:gone v PX 1"));
        client.now_ms += 2;
        let mut drawn: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..6000 {
            match client.call(&words("RANDOMKEY")) {
                Shown::Bulk(name) => *drawn.entry(String::from_utf8_lossy(&name).into_owned()).or_insert(0) += 1,
                other => panic!("a name, not {other:?}"),
            }
        }
        assert_eq!(drawn.keys().cloned().collect::<BTreeSet<_>>(), names, "{why}");
        // A hundred each if all were alike.
        assert!(drawn.values().all(|count| (20..400).contains(count)), "{why}: {drawn:?}");
    }
}
