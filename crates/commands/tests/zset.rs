//! Sorted sets of more members than one row, one step or one reply has, through their commands.

mod runner;

use haypile_store::testing::{TestStore, memory_store};
use runner::{Client, Shown};

fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn list(client: &mut Client, line: &str) -> Vec<String> {
    let Shown::List(elements) = client.call(&words(line)) else { panic!("{line}: a list") };
    let string = |element: &Shown| match element {
        Shown::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{line}: a string, not {other:?}"),
    };
    elements.iter().map(string).collect()
}

fn integer(client: &mut Client, line: &str) -> i64 {
    match client.call(&words(line)) {
        Shown::Word(word) => word.parse().unwrap_or_else(|_| panic!("{line}: {word}")),
        other => panic!("{line}: {other:?}"),
    }
}

/// Members are numbered in their order, two of each score.
fn member(at: usize) -> String {
    format!("member:{at:05}")
}

fn fill(client: &mut Client, key: &str, range: std::ops::Range<usize>, settle: &dyn Fn()) {
    for part in range.collect::<Vec<_>>().chunks(500) {
        let pairs: Vec<String> = part.iter().map(|at| format!("{} {}", at / 2, member(*at))).collect();
        assert_eq!(integer(client, &format!("ZADD {key} {}", pairs.join(" "))), part.len() as i64);
        settle();
    }
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

fn members(range: impl Iterator<Item = usize>) -> Vec<String> {
    range.map(member).collect()
}

const COUNT: usize = 5000;

#[test]
fn long_ranges_are_whole_in_both_directions() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "z", 0..COUNT, settle);
        assert_eq!(list(&mut client, "ZRANGE z 0 -1"), members(0..COUNT));
        assert_eq!(list(&mut client, "ZREVRANGE z 0 -1"), members((0..COUNT).rev()));
        assert_eq!(list(&mut client, "ZRANGE z 700 4000"), members(700..4001));
        assert_eq!(list(&mut client, "ZRANGE z 700 4000 REV"), members((COUNT - 4001..COUNT - 700).rev()));
        assert_eq!(list(&mut client, "ZRANGEBYSCORE z 100 1999"), members(200..4000));
        assert_eq!(list(&mut client, "ZRANGEBYSCORE z (100 +inf LIMIT 1000 1500"), members(1202..2702));
        assert_eq!(list(&mut client, "ZREVRANGEBYSCORE z 1999 100 LIMIT 10 3000"), members((990..3990).rev()));
        let with_scores = list(&mut client, "ZRANGE z 10 3009 WITHSCORES");
        let expected: Vec<String> = (10..3010).flat_map(|at| [member(at), (at / 2).to_string()]).collect();
        assert_eq!(with_scores, expected);
        for at in [0, 1, 777, 2500, COUNT - 1] {
            assert_eq!(integer(&mut client, &format!("ZRANK z {}", member(at))), at as i64);
            assert_eq!(integer(&mut client, &format!("ZREVRANK z {}", member(at))), (COUNT - 1 - at) as i64);
            assert_eq!(list(&mut client, &format!("ZRANGE z {at} {at}")), members(at..at + 1));
        }
        assert_eq!(integer(&mut client, "ZCOUNT z 100 (2000"), 3800);
    });
}

#[test]
fn results_of_any_length_are_stored() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "a", 0..3000, settle);
        fill(&mut client, "b", 2000..COUNT, settle);
        assert_eq!(integer(&mut client, "ZUNIONSTORE u 2 a b AGGREGATE MAX"), COUNT as i64);
        settle();
        assert_eq!(list(&mut client, "ZRANGE u 0 -1"), members(0..COUNT));
        assert_eq!(integer(&mut client, "ZINTERSTORE i 2 a b AGGREGATE MIN"), 1000);
        assert_eq!(list(&mut client, "ZRANGE i 0 -1"), members(2000..3000));
        assert_eq!(integer(&mut client, "ZINTERCARD 2 a b LIMIT 700"), 700);
        assert_eq!(integer(&mut client, "ZDIFFSTORE d 2 a b"), 2000);
        settle();
        assert_eq!(integer(&mut client, &format!("ZRANK d {}", member(1999))), 1999);
        assert_eq!(integer(&mut client, "ZRANGESTORE r u 1000 3999"), 3000);
        settle();
        assert_eq!(list(&mut client, "ZRANGE r -2 -1"), members(3998..4000));
        assert_eq!(integer(&mut client, &format!("ZRANK r {}", member(2500))), 1500);
        // A small set beside a large one is looked up in it.
        assert_eq!(integer(&mut client, &format!("ZADD s 1 {} 2 none", member(7))), 2);
        assert_eq!(list(&mut client, "ZINTER 2 u s WITHSCORES"), [member(7), "4".into()]);
        assert_eq!(list(&mut client, "ZDIFF 2 s u"), ["none"]);
    });
}

