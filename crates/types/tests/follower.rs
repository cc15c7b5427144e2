//! Readers beside a follower that takes one record after the other: whatever a record changes, under the locks of their
//! keys they see all of it or nothing. The leader transfers between strings, moves elements between lists and between
//! sets, gives members of a sorted set other scores, delivers a stream's entries to a group, sets all fields of a hash
//! anew and exchanges databases; generations of the follower are frozen, flushed and compacted all the time.
//! `HAYPILE_SEED` chooses what is written.

use haypile_log::testing::Random;
use haypile_store::base::{Base, Step, Tier};
use haypile_store::row::{self, Family, Space};
use haypile_store::testing::node::{MemoryBases, Node, feed};
use haypile_store::{Direction, Named, RecordLocks, Store, StoreOptions, Txn, TxnBuffers, Value};
use haypile_types::key::Entry;
use haypile_types::list::{self, Side};
use haypile_types::set::{self, Set};
use haypile_types::stream::{Edit as GroupEdit, Group, Pending, Stream, StreamId};
use haypile_types::string::{self, Content};
use haypile_types::zset::{Adding, Edit, Zset};
use haypile_types::{hash, key};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

const STRIPES: usize = 64;
const READERS: u64 = 3;

/// Strings between which is transferred.
const ACCOUNTS: u64 = 8;
const TOTAL: i64 = 1_000;
/// Databases that change places, and one that is emptied and filled; the rest is in database 0.
const EXCHANGED: [u32; 2] = [1, 2];
const EMPTIED: u32 = 3;
/// Elements of two lists, members of two sets and of a sorted set, entries of a stream.
const ELEMENTS: u32 = 700;
/// How often one reader looks at both databases, a quarter of how often at two strings.
const LOOKS: u32 = 50;
const GROUP: &[u8] = b"group";
const CONSUMERS: [&[u8]; 2] = [b"alice", b"bob"];
/// Fields that are set in one record of many rows.
const FIELDS: u32 = 1_200;
/// Strings that are set in one record, by the beginnings of their names: so many that it is applied in steps, or not.
type Strings = (&'static str, u32);
const STRINGS: [Strings; 2] = [("many", 600), ("few", 300)];

/// Reads of each kind, at least.
const READS_MIN: u64 = 40;
/// Reads while records came in, and looks at the base alone: of either at least so many.
const MET_MIN: u64 = 40;
/// Records that came in, at least.
const RECORDS_MIN: u64 = 300;
/// More rounds than that say that readers do not come to read.
const ROUNDS_MAX: u64 = 20_000;

/// Locks of keys by stripes, and one over all of them, as the engine has them.
struct Stripes {
    stripes: Vec<RwLock<()>>,
    everything: RwLock<()>,
}

/// The locks that a reader holds.
type Held<'l> = (RwLockReadGuard<'l, ()>, Vec<RwLockReadGuard<'l, ()>>);

impl Stripes {
    fn new() -> Stripes {
        Stripes { stripes: (0..STRIPES).map(|_| RwLock::default()).collect(), everything: RwLock::default() }
    }

    fn of(hashes: impl IntoIterator<Item = u32>) -> BTreeSet<usize> {
        hashes.into_iter().map(|hash| hash as usize % STRIPES).collect()
    }

    /// Locks keys for a reader.
    fn read(&self, store: &Store, names: &[&str]) -> Held<'_> {
        let everything = self.everything.read().expect("no panics");
        let stripes = Stripes::of(names.iter().map(|name| store.key(0, name.as_bytes()).hash));
        (everything, stripes.iter().map(|stripe| self.stripes[*stripe].read().expect("no panics")).collect())
    }
}

impl RecordLocks for Stripes {
    fn hold(&self, named: Named<'_>, apply: &mut dyn FnMut()) {
        match named {
            Named::Keys(keys) => {
                let _everything = self.everything.read().expect("no panics");
                let stripes = Stripes::of(keys.iter().map(|key| key.hash));
                let _held: Vec<RwLockWriteGuard<'_, ()>> =
                    stripes.iter().map(|stripe| self.stripes[*stripe].write().expect("no panics")).collect();
                apply();
            }
            Named::Everything => {
                let _everything = self.everything.write().expect("no panics");
                apply();
            }
        }
    }
}

