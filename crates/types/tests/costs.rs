//! The cost of operations in the log: a small change to a large value logs the change, and an operation that does not
//! read a value touches two or three rows, whatever its size.

mod common;

use common::{Db, bytes};
use haypile_store::Txn;
use haypile_types::{key, string};

const LENGTH_MAX: u64 = 512 * 1024 * 1024;

/// The bound of an operation in the log.
struct Bound {
    bytes: usize,
    rows: usize,
}

type Operation = fn(&mut Txn<'_>);

fn append(txn: &mut Txn<'_>) {
    let key = txn.key(b"k");
    string::append(txn, &key, b"hello", LENGTH_MAX).expect("appends");
}

fn write_in_the_middle(txn: &mut Txn<'_>) {
    let key = txn.key(b"k");
    string::set_range(txn, &key, 9_000, b"hello", LENGTH_MAX).expect("writes");
}

fn change_deadline(txn: &mut Txn<'_>) {
    let key = txn.key(b"k");
    let entry = key::lookup_write(txn, &key).expect("reads").expect("is there");
    let deadline = Some(txn.now_ms() + 1_000_000);
    key::set_deadline(txn, &key, &entry, deadline).expect("writes");
}

fn rename(txn: &mut Txn<'_>) {
    let (from, to) = (txn.key(b"k"), txn.key(b"other"));
    let entry = key::lookup_write(txn, &from).expect("reads").expect("is there");
    key::rename(txn, &from, &entry, &to, None).expect("writes");
}

fn delete(txn: &mut Txn<'_>) {
    let key = txn.key(b"k");
    assert!(key::delete(txn, &key).expect("deletes"));
}

#[test]
fn small_changes_and_changes_of_names_cost_little() {
    let cases: &[(&str, usize, Operation, Bound)] = &[
        ("appending to a long inline string", 10_000, append, Bound { bytes: 60, rows: 1 }),
        ("writing into a long inline string", 10_000, write_in_the_middle, Bound { bytes: 60, rows: 1 }),
        ("a new deadline for a long inline string", 10_000, change_deadline, Bound { bytes: 160, rows: 3 }),
        ("deleting a string with a deadline", 10_000, delete, Bound { bytes: 80, rows: 2 }),
        ("appending to a string in chunks", 5_000_000, append, Bound { bytes: 120, rows: 2 }),
        ("writing into a string in chunks", 5_000_000, write_in_the_middle, Bound { bytes: 120, rows: 2 }),
        ("a new deadline for a string in chunks", 5_000_000, change_deadline, Bound { bytes: 160, rows: 3 }),
        ("renaming a string in chunks", 5_000_000, rename, Bound { bytes: 240, rows: 5 }),
        ("deleting a string in chunks", 5_000_000, delete, Bound { bytes: 120, rows: 3 }),
    ];
    for (rule, length, operation, bound) in cases {
        let mut db = Db::new();
        db.run(|txn| {
            let key = txn.key(b"k");
            let deadline = Some(txn.now_ms() + 500_000);
            string::put(txn, &key, None, &vec![b'x'; *length], deadline).expect("writes");
        });
        let (bytes, rows) = db.logged(operation);
        assert!(bytes <= bound.bytes && rows <= bound.rows, "{rule}: {bytes} bytes, {rows} rows");
        db.check();
    }
}

#[test]
fn a_write_far_beyond_the_end_touches_one_chunk() {
    let mut db = Db::new();
    let (bytes_logged, rows) = db.logged(|txn| {
        let key = txn.key(b"k");
        let length = string::set_range(txn, &key, 400_000_000, b"end", LENGTH_MAX).expect("writes");
        assert_eq!(length, 400_000_003);
    });
    assert!(bytes_logged < 200 && rows <= 4, "{bytes_logged} bytes, {rows} rows");
    let part = db.run(|txn| {
        let key = txn.key(b"k");
        string::range(txn, &key, 399_999_998, 500_000_000).expect("reads").map(bytes)
    });
    assert_eq!(part.as_deref(), Some(&b"\0\0end"[..]));
    db.check();
}

#[test]
fn a_string_longer_than_a_transaction_may_be_is_written_ahead() {
    let mut db = Db::new();
    let long: Vec<u8> = (0..20_000_000u32).map(|i| (i / 7) as u8).collect();
    db.run(|txn| {
        let key = txn.key(b"k");
        string::set(txn, &key, &long).expect("writes");
    });
    let read = db.run(|txn| {
        let key = txn.key(b"k");
        string::get(txn, &key).expect("reads").map(bytes)
    });
    assert!(read.is_some_and(|read| read == long));
    db.check();
}
