//! The planted defects of rows, and what is found of each.

use crate::planting::{Look, Write};
use haypile_store::row::{self, Space, SystemScope};

/// A planted defect, and every line of the findings. OBJECT is the object of `still`, as findings name it.
pub struct Case {
    pub name: &'static str,
    pub plant: fn(&Look) -> Vec<Write>,
    pub found: &'static [&'static str],
}

pub const CASES: &[Case] = &[
    Case {
        name: "an object without its owner row is a defect of the key that names it",
        plant: |look| vec![(look.owner_row("still"), None)],
        found: &[
            "owner: key \"still\" of database 0: its OBJECT has no owner row",
            "garbage, which goes by itself: 1 objects without owner (1 rows, 7254 bytes)",
            "1 defects: 1 owner",
        ],
    },
    Case {
        name: "an owner row that names nobody",
        plant: |look| vec![(look.owner_row("still"), Some(b"nobody".to_vec()))],
        found: &[
            "owner: OBJECT of database 0: it belongs to key \"nobody\", which is not there",
            "owner: key \"still\" of database 0: its OBJECT belongs to key \"nobody\"",
            "2 defects: 2 owner",
        ],
    },
    Case {
        name: "an owner row that names a key with another value",
        plant: |look| vec![(look.owner_row("still"), Some(b"plain".to_vec()))],
        found: &[
            "owner: OBJECT of database 0: it belongs to key \"plain\", which names no object",
            "owner: key \"still\" of database 0: its OBJECT belongs to key \"plain\"",
            "2 defects: 2 owner",
        ],
    },
    Case {
        name: "two keys with one object",
        plant: |look| {
            let counts = counts(look, |counts| (counts[7], counts[23]) = (counts[7] + 1, counts[23] + 1));
            vec![(look.meta_row("twin"), Some(look.meta("still"))), counts]
        },
        found: &["owner: key \"twin\" of database 0: its OBJECT belongs to key \"still\"", "1 defects: 1 owner"],
    },
    Case {
        name: "a key whose deadline row is missing",
        plant: |look| vec![(row::expire_row(&look.key("timed"), 1_800_000_000_000).to_vec(), None)],
        found: &[
            "deadline: key \"timed\" of database 0: there is no deadline row at 1800000000000",
            "1 defects: 1 deadline",
        ],
    },
    Case {
        name: "a deadline row that no key has is out of date, as an overwrite that did not look leaves it",
        plant: |look| vec![(row::expire_row(&look.key("plain"), 1_800_000_000_000).to_vec(), Some(Vec::new()))],
        found: &["garbage, which goes by itself: 1 deadline rows that are out of date", "sound"],
    },
    Case {
        name: "a key that stands at a wrong hash",
        plant: |look| {
            let key = look.key("plain");
            let moved = row::Key { hash: 7, ..key };
            vec![(row::meta_row(&key).to_vec(), None), (row::meta_row(&moved).to_vec(), Some(look.meta("plain")))]
        },
        found: &["key: key \"plain\" of database 0: it stands at hash 00000007, its name has HASH", "1 defects: 1 key"],
    },
    Case {
        name: "a key that stands in a wrong slot",
        plant: |look| {
            let key = look.key("plain");
            let moved = row::Key { slot: row::Slot(77), ..key };
            vec![(row::meta_row(&key).to_vec(), None), (row::meta_row(&moved).to_vec(), Some(look.meta("plain")))]
        },
        found: &[
            "key: key \"plain\" of database 0: it stands in slot 77, its name belongs to 7143",
            "1 defects: 1 key",
        ],
    },
    Case {
        name: "a meta row of a kind that nobody knows",
        plant: |look| vec![(look.meta_row("plain"), Some(vec![99, 0, 1]))],
        found: &[
            "key: key \"plain\" of database 0: its meta row does not parse: \"c\\x00\\x01\"",
            "counter: database 0: its counter of strings is 5, there are 4",
            "2 defects: 1 key, 1 counter",
        ],
    },
    Case {
        name: "a counter that is off by one",
        plant: |look| vec![counts(look, |counts| counts[7] += 1)],
        found: &["counter: database 0: its counter of keys is 24, there are 23", "1 defects: 1 counter"],
    },
    Case {
        name: "a string that lies in its meta row and is too long for it",
        plant: |look| vec![(look.meta_row("plain"), Some([&[1, 0], &[b'x'; 16385][..]].concat()))],
        found: &[
            "value: key \"plain\" of database 0: 16385 bytes lie in its meta row, 16384 may",
            "1 defects: 1 value",
        ],
    },
    Case {
        name: "chunks that are too long, behind the end, and no chunks",
        plant: |look| {
            vec![
                (look.data_row("still", &[0, 0, 0, 1]), Some(vec![b'x'; 16385])),
                (look.data_row("still", &[0, 0, 0, 2]), Some(vec![b'x'; 7236])),
                (look.data_row("still", &[0, 0, 0]), Some(Vec::new())),
                (look.score_row("still", b"x"), Some(Vec::new())),
            ]
        },
        found: &[
            "value: key \"still\" of database 0: an element of 3 bytes is not a chunk's number",
            "value: key \"still\" of database 0: chunk 1 has 16385 bytes, 16384 may be",
            "value: key \"still\" of database 0: chunk 2 ends at 40004, the string at 40003",
            "value: key \"still\" of database 0: there are 1 rows of scores, and its type has none",
            "4 defects: 4 value",
        ],
    },
    Case {
        name: "an object id that was never leased",
        plant: |_| {
            vec![(row::owner_row(Space(0), row::Slot(5), row::ObjectId(1 << 40)).to_vec(), Some(b"plain".to_vec()))]
        },
        found: &[
            "object id: object 1099511627776 in slot 5 of database 0: it was never leased: the next one is LEASED",
            "owner: object 1099511627776 in slot 5 of database 0: it belongs to key \"plain\", which names no object",
            "2 defects: 1 owner, 1 object id",
        ],
    },
    Case {
        name: "rows of a space that is no database",
        plant: |look| {
            let key = row::Key { space: Space(90_000), ..look.key("plain") };
            vec![(row::meta_row(&key).to_vec(), Some(look.meta("plain")))]
        },
        found: &[
            "space: space 90000: there are rows of family 1 in it, and it is no database and not known to be dead",
            "1 defects: 1 space",
        ],
    },
    Case {
        name: "a row of no family, and system rows that nobody knows or that do not parse",
        plant: |_| {
            vec![
                (vec![9, 9], Some(Vec::new())),
                (row::system_row(SystemScope::Replicated, b"what").to_vec(), Some(Vec::new())),
                (row::system_row(SystemScope::Replicated, b"next-space").to_vec(), Some(vec![1])),
            ]
        },
        found: &[
            "row: row \\t\\t: it is of no family",
            "system row: row \\x06\\x00next-space: its value has 1 bytes, not 4",
            "system row: row \\x06\\x00what: nothing is known by this name",
            "system row: system rows: database 3 is space 65536, and 65536 was never given out",
            "4 defects: 3 system row, 1 row",
        ],
    },
    Case {
        name: "two databases that are one space",
        plant: |_| {
            let row = row::system_row(SystemScope::Replicated, &[&b"database/"[..], &9u32.to_be_bytes()].concat());
            vec![(row.to_vec(), Some(8u32.to_be_bytes().to_vec()))]
        },
        found: &["system row: system rows: databases 8 and 9 are both space 8", "1 defects: 1 system row"],
    },
    Case {
        name: "small collections that are cut off, longer than they say, empty, of no encoding, or have an element twice",
        plant: |look| {
            let edit = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
                let mut meta = look.meta(name);
                change(&mut meta);
                (look.meta_row(name), Some(meta))
            };
            vec![
                edit("small:hash", &|meta| meta.truncate(meta.len() - 1)),
                edit("small:list", &|meta| meta.push(0)),
                edit("small:set", &|meta| *meta = [&meta[..2], &[9, 0, 3], b"\x01x\x01y\x01x"].concat()),
            ]
        },
        found: &[
            "value: key \"small:list\" of database 0: it states 2 entries, and 1 bytes follow them",
            "value: key \"small:set\" of database 0: its encoding 9 is none of its type",
            "value: key \"small:set\" of database 0: entry 2: \"x\" is there twice",
            "value: key \"small:hash\" of database 0: it states 2 entries, and entry 1 does not parse",
            "4 defects: 4 value",
        ],
    },
    Case {
        name: "an intset whose members are not in order, and one that is there twice",
        plant: |look| {
            let set = [&look.meta("small:set")[..2], &[0, 0, 5], b"\x012\x0211\x017\x017\x0212"].concat();
            vec![(look.meta_row("small:set"), Some(set))]
        },
        found: &[
            "value: key \"small:set\" of database 0: entry 2: 7 stands behind 11 in an intset",
            "value: key \"small:set\" of database 0: entry 3: \"7\" is there twice",
            "2 defects: 2 value",
        ],
    },
    Case {
        name: "intsets with members that are no integers, and encodings with bits that are not their type's",
        plant: |look| {
            let set = [&look.meta("small:set")[..2], &[0, 0, 3], b"\x012\x02+3\x0204"].concat();
            let (mut list, mut hash) = (look.meta("small:list"), look.meta("small:hash"));
            (list[2], hash[2]) = (0x80, 0x40);
            let (slot, id) = ZSET;
            let large = [&[6, 0][..], &id.0.to_be_bytes(), &slot.0.to_be_bytes(), &[0], &2u64.to_be_bytes()].concat();
            let member = |name| (row::data_row(Space(0), slot, id, &look.element(name)).to_vec(), Some(Vec::new()));
            vec![
                (look.meta_row("small:set"), Some(set)),
                (look.meta_row("small:list"), Some(list)),
                (look.meta_row("small:hash"), Some(hash)),
                (look.meta_row("integers"), Some(large)),
                (row::owner_row(Space(0), slot, id).to_vec(), Some(b"integers".to_vec())),
                member("7"),
                member("07"),
                counts(look, |counts| (counts[7], counts[39]) = (counts[7] + 1, counts[39] + 1)),
            ]
        },
        found: &[
            "value: key \"small:list\" of database 0: its encoding 128 is none of its type",
            "value: key \"small:set\" of database 0: entry 1: \"+3\" is in an intset, and no integer",
            "value: key \"small:set\" of database 0: entry 2: \"04\" is in an intset, and no integer",
            "value: key \"small:hash\" of database 0: its encoding 64 is none of its type",
            "value: key \"integers\" of database 0: element \"07\": \"07\" is in an intset, and no integer",
            "5 defects: 5 value",
        ],
    },
    Case {
        name: "a small sorted set out of order, with a member twice, a listpack with minus zero, and a field that is there twice",
        plant: |look| {
            let score = |member: &str, score: [u8; 8]| [&[member.len() as u8], member.as_bytes(), &score].concat();
            let (minus_zero, one, two) =
                ((!(1u64 << 63)).to_be_bytes(), [0xbf, 0xf0, 0, 0, 0, 0, 0, 0], [0xc0, 0, 0, 0, 0, 0, 0, 0]);
            let entries = [score("b", two), score("a", one), score("b", two)].concat();
            let zeros = [score("a", minus_zero), score("b", one)].concat();
            vec![
                (look.meta_row("board"), Some([&[9, 0, 0, 0, 3], &entries[..]].concat())),
                (look.meta_row("zeros"), Some([&[9, 0, 0, 0, 2], &zeros[..]].concat())),
                (look.meta_row("small:hash"), Some([&[3, 0, 0, 0, 2][..], b"\x01a\x011\x01a\x012"].concat())),
                zset_counts(look).remove(0),
            ]
        },
        found: &[
            "value: key \"zeros\" of database 0: entry 0: the score of \"a\" is minus zero, which a listpack does not keep",
            "value: key \"small:hash\" of database 0: entry 1: \"a\" is there twice",
            "value: key \"board\" of database 0: entry 1: \"a\" is not where its score belongs",
            "value: key \"board\" of database 0: entry 2: \"b\" is there twice",
            "4 defects: 4 value",
        ],
    },
    Case {
        name: "a hash that lacks a field, has one at a wrong hash, and one with flags that nobody knows",
        plant: |look| {
            vec![
                (look.element_row("hash", "f1"), None),
                (look.element_row("hash", "f2"), None),
                (look.data_row("hash", b"\0\0\0\x07f2"), Some(b"\0v2".to_vec())),
                (look.element_row("hash", "f3"), Some(b"\x40v3".to_vec())),
            ]
        },
        found: &[
            "value: key \"hash\" of database 0: element \"f2\" stands at hash 00000007, and has F2HASH",
            "value: key \"hash\" of database 0: element \"f3\": its row does not begin with flags that are known",
            "value: key \"hash\" of database 0: its count is 100, there are 99",
            "3 defects: 3 value",
        ],
    },
    Case {
        name: "fields whose deadlines are not those of the index, of the meta row, or of the deadline row",
        plant: |look| {
            let index = |deadline: u64, field: &str| {
                let element = look.element_row("times", field);
                look.score_row("times", &[&deadline.to_be_bytes()[..], &element[15..]].concat())
            };
            let mut small = look.meta("small:times");
            small[9] += 1;
            vec![
                (index(33_000_000_000_000, "f1"), None),
                (index(31_000_000_000_000, "f2"), Some(Vec::new())),
                (index(32_000_000_000_000, "f7"), Some(b"x".to_vec())),
                (row::expire_row(&look.key("times"), 32_000_000_000_000).to_vec(), Some(Vec::new())),
                (look.meta_row("small:times"), Some(small)),
            ]
        },
        found: &[
            "value: key \"small:times\" of database 0: deadlines of its fields are stated as from 33000000000001 to 33000000000000, \
             and are from 33000000000000 to 33000000000000",
            "value: key \"times\" of database 0: field \"f2\" is in the index of deadlines at 31000000000000, and has another, or none",
            "value: key \"times\" of database 0: a row of the index of deadlines has a value",
            "deadline: key \"times\" of database 0: its deadline row has the value \"\", not \"\\x01\"",
            "deadline: key \"small:times\" of database 0: there is no deadline row at 33000000000001",
            "garbage, which goes by itself: 1 deadline rows that are out of date",
            "5 defects: 2 deadline, 3 value",
        ],
    },
    Case {
        name: "a set with a wrong count, and a member that has a value",
        plant: |look| {
            let mut meta = look.meta("set");
            meta[20] += 1;
            vec![(look.meta_row("set"), Some(meta)), (look.element_row("set", "m101"), Some(b"x".to_vec()))]
        },
        found: &[
            "value: key \"set\" of database 0: element \"m101\": its row has a value",
            "value: key \"set\" of database 0: its count is 101, there are 100",
            "2 defects: 2 value",
        ],
    },
    Case {
        name: "a list that lacks an element",
        plant: |look| vec![(look.data_row("list", &((1u64 << 63) + (7 << 16)).to_be_bytes()), None)],
        found: &[
            "value: key \"list\" of database 0: an element lies at position 8000000000080000, where 8000000000070000 comes next",
            "value: key \"list\" of database 0: it states 497 bytes of a listpack, which would take 493",
            "value: key \"list\" of database 0: its count is 100, there are 99",
            "3 defects: 3 value",
        ],
    },
    Case {
        name: "a list whose directory counts wrongly",
        plant: |look| {
            let meta = look.meta("middle");
            let root = u32::from_be_bytes(meta[41..45].try_into().expect("four bytes"));
            let row = look.data_row("middle", &((0xffff_ffff << 32) + u64::from(root)).to_be_bytes());
            let mut node = look.value(&row);
            node[16] += 1;
            vec![(row, Some(node))]
        },
        found: &[
            "value: key \"middle\" of database 0: node 1 of its tree counts 151 elements, and 150 are said to be there",
            "value: key \"middle\" of database 0: its tree counts 77 elements from key 8000000000000000 on, there are 76",
            "2 defects: 2 value",
        ],
    },
    Case {
        name: "sorted sets as they should be, with and without a tree",
        plant: |look| [zset(look, "zset", None), zset(look, "tree", Some(TREE)), zset_counts(look)].concat(),
        found: &["sound"],
    },
    Case {
        name: "a member without the row of its score, and with that of another one",
        plant: |look| {
            let (slot, id) = ZSET;
            let moved = [(&b"\xc0\0\0\0\0\0\0\0b"[..], None), (b"\xc1\0\0\0\0\0\0\0b", Some(Vec::new()))];
            let moved = moved.map(|(element, value)| (row::score_row(Space(0), slot, id, element).to_vec(), value));
            [zset(look, "zset", None), zset_counts(look)[..1].to_vec(), moved.to_vec()].concat()
        },
        found: &[
            "value: key \"zset\" of database 0: there are 3 members and 3 rows of scores, and they do not agree",
            "value: key \"zset\" of database 0: member \"b\" has no row at its score 2",
            "value: key \"zset\" of database 0: there is a row at score 131072 for member \"b\", whose score is 2",
            "counter: database 0: its counter of keys is 25, there are 24",
            "counter: database 0: its counter of sorted sets is 2, there are 1",
            "5 defects: 2 counter, 3 value",
        ],
    },
    Case {
        name: "a tree that counts wrongly, and a node that hangs nowhere",
        plant: |look| {
            let (slot, id) = TREE;
            let wrong = node(&[(1, b""), (1, b"\xc0")]);
            let root = (row::data_row(Space(0), slot, id, b"\xff\xff\xff\xff\0\0\0\0").to_vec(), Some(wrong));
            let stray = (row::data_row(Space(0), slot, id, b"\xff\xff\xff\xff\0\0\0\x01").to_vec(), Some(vec![0]));
            [zset(look, "zset", None), zset(look, "tree", Some(TREE)), zset_counts(look), vec![root, stray]].concat()
        },
        found: &[
            "value: key \"tree\" of database 0: there is a row of node 1, the next new one is 1",
            "value: key \"tree\" of database 0: node 0 of its tree counts 2 elements, and 3 are said to be there",
            "value: key \"tree\" of database 0: its tree counts 1 elements from key c0 on, there are 2",
            "value: key \"tree\" of database 0: its tree has 1 nodes, there are rows of 2",
            "4 defects: 4 value",
        ],
    },
    Case {
        name: "a pending entry that its consumer does not have, and one that nobody has",
        plant: |look| {
            let (alice, bob) = (by_consumer(look, 0, 2), by_consumer(look, 1, 9));
            vec![(alice, None), (bob, Some(Vec::new()))]
        },
        found: &[
            "value: key \"events\" of database 0: group \"g\": 1 entries are said to be pending for consumer \"alice\", there are 0",
            "value: key \"events\" of database 0: group \"g\": 1 entries are said to be pending for consumer \"bob\", there are 2",
            "value: key \"events\" of database 0: the rows of pending entries by id and those by consumer do not agree",
            "value: key \"events\" of database 0: group \"g\": entry 2-1 is pending, and consumer \"alice\" has no row of it",
            "value: key \"events\" of database 0: group \"g\": consumer \"bob\" has a row of entry 9-1, which is not pending",
            "5 defects: 5 value",
        ],
    },
    Case {
        name: "a pending entry of somebody else, and one of nobody",
        plant: |look| {
            let mine = pending(look, 2);
            let other = [&look.value(&mine)[..16], b"bob"].concat();
            let nobody = [&look.value(&mine)[..16], b"nobody"].concat();
            vec![(mine, Some(other)), (pending(look, 3), Some(nobody))]
        },
        found: &[
            "value: key \"events\" of database 0: pending entry 3-1 of group 0: its consumer \"nobody\" is none of the group",
            "value: key \"events\" of database 0: the rows of pending entries by id and those by consumer do not agree",
            "value: key \"events\" of database 0: group \"g\": entry 2-1 is pending, and consumer \"bob\" has no row of it",
            "value: key \"events\" of database 0: group \"g\": consumer \"alice\" has a row of entry 2-1, which \"bob\" has",
            "value: key \"events\" of database 0: group \"g\": consumer \"bob\" has a row of entry 3-1, which \"nobody\" has",
            "5 defects: 5 value",
        ],
    },
    Case {
        name: "groups and consumers that are counted wrongly",
        plant: |look| {
            let group = look.data_row("events", b"\x01g");
            let mut state = look.value(&group);
            // The counts of pending entries and of consumers, and the number of the next consumer.
            (state[35], state[39], state[43]) = (7, 3, 1);
            vec![(group, Some(state)), (look.data_row("events", b"\x05"), Some(vec![0, 0, 0, 5, 0, 0, 0, 1]))]
        },
        found: &[
            "value: key \"events\" of database 0: consumer \"bob\" of group 0: its number is 1, the next new one gets 1",
            "value: key \"events\" of database 0: it is said to have 5 groups, there are 2",
            "value: key \"events\" of database 0: group \"g\": it is said to have 3 consumers, there are 2",
            "value: key \"events\" of database 0: group \"g\": 7 entries are said to be pending, there are 2",
            "value: key \"events\" of database 0: group \"other\": its number is 1, the next new one gets 1",
            "5 defects: 5 value",
        ],
    },
    Case {
        name: "rows of a group that is not there, and rows that do not parse",
        plant: |look| {
            let row = |element: &[u8]| look.data_row("events", element);
            let entry = [&[0u8; 7][..], &[2], &[0; 7], &[1]].concat();
            vec![
                (row(b"\x01h"), Some(vec![1])),
                (row(b"\x02\0\0\0\x07ghost"), Some([&[0; 12][..], &[0xff; 8], &[0; 8]].concat())),
                (row(&[b"\x03\0\0\0\x07", &entry[..]].concat()), Some([&[0; 16][..], b"ghost"].concat())),
                (row(&[b"\x04\0\0\0\0\0\0\0\x09", &entry[..]].concat()), Some(Vec::new())),
                (row(b"\x04\0\0\0\x01"), Some(Vec::new())),
                (row(b"\x0d"), Some(Vec::new())),
            ]
        },
        found: &[
            "value: key \"events\" of database 0: group \"h\": its row does not parse",
            "value: key \"events\" of database 0: consumer \"ghost\" of group 7: there is no such group",
            "value: key \"events\" of database 0: pending entry 2-1 of group 7: there is no such group",
            "value: key \"events\" of database 0: entry 2-1 of consumer 9 of group 0: there is no such consumer",
            "value: key \"events\" of database 0: the row of a consumer's entry has a key of 4 bytes behind the kind",
            "value: key \"events\" of database 0: there is a row of kind 13, which is none",
            "6 defects: 6 value",
        ],
    },
    Case {
        name: "a base that knows more than its log",
        plant: |look| {
            let row = row::system_row(SystemScope::Local, b"applied").to_vec();
            let history = look.value(&row)[8..].to_vec();
            vec![(row, Some([&1_000_000u64.to_be_bytes()[..], &history].concat()))]
        },
        found: &[
            "log against base: END: no valid group header, and the base holds all through record 1000000",
            "1 defects: 1 log against base",
        ],
    },
    Case {
        name: "rows of an object that nobody owns are garbage",
        plant: |_| {
            vec![(row::data_row(Space(0), row::Slot(5), row::ObjectId(9), b"x").to_vec(), Some(b"12345".to_vec()))]
        },
        found: &["garbage, which goes by itself: 1 objects without owner (1 rows, 21 bytes)", "sound"],
    },
    Case {
        name: "entries of a stream that its header does not know, that are cut off, and a row that is nothing",
        plant: |look| {
            let entry = |ms: u64| look.data_row("stream", &[&[0][..], &ms.to_be_bytes(), &1u64.to_be_bytes()].concat());
            vec![
                (entry(2), None),
                (entry(5), None),
                (entry(9), Some(b"\x05f".to_vec())),
                (entry(99), Some(b"\x01f\x01v".to_vec())),
                (look.data_row("stream", &[14]), Some(Vec::new())),
            ]
        },
        found: &[
            "value: key \"stream\" of database 0: entry 9-1: its fields are cut off, or no pairs",
            "value: key \"stream\" of database 0: there is a row of kind 14, which is none",
            "value: key \"stream\" of database 0: its count is 48, there are 47",
            "value: key \"stream\" of database 0: its first entry is said to be 2-1, and is 3-1",
            "value: key \"stream\" of database 0: it has an entry 99-1, above its last id 50-1",
            "5 defects: 5 value",
        ],
    },
    Case {
        name: "a stream whose ids are not in order",
        plant: |look| {
            let mut meta = look.meta("empty:stream");
            // The first entry's id.
            meta[43] = 9;
            vec![(look.meta_row("empty:stream"), Some(meta))]
        },
        found: &[
            "value: key \"empty:stream\" of database 0: it has 0 entries, and its first one is said to be 9-0",
            "value: key \"empty:stream\" of database 0: its first entry is 9-0, above its last id 5-5",
            "2 defects: 2 value",
        ],
    },
];