fn leads(options: &mut StoreOptions) {
    options.databases = 4;
    options.memtable_bytes = 128 << 10;
}

fn follows(options: &mut StoreOptions) {
    leads(options);
    options.log.follows = true;
}

fn account(number: u64) -> String {
    format!("account:{number}")
}

fn element(number: u32) -> Vec<u8> {
    format!("element:{number:0>40}").into_bytes()
}

fn text(content: Option<Content>) -> Vec<u8> {
    match content {
        Some(Content::Shared(value)) => value.to_vec(),
        Some(Content::Owned(bytes)) => bytes,
        Some(Content::Long(_)) => panic!("no string of this test is long"),
        None => Vec::new(),
    }
}

fn number(txn: &mut Txn<'_>, database: u32, name: &str) -> i64 {
    let key = txn.key_in(database, name.as_bytes());
    let text = text(string::get(txn, &key).expect("reads go on"));
    String::from_utf8(text).expect("digits").parse().expect("a number")
}

fn set_number(txn: &mut Txn<'_>, database: u32, name: &str, number: i64) {
    let key = txn.key_in(database, name.as_bytes());
    string::set(txn, &key, number.to_string().as_bytes()).expect("small");
}

/// Sets all fields of the hash to a version.
fn set_fields(txn: &mut Txn<'_>, version: u64) {
    let version = format!("{version:020}");
    let names: Vec<Vec<u8>> = (0..FIELDS).map(element).collect();
    let key = txn.key(b"hash");
    hash::set(txn, &key, names.iter().map(|name| (&name[..], version.as_bytes()))).expect("room");
}

/// Sets all strings of a kind to a version.
fn set_strings(txn: &mut Txn<'_>, (kind, count): Strings, version: u64) {
    (0..count).for_each(|n| set_number(txn, 0, &format!("{kind}:{n}"), version as i64));
}

/// Gives members of the sorted set other scores.
fn score(txn: &mut Txn<'_>, random: &mut Random, count: u64) {
    let key = txn.key(b"zset");
    let mut edit = Edit::of(Zset::write(txn, &key).expect("reads")).expect("parses");
    for _ in 0..count {
        let (member, score) = (element(random.below(ELEMENTS.into()) as u32), random.below(50) as f64);
        edit.add(txn, &key, Adding::default(), score, &member).expect("adds");
    }
    edit.finish(txn, &key).expect("writes");
}

fn begin_all(txn: &mut Txn<'_>) {
    (0..ACCOUNTS).for_each(|n| set_number(txn, 0, &account(n), if n == 0 { TOTAL } else { 0 }));
    EXCHANGED.into_iter().zip(0..).for_each(|(database, side)| set_number(txn, database, "side", side));
    set_number(txn, EMPTIED, "filled", 0);
    let elements: Vec<Vec<u8>> = (0..ELEMENTS).map(element).collect();
    let elements = || elements.iter().map(|element| &element[..]);
    let key = txn.key(b"list:a");
    list::push(txn, &key, None, Side::Tail, elements()).expect("room");
    let key = txn.key(b"set:a");
    set::add(txn, &key, None, elements()).expect("room");
    let key = txn.key(b"stream");
    let mut stream = Stream::create(txn, &key).expect("room");
    for number in 1..=u64::from(ELEMENTS) {
        stream.append(txn, &key, StreamId::new(0, number), [&b"f"[..], b"v"].into_iter()).expect("room");
    }
    stream.save(txn, &key).expect("room");
    assert!(Group::create(txn, &key, &stream, GROUP, StreamId::MIN, None).expect("room"));
    set_fields(txn, 0);
    STRINGS.into_iter().for_each(|strings| set_strings(txn, strings, 0));
    let mut random = Random(1);
    score(txn, &mut random, u64::from(ELEMENTS) * 3);
}