#[test]
fn many_members_go_at_once() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "z", 0..COUNT, settle);
        let popped = list(&mut client, "ZPOPMIN z 1500");
        assert_eq!(popped.len(), 3000);
        assert_eq!(popped[2998], member(1499));
        settle();
        assert_eq!(list(&mut client, "ZPOPMAX z 2"), [member(4999), "2499".into(), member(4998), "2499".into()]);
        assert_eq!(integer(&mut client, "ZREMRANGEBYRANK z 10 2509"), 2500);
        settle();
        assert_eq!(integer(&mut client, "ZCARD z"), 998);
        assert_eq!(integer(&mut client, &format!("ZRANK z {}", member(4010))), 10);
        assert_eq!(integer(&mut client, "ZREMRANGEBYSCORE z -inf 2100"), 202);
        assert_eq!(list(&mut client, "ZRANGE z 0 0"), [member(4202)]);
        assert_eq!(list(&mut client, "ZPOPMAX z 9999").len(), 2 * 796);
        assert_eq!(integer(&mut client, "EXISTS z"), 0);
    });
}

#[test]
fn members_are_drawn_and_scanned_each_once() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "z", 0..2000, settle);
        for count in [1, 50, 1000, 5000] {
            let mut drawn = list(&mut client, &format!("ZRANDMEMBER z {count}"));
            drawn.sort();
            drawn.dedup();
            assert_eq!(drawn.len(), count.min(2000), "{count}");
        }
        assert_eq!(list(&mut client, "ZRANDMEMBER z -100").len(), 100);
        let (mut cursor, mut seen) = (String::from("0"), Vec::new());
        loop {
            let Shown::List(page) = client.call(&words(&format!("ZSCAN z {cursor} COUNT 100"))) else {
                panic!("a page is a list")
            };
            let [Shown::Bulk(next), Shown::List(found)] = &page[..] else { panic!("a cursor and members") };
            seen.extend(found.iter().step_by(2).map(|name| format!("{name:?}")));
            cursor = String::from_utf8_lossy(next).into_owned();
            if cursor == "0" {
                break;
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 2000);
    });
}

#[test]
fn zero_has_no_sign_where_redis_would_keep_a_listpack() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "z", 0..200, settle);
        for (count, expected) in [(10, "0"), (64, "0"), (65, "0"), (128, "0"), (129, "-0")] {
            client.call(&words("DEL d part"));
            client.call(&words(&format!("ZRANGESTORE part z 0 {}", count - 1)));
            assert_eq!(integer(&mut client, "ZUNIONSTORE part 1 part WEIGHTS 0"), count);
            assert_eq!(integer(&mut client, "ZUNIONSTORE d 1 part WEIGHTS -1"), count);
            settle();
            let scores = list(&mut client, "ZRANGE d 0 -1 WITHSCORES");
            assert!(scores.iter().skip(1).step_by(2).all(|score| score == expected), "{count}: {scores:?}");
        }
    });
}

#[test]
fn zero_has_no_sign_where_redis_would_have_added_it_to_a_listpack() {
    both_ways(|store, settle| {
        let mut client = Client::new(store);
        fill(&mut client, "z", 0..200, settle);
        assert_eq!(integer(&mut client, "ZADD z -0 p"), 1);
        let check = |client: &mut Client<'_>, range: &str, expected: &str| {
            client.call(&words(&format!("ZRANGESTORE d z {range}")));
            settle();
            let Shown::Bulk(score) = client.call(&words("ZSCORE d p")) else { panic!("{range}: a score") };
            assert_eq!(String::from_utf8_lossy(&score), expected, "{range}");
        };
        // Redis knows before how many a range of ranks has, but not how many one of scores has.
        check(&mut client, "0 127", "0");
        check(&mut client, "0 128", "-0");
        check(&mut client, "0 -1", "-0");
        check(&mut client, "-inf +inf BYSCORE", "0");
        check(&mut client, "+inf -inf BYSCORE REV", "-0");
        check(&mut client, "+inf -inf BYSCORE REV LIMIT 70 129", "-0");
        check(&mut client, "+inf -inf BYSCORE REV LIMIT 71 129", "0");
        assert_eq!(integer(&mut client, &format!("ZADD z -1 {}", "x".repeat(65))), 1);
        for (range, expected) in [("0 9", "-0"), ("1 9", "0"), ("195 -1 REV", "0")] {
            check(&mut client, range, expected);
        }
    });
}