/// The row of a pending entry of group 0 of `events`, by its id and by its consumer.
fn pending(look: &Look, ms: u64) -> Vec<u8> {
    look.data_row("events", &[&[3, 0, 0, 0, 0][..], &ms.to_be_bytes(), &1u64.to_be_bytes()].concat())
}

fn by_consumer(look: &Look, consumer: u32, ms: u64) -> Vec<u8> {
    let consumer = consumer.to_be_bytes();
    let id = [ms.to_be_bytes(), 1u64.to_be_bytes()].concat();
    look.data_row("events", &[&[4, 0, 0, 0, 0][..], &consumer, &id].concat())
}

/// The objects of sorted sets that tests make by hand: with ids that are leased.
const ZSET: (row::Slot, row::ObjectId) = (row::Slot(1), row::ObjectId(60_000));
const TREE: (row::Slot, row::ObjectId) = (row::Slot(1), row::ObjectId(60_001));

/// The rows of a sorted set of a at -0, b at 2 and c at 3, row by row as docs/format/zset.md describes them.
fn zset(look: &Look, name: &str, tree: Option<(row::Slot, row::ObjectId)>) -> Vec<Write> {
    let (slot, id) = tree.unwrap_or(ZSET);
    let next_node = if tree.is_some() { 1u32 } else { 0 };
    let head = [&[10, 0][..], &id.0.to_be_bytes(), &slot.0.to_be_bytes(), &[1], &3u64.to_be_bytes()].concat();
    let mut rows = vec![
        (look.meta_row(name), Some([&head[..], &next_node.to_be_bytes()].concat())),
        (row::owner_row(Space(0), slot, id).to_vec(), Some(name.into())),
    ];
    for (member, score, place, sign) in [
        ("a", (!(1u64 << 63)).to_be_bytes(), (1u64 << 63).to_be_bytes(), &[1][..]),
        ("b", [0xc0, 0, 0, 0, 0, 0, 0, 0], [0xc0, 0, 0, 0, 0, 0, 0, 0], &[]),
        ("c", [0xc0, 8, 0, 0, 0, 0, 0, 0], [0xc0, 8, 0, 0, 0, 0, 0, 0], &[]),
    ] {
        let by_score = [&place[..], member.as_bytes()].concat();
        rows.push((row::data_row(Space(0), slot, id, &look.element(member)).to_vec(), Some(score.to_vec())));
        rows.push((row::score_row(Space(0), slot, id, &by_score).to_vec(), Some(sign.to_vec())));
    }
    if tree.is_some() {
        let root = row::data_row(Space(0), slot, id, b"\xff\xff\xff\xff\0\0\0\0").to_vec();
        rows.push((root, Some(node(&[(1, b""), (2, b"\xc0")]))));
    }
    rows
}

/// A node at level 0.
fn node(parts: &[(u32, &[u8])]) -> Vec<u8> {
    let mut row = vec![0, 0, parts.len() as u8];
    parts.iter().for_each(|(count, _)| row.extend_from_slice(&count.to_be_bytes()));
    let mut end = 0;
    for (_, key) in parts {
        end += key.len() as u16;
        row.extend_from_slice(&end.to_be_bytes());
    }
    parts.iter().for_each(|(_, key)| row.extend_from_slice(key));
    row
}

/// Two keys more, which are sorted sets.
fn zset_counts(look: &Look) -> Vec<Write> {
    vec![counts(look, |counts| (counts[7], counts[47]) = (counts[7] + 2, counts[47] + 2))]
}

/// The counters of database 0, changed.
fn counts(look: &Look, change: fn(&mut Vec<u8>)) -> Write {
    let row = row::system_row(SystemScope::Replicated, &[&b"counts/"[..], &0u32.to_be_bytes()].concat()).to_vec();
    let mut counts = look.value(&row);
    change(&mut counts);
    (row, Some(counts))
}