/// LMOVE of some elements between the lists.
fn move_in_lists(txn: &mut Txn<'_>, random: &mut Random) {
    let [from, to] = if random.chance(50) { ["list:a", "list:b"] } else { ["list:b", "list:a"] };
    let (from, to) = (txn.key(from.as_bytes()), txn.key(to.as_bytes()));
    let side = |random: &mut Random| if random.chance(50) { Side::Head } else { Side::Tail };
    for _ in 0..1 + random.below(20) {
        let Some(source) = list::edit(txn, &from).expect("reads") else { return };
        let taken = list::pop(txn, &from, source, side(random)).expect("pops");
        let target = list::edit(txn, &to).expect("reads");
        list::push(txn, &to, target, side(random), std::iter::once(&taken[..])).expect("pushes");
    }
}

/// SMOVE of some members between the sets.
fn move_in_sets(txn: &mut Txn<'_>, random: &mut Random) {
    for _ in 0..1 + random.below(20) {
        let [from, to] = if random.chance(50) { ["set:a", "set:b"] } else { ["set:b", "set:a"] };
        let (from, to) = (txn.key(from.as_bytes()), txn.key(to.as_bytes()));
        let member = element(random.below(ELEMENTS.into()) as u32);
        let Some(source) = key::lookup_write(txn, &from).expect("reads") else { continue };
        let source = Set::of(&from, source).expect("a set");
        let target = key::lookup_write(txn, &to).expect("reads");
        if set::remove(txn, &from, &source, std::iter::once(&member[..])).expect("removes").0 > 0 {
            set::add(txn, &to, target, std::iter::once(&member[..])).expect("adds");
        }
    }
}

/// Delivers entries of the stream to one consumer or the other, and acknowledges some: XCLAIM and XACK.
fn deliver(txn: &mut Txn<'_>, random: &mut Random) {
    let key = txn.key(b"stream");
    let stream = Stream::edit(txn, &key).expect("reads").expect("there");
    let mut edit = GroupEdit::of(Group::find(txn, &stream, GROUP).expect("reads").expect("there"));
    for _ in 0..1 + random.below(20) {
        let id = StreamId::new(0, 1 + random.below(ELEMENTS.into()));
        let consumer = CONSUMERS[random.below(2) as usize];
        let (place, _) = edit.see(txn, consumer).expect("reads");
        match edit.pending(txn, id).expect("reads") {
            Some(held) if random.chance(50) => edit.release(txn, id, &held).expect("removes"),
            held => edit.give(txn, id, held.as_ref(), place, 900, 1).expect("writes"),
        }
    }
    edit.save(txn, &key).expect("writes");
}

/// Runs one random transaction on the leader.
fn write(txn: &mut Txn<'_>, random: &mut Random, version: u64) {
    match random.below(28) {
        0..5 => {
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            let amount = random.below(100) as i64;
            for (account_number, change) in [(from, -amount), (to, amount)] {
                let before = number(txn, 0, &account(account_number));
                set_number(txn, 0, &account(account_number), before + change);
            }
            // The rest of a block that is large now and then.
            if random.chance(30) {
                set_strings(txn, STRINGS[random.below(2) as usize], version);
            }
        }
        5..9 => move_in_lists(txn, random),
        9..13 => move_in_sets(txn, random),
        13..17 => {
            let count = 1 + random.below(20);
            score(txn, random, count);
        }
        17..19 => deliver(txn, random),
        19..21 => set_fields(txn, version),
        21..25 => set_strings(txn, STRINGS[1], version),
        25 | 26 => {
            let [one, other] = EXCHANGED;
            txn.swap_databases(one, other).expect("small");
        }
        _ => {
            txn.flush_database(EMPTIED).expect("small");
            set_number(txn, EMPTIED, "filled", version as i64);
        }
    }
}

/// A kind of reads: its name, and the read of a whole under the locks of its keys, which panics where it sees a part of
/// a record.
type Kind = (&'static str, fn(&Readers<'_>, &mut Random));

const KINDS: [Kind; 9] = [
    ("accounts", |readers, _| readers.accounts()),
    ("lists", |readers, random| readers.lists(random)),
    ("sets", |readers, random| readers.sets(random)),
    ("zset", |readers, _| readers.zset()),
    ("group", |readers, _| readers.group()),
    ("hash", |readers, _| readers.hash()),
    ("view", |readers, _| readers.view()),
    ("databases", |readers, _| readers.databases()),
    ("without locks", |readers, random| readers.single(random)),
];

