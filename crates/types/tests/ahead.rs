//! Elements that are fetched ahead of time: a guess finds the rows that a lookup finds.

mod common;

use common::Db;
use haypile_store::{Key, Sought, Store, Txn};
use haypile_types::ahead::{Guess, Wanted};
use haypile_types::list::{self, Side};
use haypile_types::zset::{Adding, Edit};
use haypile_types::{hash, key, set};

fn name(number: u32) -> Vec<u8> {
    // Some begin alike in more bytes than an order has.
    format!("{}:{number:03}", if number.is_multiple_of(2) { "element" } else { "e" }).into_bytes()
}

/// Returns how many of these elements a guess finds.
fn found(store: &Store, key: &Key<'_>, numbers: impl Iterator<Item = u32>) -> usize {
    let guess = Guess::of(store, key).expect("a collection in rows");
    let sought = |number| guess.sought(store, Wanted::Named(&name(number))).expect("it has names");
    let sought: Vec<Sought> = numbers.map(sought).collect();
    store.prefetch_elements(&sought)
}

#[test]
fn a_guess_finds_what_is_there_and_nothing_else() {
    let mut db = Db::new();
    let names: Vec<Vec<u8>> = (0..300).map(name).collect();
    let pairs = || names.iter().map(|name| (&name[..], &b"value"[..]));
    db.run(|txn| hash::set(txn, &txn.key_in(0, b"hash"), pairs())).expect("set");
    db.run(|txn| set::add(txn, &txn.key_in(0, b"set"), None, names.iter().map(|name| &name[..]))).expect("added");
    db.run(|txn| {
        let (key, mut edit) = (txn.key_in(0, b"zset"), Edit::of(None).expect("none"));
        for (at, name) in names.iter().enumerate() {
            edit.add(txn, &key, Adding::default(), at as f64, name).expect("added");
        }
        edit.finish(txn, &key).expect("written");
    });
    let store = db.store.clone();
    for key in [b"hash".as_slice(), b"set", b"zset"] {
        let key = store.key(0, key);
        for number in 0..300 {
            assert_eq!(found(&store, &key, std::iter::once(number)), 1, "{number}");
            assert_eq!(found(&store, &key, std::iter::once(number + 300)), 0, "{number}");
        }
        // The number fetched together, with and without absent ones.
        assert_eq!(found(&store, &key, 280..320), 20);
        assert_eq!(found(&store, &key, 0..300), haypile_store::TOGETHER_MAX);
    }
}

#[test]
fn what_is_no_collection_in_rows_is_passed_over() {
    let mut db = Db::new();
    db.run(|txn| hash::set(txn, &txn.key_in(0, b"small"), [(&b"field"[..], &b"value"[..])].into_iter())).expect("set");
    db.run(|txn| key::lookup(txn, &txn.key_in(0, b"none"))).expect("readable");
    let store = db.store.clone();
    for key in [b"small".as_slice(), b"none"] {
        assert_eq!(Guess::of(&store, &store.key(0, key)), None);
    }
}

#[test]
fn a_guess_finds_the_elements_of_a_list_by_their_indexes() {
    let mut db = Db::new();
    let names: Vec<Vec<u8>> = (0..300).map(name).collect();
    let push = |txn: &mut Txn<'_>, side| {
        let key = txn.key_in(0, b"list");
        let list = list::edit(txn, &key).expect("readable");
        list::push(txn, &key, list, side, names.iter().map(|name| &name[..]))
    };
    db.run(|txn| push(txn, Side::Tail)).expect("pushed");
    db.run(|txn| push(txn, Side::Head)).expect("pushed");
    let store = db.store.clone();
    let key = store.key(0, b"list");
    let guess = Guess::of(&store, &key).expect("a list in rows");
    let found = |wanted| guess.sought(&store, wanted).map(|sought| store.prefetch_elements(&[sought]));
    for at in 0..600 {
        assert_eq!(found(Wanted::Index(at)), Some(1), "{at}");
        assert_eq!(found(Wanted::Index(-1 - at)), Some(1), "{at}");
    }
    // The list has no such places, and its elements have no names.
    for wanted in [Wanted::Index(600), Wanted::Index(-601), Wanted::Index(i64::MIN), Wanted::Named(b"element:000")] {
        assert_eq!(found(wanted), None, "{wanted:?}");
    }
    // With a directory, positions do not follow from indexes.
    let inserted = db.run(|txn| {
        let list = list::edit(txn, &key).expect("readable").expect("there");
        list::insert(txn, &key, list, list::Beside::After, &name(7), b"new").expect("inserted")
    });
    assert_eq!(inserted, Some(601));
    assert_eq!(Guess::of(&store, &key), None);
}
