//! Lists of more elements than one reply holds in memory or one transaction changes, with the rows in the memtable and
//! with all of them in the base and out of an event loop's reach; and the encodings of Redis 7.2, which 7.0 does not
//! have.

mod runner;

use haypile_store::testing::memory_store;
use haypile_types::EncodingLimit;
use runner::{Client, Shown};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn ask(client: &mut Client, line: &str) -> Vec<String> {
    let Shown::List(elements) = client.call(&words(line)) else { panic!("{line}: a list") };
    elements.iter().map(text).collect()
}

fn text(shown: &Shown) -> String {
    match shown {
        Shown::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Shown::Word(word) => word.clone(),
        Shown::List(_) => panic!("not a string: {shown:?}"),
    }
}

fn word(client: &mut Client, line: &str) -> String {
    text(&client.call(&words(line)))
}

/// Pushes the numbers below `count`.
fn fill(client: &mut Client, count: usize) {
    for first in (0..count).step_by(1000) {
        let mut command = words("RPUSH l");
        command.extend((first..count.min(first + 1000)).map(|number| number.to_string().into_bytes()));
        client.call(&command);
    }
}

/// Runs `check` on a list of the numbers below `count`, warm and cold.
fn with_giant(count: usize, check: impl Fn(&mut Client)) {
    for is_cold in [false, true] {
        let db = memory_store();
        db.base.set_cold(is_cold);
        let mut client = Client::new(&db);
        fill(&mut client, count);
        if is_cold {
            db.flush_now().expect("flushes to memory");
            db.base.set_cold(true);
        }
        check(&mut client);
    }
}

fn numbers(numbers: impl Iterator<Item = usize>) -> Vec<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[test]
fn long_replies_are_sent_in_pieces() {
    with_giant(5000, |client| {
        assert_eq!(ask(client, "LRANGE l 0 -1"), numbers(0..5000));
        assert_eq!(ask(client, "LRANGE l 100 -101"), numbers(100..4900));
        assert_eq!(word(client, "LINSERT l AFTER 2000 new"), "5001");
        assert_eq!(ask(client, "RPOP l 2990"), numbers((2010..5000).rev()));
        assert_eq!(ask(client, "LPOP l 1500"), numbers(0..1500));
        let expected: Vec<String> =
            numbers(1500..2001).into_iter().chain(["new".into()]).chain(numbers(2001..2010)).collect();
        assert_eq!(ask(client, "LRANGE l 0 -1"), expected);
        assert_eq!(ask(client, "LPOP l 5000"), expected);
        assert_eq!(word(client, "EXISTS l"), "0");
    });
}

#[test]
fn few_long_elements_are_sent_in_pieces_too() {
    let db = memory_store();
    let mut client = Client::new(&db);
    let element = "x".repeat(400_000);
    for _ in 0..4 {
        client.call(&[&b"RPUSH"[..], b"l", element.as_bytes()].map(<[u8]>::to_vec));
    }
    assert!(ask(&mut client, "LRANGE l 0 -1").iter().all(|found| *found == element));
    assert_eq!(ask(&mut client, "RPOP l 3").len(), 3);
    assert_eq!(word(&mut client, "LLEN l"), "1");
}

#[test]
fn what_looks_at_many_elements_finds_them() {
    with_giant(5000, |client| {
        assert_eq!(word(client, "LPOS l 4321"), "4321");
        assert_eq!(word(client, "LPOS l 4321 RANK -1 MAXLEN 1000"), "4321");
        assert_eq!(word(client, "LPOS l 4321 MAXLEN 3000"), "nil");
        assert_eq!(word(client, "LREM l -1 17"), "1");
        assert_eq!(word(client, "LREM l 0 3000"), "1");
        assert_eq!(word(client, "LINSERT l BEFORE 4000 x"), "4999");
        assert_eq!(word(client, "LPOS l x"), "3998");
        assert_eq!(word(client, "LINDEX l 3998"), "x");
        assert_eq!(word(client, "LINDEX l -1"), "4999");
        assert_eq!(ask(client, "LRANGE l 2997 3001"), ["2998", "2999", "3001", "3002", "3003"]);
    });
}

/// A transaction of this store holds 8 MB: about 200 thousand removed rows.
#[test]
fn what_would_change_too_much_is_copied() {
    let db = memory_store();
    let mut client = Client::new(&db);
    const COUNT: usize = 400_000;
    fill(&mut client, COUNT);
    assert_eq!(word(&mut client, "COPY l rest"), "1");
    assert_eq!(word(&mut client, "LTRIM l 200000 200999"), "OK");
    assert_eq!(ask(&mut client, "LRANGE l 0 -1"), numbers(200_000..201_000));
    // Half of the elements are the same one.
    assert_eq!(word(&mut client, "LTRIM rest 0 -199001"), "OK");
    for _ in 0..199 {
        let mut command = words("LPUSH rest");
        command.extend((0..1000).map(|_| b"same".to_vec()));
        client.call(&command);
    }
    assert_eq!(word(&mut client, "LREM rest -198999 same"), "198999");
    assert_eq!(ask(&mut client, "LRANGE rest 0 1"), ["same", "0"]);
    assert_eq!(word(&mut client, "LLEN rest"), (COUNT - 199_000 + 1).to_string());
}

/// The encodings are those of `list-max-listpack-size` in the redis.conf of 7.2 and of the release notes of 7.2
/// ("listpack for small lists"); 7.0 has only quicklists.
#[test]
fn a_list_is_a_listpack_up_to_the_limit_of_7_2_and_never_again() {
    let db = memory_store();
    let mut client = Client::new(&db);
    let mut encoding = |line: &str| {
        client.call(&words(line));
        word(&mut client, "OBJECT ENCODING l")
    };
    EncodingLimit::ListSize.set(&db, 128);
    assert_eq!(encoding("RPUSH l a"), "listpack");
    for number in 1..128 {
        assert_eq!(encoding(&format!("RPUSH l {number}")), "listpack", "{number} before it");
    }
    assert_eq!(encoding("RPUSH l b"), "quicklist");
    assert_eq!(encoding("LTRIM l 0 0"), "quicklist");
    assert_eq!(encoding("DEL l"), "nil");
    // A listpack of 7 + 4004 bytes, to which 85 may be added; 88 they are there, and it is beyond the limit before the
    // next one.
    EncodingLimit::ListSize.set(&db, -1);
    assert_eq!(encoding(&format!("RPUSH l {}", "x".repeat(4000))), "listpack");
    assert_eq!(encoding(&format!("LPUSH l {}", "x".repeat(85))), "listpack");
    assert_eq!(encoding("LPUSH l x"), "quicklist");
    assert_eq!(encoding("LREM l 0 x"), "quicklist");
}