/// The follower and its locks, for those who read it.
struct Readers<'f> {
    follower: &'f Store,
    locks: &'f Stripes,
}

impl Readers<'_> {
    fn begin(&self) -> Txn<'_> {
        self.follower.begin(TxnBuffers::default(), call())
    }

    fn lock(&self, names: &[&str]) -> Held<'_> {
        self.locks.read(self.follower, names)
    }

    fn accounts(&self) {
        let names: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let _held = self.lock(&names.iter().map(|name| &name[..]).collect::<Vec<_>>());
        let mut txn = self.begin();
        let sum: i64 = names.iter().map(|name| number(&mut txn, 0, name)).sum();
        assert_eq!(sum, TOTAL, "half of a transfer");
    }

    fn lists(&self, random: &mut Random) {
        let names = some_of(&["list:a", "list:b"], random);
        let _held = self.lock(names);
        let mut txn = self.begin();
        let mut found = Vec::new();
        for name in names {
            let key = txn.key(name.as_bytes());
            let Some(mut list) = list::read(&mut txn, &key).expect("reads go on") else { continue };
            let (length, before) = (list.len(), found.len());
            list.visit(&mut txn, 0..length, Direction::Forward, collect(&mut found)).expect("reads go on");
            assert_eq!((found.len() - before) as u64, length, "half of a change of {name}");
        }
        if names.len() == 2 {
            are_all(found, "half of a move between lists");
        }
    }

    fn sets(&self, random: &mut Random) {
        let names = some_of(&["set:a", "set:b"], random);
        let _held = self.lock(names);
        let mut txn = self.begin();
        let mut found = Vec::new();
        for name in names {
            let key = txn.key(name.as_bytes());
            let Some(set) = Set::lookup(&mut txn, &key).expect("reads go on") else { continue };
            let before = found.len();
            set.visit(&mut txn, collect(&mut found)).expect("reads go on");
            assert_eq!((found.len() - before) as u64, set.count(), "half of a change of {name}");
        }
        if names.len() == 2 {
            are_all(found, "half of a move between sets");
        }
    }

    fn zset(&self) {
        let _held = self.lock(&["zset"]);
        let mut txn = self.begin();
        let key = txn.key(b"zset");
        let zset = Zset::read(&mut txn, &key).expect("reads go on").expect("there");
        let verified = zset.verify(&mut txn).expect("reads go on");
        assert_eq!(verified, Ok(()), "a member and its place are of two records");
    }

    /// Compares the pending entries with those of each consumer and with the group's counts.
    fn group(&self) {
        let _held = self.lock(&["stream"]);
        let mut txn = self.begin();
        let key = txn.key(b"stream");
        let stream = Stream::lookup(&mut txn, &key).expect("reads go on").expect("there");
        let group = Group::find(&mut txn, &stream, GROUP).expect("reads go on").expect("there");
        let all = || StreamId::MIN..=StreamId::MAX;
        let (mut pending, mut of_consumers) = (BTreeSet::new(), BTreeSet::new());
        let each = |id, _: Pending<'_>| {
            pending.insert(id);
            ControlFlow::Continue(())
        };
        group.visit_pending(&mut txn, all(), Direction::Forward, usize::MAX, each).expect("reads go on");
        for name in CONSUMERS {
            let Some(consumer) = group.consumer(&mut txn, name).expect("reads go on") else { continue };
            let before = of_consumers.len();
            let each = |id| {
                of_consumers.insert(id);
                ControlFlow::Continue(())
            };
            group.visit_ids_of(&mut txn, &consumer, all(), usize::MAX, each).expect("reads go on");
            assert_eq!((of_consumers.len() - before) as u64, consumer.state.pending, "half of a delivery");
        }
        assert_eq!(group.state.pending, pending.len() as u64, "half of a delivery");
        assert_eq!(of_consumers, pending, "half of a delivery");
    }

    fn hash(&self) {
        let _held = self.lock(&["hash"]);
        let mut txn = self.begin();
        let key = txn.key(b"hash");
        let entry = key::lookup(&mut txn, &key).expect("reads go on").expect("there");
        let mut found = Vec::new();
        let mut collect = collect(&mut found);
        hash::visit(&mut txn, &key, &entry, |_, value| collect(value)).expect("reads go on");
        drop(collect);
        are_of_one_version(&found);
    }

    /// A view is of one moment, whatever comes in when its lock is gone.
    fn view(&self) {
        let held = self.lock(&["hash"]);
        let mut txn = self.begin();
        let key = txn.key(b"hash");
        let entry = key::lookup(&mut txn, &key).expect("reads go on").expect("there");
        let mut view = hash::view(&mut txn, &key, &entry).expect("reads go on").expect("it has rows");
        drop((txn, held));
        let mut found = Vec::new();
        while let Some((_, value)) = view.next_row().expect("it is young") {
            found.push(value.to_vec());
        }
        are_of_one_version(&found);
    }

    fn databases(&self) {
        let _held = self.lock(&["side", "filled"]);
        let mut txn = self.begin();
        let mut sides = || EXCHANGED.map(|database| number(&mut txn, database, "side"));
        let first = sides();
        assert_eq!(first.iter().sum::<i64>(), 1, "half of an exchange: {first:?}");
        for _ in 0..LOOKS {
            // The thread that takes records has its chance.
            std::thread::yield_now();
            assert_eq!(sides(), first, "an exchange in the middle of a read");
        }
        assert!(number(&mut txn, EMPTIED, "filled") >= 0, "it is emptied and filled in one record");
    }

    /// Reads a single key as an event loop does: without its lock, unless the key is under way.
    fn single(&self, random: &mut Random) {
        // Databases are not exchanged meanwhile.
        let _held = self.lock(&[]);
        let (kind, count) = STRINGS[random.below(2) as usize];
        let seen = |name: &str| {
            let is_free = !self.follower.is_staged(&self.follower.key(0, name.as_bytes()));
            is_free.then(|| number(&mut self.begin(), 0, name))
        };
        for _ in 0..4 * LOOKS {
            let [one, other] = [0, 1].map(|_| format!("{kind}:{}", random.below(count.into())));
            if let Some(first) = seen(&one)
                && let Some(second) = seen(&other)
            {
                assert!(second >= first, "{one} was seen at version {first}, then {other} at {second}");
            }
        }
    }
}

