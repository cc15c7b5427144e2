//! The check of the rows that a transaction leaves, which runs before each commit of a build with debug assertions.

mod common;

use common::Db;
use haypile_store::{Key, Txn, row};
use haypile_types::check::defects_left;
use haypile_types::key::{self, Entry, Header};
use haypile_types::{hash, string};

/// A change of the rows beside a key's meta row.
type Change = dyn Fn(&mut Txn<'_>, &Key<'_>, &Entry);

/// The defects behind a change of one key, which has a deadline and an object, by rows that no type writes.
fn defects_after(is_flushed: bool, change: impl FnOnce(&mut Txn<'_>, &Key<'_>, &Entry)) -> Vec<String> {
    let mut db = Db::new();
    let deadline_ms = db.now_ms + 1000;
    db.run(|txn| {
        let key = txn.key_in(0, b"key");
        string::set(txn, &key, &[b'x'; 20_000]).expect("written");
        let entry = key::lookup(txn, &key).expect("read").expect("it is there");
        key::set_deadline(txn, &key, &entry, Some(deadline_ms)).expect("written");
        assert_eq!(defects_left(txn), Vec::<String>::new());
    });
    if is_flushed {
        db.store.flush_now().expect("a base in memory takes it");
    }
    db.run(|txn| {
        let key = txn.key_in(0, b"key");
        let entry = key::lookup(txn, &key).expect("read").expect("it is there");
        change(txn, &key, &entry);
        let defects = defects_left(txn);
        // Nothing of it is to be committed as it is.
        _ = key::delete(txn, &key);
        defects
    })
}

/// Writes the meta row as it is.
fn write_again(txn: &mut Txn<'_>, key: &Key<'_>, entry: &Entry) {
    key::write(txn, key, Some(&entry.header), &entry.header, &[entry.payload()]).expect("written");
}

fn owner(key: &Key<'_>, entry: &Entry) -> row::RowKey {
    let object = entry.header.object.expect("a long string has an object");
    row::owner_row(key.space, object.slot, object.id)
}

fn deadline(key: &Key<'_>, entry: &Entry) -> row::RowKey {
    row::expire_row(key, entry.header.deadline_ms.expect("it was set"))
}

#[test]
fn deadline_and_owner_rows_of_a_written_key_are_looked_at() {
    assert_eq!(defects_after(false, write_again), Vec::<String>::new());
    for is_flushed in [false, true] {
        let changes: [(&str, &Change); 3] = [
            ("no owner", &|txn, key, entry| txn.delete_row(&owner(key, entry)).expect("written")),
            ("another owner", &|txn, key, entry| txn.put_row(&owner(key, entry), &[b"other"]).expect("written")),
            ("no deadline row", &|txn, key, entry| txn.delete_row(&deadline(key, entry)).expect("written")),
        ];
        for (name, change) in changes {
            let defects = defects_after(is_flushed, |txn, key, entry| {
                change(txn, key, entry);
                write_again(txn, key, entry);
            });
            assert_eq!(defects.len(), 1, "{name}, flushed: {is_flushed}: {defects:?}");
        }
    }
}

#[test]
fn a_written_deadline_without_its_row_is_a_defect() {
    let mut db = Db::new();
    let defects = db.run(|txn| {
        let key = txn.key_in(0, b"hash");
        hash::set(txn, &key, [(&b"f"[..], &b"v"[..])].into_iter()).expect("written");
        let before = key::lookup(txn, &key).expect("read").expect("it is there");
        assert_eq!(defects_left(txn), Vec::<String>::new());
        let header = Header { deadline_ms: Some(txn.now_ms() + 1000), ..before.header };
        // As if the header had been there before: no row is written beside it.
        key::write(txn, &key, Some(&header), &header, &[before.payload()]).expect("written");
        let defects = defects_left(txn);
        key::write(txn, &key, Some(&before.header), &before.header, &[before.payload()]).expect("written");
        defects
    });
    assert_eq!(defects.len(), 1, "{defects:?}");
}