/// Returns both keys, or one of them: a record may change more than the key that is read.
fn some_of<'n>(both: &'n [&'n str; 2], random: &mut Random) -> &'n [&'n str] {
    match random.below(4) {
        0 => &both[..1],
        1 => &both[1..],
        _ => both,
    }
}

/// Collects all that is shown.
fn collect(found: &mut Vec<Vec<u8>>) -> impl FnMut(&[u8]) -> ControlFlow<()> {
    |element| {
        found.push(element.to_vec());
        ControlFlow::Continue(())
    }
}

fn are_all(mut found: Vec<Vec<u8>>, what: &str) {
    found.sort();
    assert!(found == (0..ELEMENTS).map(element).collect::<Vec<_>>(), "{what}: {} elements", found.len());
}

fn are_of_one_version(values: &[Vec<u8>]) {
    assert_eq!(values.len(), FIELDS as usize);
    let other = values.iter().find(|value| **value != values[0]);
    assert_eq!(other, None, "half of a record: {:?}", values[0]);
}

fn call() -> haypile_store::Call<'static> {
    haypile_store::Call { now_ms: 1_000, seed: 7, database: 0, mode: haypile_store::Mode::Disk, pins: None }
}

/// The rows of the base are those of one moment between two records: a freeze takes all of a record or nothing.
fn check_base(base: &dyn Base) {
    let (from, until) = row::family_range(Family::Meta, Space(0));
    let mut cursor = base.scan(&from, &until, Direction::Forward, Tier::Disk).expect("the base can be read");
    let (mut sum, mut versions) = (0, STRINGS.map(|_| BTreeSet::new()));
    while let Step::Row { key, value } = cursor.step().expect("the base can be read") {
        let name = row::parse_meta_row(key).expect("a key").name;
        let number = || {
            let entry = Entry::parse(Value::from(value)).expect("it parses");
            std::str::from_utf8(entry.payload()).expect("digits").parse::<i64>().expect("a number")
        };
        if name.starts_with(b"account:") {
            sum += number();
        } else if let Some(kind) = STRINGS.iter().position(|(kind, _)| name.starts_with(kind.as_bytes())) {
            versions[kind].insert(number());
        }
    }
    assert_eq!(sum, TOTAL, "a generation ends in the middle of a transfer");
    assert!(versions.iter().all(|of| of.len() == 1), "a generation ends in the middle of a record: {versions:?}");
}

/// The numbers of reads.
#[derive(Default)]
struct Counts {
    reads: [AtomicU64; KINDS.len()],
    /// Reads during which a record came in.
    met: AtomicU64,
    /// Looks at the base alone.
    of_base: AtomicU64,
}

impl Counts {
    fn are_enough(&self) -> bool {
        self.reads.iter().all(|reads| reads.load(Ordering::Relaxed) >= READS_MIN)
            && [&self.met, &self.of_base].iter().all(|count| count.load(Ordering::Relaxed) >= MET_MIN)
    }
}

/// Says that all is over when it goes, also by a panic.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn readers_of_a_follower_see_whole_records() {
    let seed = std::env::var("HAYPILE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random(seed);
    let leader = Node::new(&MemoryBases, leads);
    let run = |write: &mut dyn FnMut(&mut Txn<'_>)| {
        leader.store.wait_for_room().expect("the base takes everything");
        let mut txn = leader.store.begin(TxnBuffers::default(), call());
        write(&mut txn);
        assert!(txn.names_all_keys());
        txn.commit().expect("the log takes everything");
    };
    run(&mut begin_all);
    leader.store.flush_now().expect("nothing is broken");
    let follower = leader.checkpoint(&MemoryBases, follows);
    let (locks, counts, done) = (Stripes::new(), Counts::default(), AtomicBool::new(false));
    let begun = leader.store.log().last();
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        for reader in 0..READERS {
            let (follower, locks, counts, done) = (&follower.store, &locks, &counts, &done);
            scope.spawn(move || {
                let _ends = Ends(done);
                let (mut random, readers) = (Random(reader), Readers { follower, locks });
                while !done.load(Ordering::Acquire) {
                    // One of them looks at single keys only: what goes in under its latches is a moment's work.
                    let kind = if reader == 0 { KINDS.len() - 1 } else { random.below(KINDS.len() as u64) as usize };
                    let before = follower.log().last();
                    KINDS[kind].1(&readers, &mut random);
                    counts.reads[kind].fetch_add(1, Ordering::Relaxed);
                    counts.met.fetch_add(u64::from(follower.log().last() > before), Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let _ends = Ends(&done);
            while !done.load(Ordering::Acquire) {
                follower.store.flush_now().expect("the base takes everything");
                follower.compact();
                check_base(&*follower.base);
                counts.of_base.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 1..=ROUNDS_MAX {
            for number in 0..8 {
                run(&mut |txn| write(txn, &mut random, round * 8 + number));
            }
            leader.sync();
            feed(&leader.store, &follower.store, &locks);
            let records = follower.store.log().last().0 - begun.0;
            if done.load(Ordering::Acquire) || records >= RECORDS_MIN && counts.are_enough() {
                break;
            }
        }
    });
    let reads = counts.reads.map(AtomicU64::into_inner);
    let named: Vec<_> = KINDS.iter().zip(reads).map(|((name, _), reads)| (name, reads)).collect();
    println!("{named:?}, {:?} of them while records came in", counts.met);
    assert!(reads.iter().all(|reads| *reads >= READS_MIN), "{reads:?}");
    assert!(counts.met.into_inner() >= MET_MIN && counts.of_base.into_inner() >= MET_MIN);
    assert!(follower.store.log().last().0 - begun.0 >= RECORDS_MIN);
    assert_eq!(follower.store.log().last(), leader.store.log().last());
}
