//! A store for the tests of this crate, in memory or, for those that compare with a model, on each base there is: runs
//! operations as transactions, shows their rows and what they logged, and checks what has to hold for every key.

#![allow(dead_code)] // Each test file uses its own part.

use haypile_log::{Effect, Index};
use haypile_store::base::Base;
use haypile_store::row::{self, Family};
use haypile_store::testing::store_in;
use haypile_store::{Call, Counter, MemoryBase, Mode, ScanPosition, Store, Txn, TxnBuffers};
use haypile_store_rocks::{Options, Rocks};
use haypile_types::key::{Entry, Type};
use haypile_types::string::Content;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Db {
    pub store: Arc<Store>,
    pub now_ms: u64,
    buffers: TxnBuffers,
    /// Opens the base, again after it was closed, with the rows it had.
    open_base: Box<dyn Fn() -> Arc<dyn Base>>,
    dir: PathBuf,
}

/// The base of a store.
#[derive(Clone, Copy, Debug)]
enum Below {
    Memory,
    Rocks,
}

/// Each case with a fresh store, once on each base; prints which one it is, so that a failure tells.
pub fn on_each_base<C: Clone + Debug>(cases: impl IntoIterator<Item = C>) -> impl Iterator<Item = (C, Db)> {
    let of_case = |case: C| [Below::Memory, Below::Rocks].map(|below| (case.clone(), below));
    cases.into_iter().flat_map(of_case).map(|(case, below)| {
        println!("case {case:?} on {below:?}");
        (case, Db::on(below))
    })
}

/// Row keys and values.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

impl Db {
    pub fn new() -> Db {
        Db::on(Below::Memory)
    }

    fn on(below: Below) -> Db {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("haypile-types-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        let open_base: Box<dyn Fn() -> Arc<dyn Base>> = match below {
            Below::Memory => {
                let base = Arc::new(MemoryBase::default());
                Box::new(move || base.clone())
            }
            Below::Rocks => {
                let dir = dir.join("base");
                Box::new(move || Arc::new(Rocks::open(&dir, Options::default()).expect("a base opens")))
            }
        };
        let store = store_in(&dir, open_base()).expect("a fresh directory opens");
        Db { store, now_ms: 1_700_000_000_000, buffers: TxnBuffers::default(), open_base, dir }
    }

    /// Closes the store and opens it again: rows that are not in the base come from the log.
    pub fn reopen(&mut self) {
        self.store.close().expect("the log can be written");
        self.store = store_in(&self.dir, (self.open_base)()).expect("what was closed opens");
    }

    /// Runs one operation as a transaction of its own on database 0.
    pub fn run<R>(&mut self, operation: impl FnOnce(&mut Txn<'_>) -> R) -> R {
        self.run_with_seed(7, operation)
    }

    /// Runs one operation as a transaction of its own, with random numbers of its own.
    pub fn run_with_seed<R>(&mut self, seed: u64, operation: impl FnOnce(&mut Txn<'_>) -> R) -> R {
        let call = Call { now_ms: self.now_ms, seed, database: 0, mode: Mode::Disk, pins: None };
        let mut txn = self.store.begin(std::mem::take(&mut self.buffers), call);
        let result = operation(&mut txn);
        txn.commit().expect("a store in memory takes every commit");
        self.buffers = txn.finish();
        result
    }

    /// Returns the bytes of the records that an operation writes, and how many rows they touch; without those of the
    /// store about itself, which it writes beside, at a time of its own.
    pub fn logged(&mut self, operation: impl FnOnce(&mut Txn<'_>)) -> (usize, usize) {
        let before = self.store.log().last();
        self.run(operation);
        let last = self.store.log().last();
        while self.store.log().write() < last {
            std::thread::yield_now();
        }
        let (mut bytes, mut rows) = (0, 0);
        let mut reader = self.store.log().reader(before);
        for _ in before.0..last.0 {
            let haypile_log::Next::Record(record) = reader.next().expect("the log is whole") else {
                panic!("all records were written")
            };
            let mut effects = haypile_log::effects(record.body);
            let key = effects.find_map(|effect| effect.expect("the store wrote it").key());
            if key.is_some_and(|key| key[0] == Family::System as u8) {
                continue;
            }
            bytes += record.body.len();
            rows += haypile_log::effects(record.body)
                .filter(|effect| {
                    !matches!(
                        effect.as_ref().expect("the store wrote it"),
                        Effect::Count { .. } | Effect::Touch { .. } | Effect::Statement { .. }
                    )
                })
                .count();
        }
        assert_eq!(reader.position(), Index(last.0 + 1));
        (bytes, rows)
    }

    /// Returns all rows of database 0.
    pub fn rows(&mut self) -> Rows {
        self.run(|txn| {
            let space = txn.space(0);
            let mut rows = Rows::new();
            let mut next = Some(ScanPosition::START);
            while let Some(from) = next {
                let (keys, after) = txn.scan_keys(space, from, 1000).expect("scans of memory work");
                rows.extend(
                    keys.into_iter().map(|(name, value)| (row::meta_row(&txn.key(&name)).to_vec(), value.to_vec())),
                );
                next = after;
            }
            for family in [Family::Data, Family::Score, Family::Owner, Family::Expire] {
                let (from, until) = row::family_range(family, space);
                let found = txn.scan(&from, &until, usize::MAX).expect("scans of memory work");
                rows.extend(found.into_iter().map(|(row, value)| (row, value.to_vec())));
            }
            rows
        })
    }

    /// Checks the invariants that `key` states: deadline rows, owner rows and counters are those that the meta rows
    /// call for. Data rows without owner are garbage that waits for compaction.
    pub fn check(&mut self) {
        let rows = self.rows();
        let mut expected = Rows::new();
        let (mut keys, mut deadlines, mut field_deadlines) = (0, 0, 0);
        let mut of_types: HashMap<&str, i64> = HashMap::new();
        for (row, value) in &rows {
            let Some(key) = row::parse_meta_row(row) else { continue };
            let header = Entry::parse(value.as_slice().into()).expect("a header that parses").header;
            keys += 1;
            *of_types.entry(header.type_of().name()).or_default() += 1;
            if let Some(deadline) = header.deadline_ms {
                deadlines += 1;
                expected.insert(row::expire_row(&key, deadline).to_vec(), Vec::new());
            }
            if let Some(fields) = header.fields {
                // The key's own deadline stands for both.
                expected.entry(row::expire_row(&key, fields.first_ms).to_vec()).or_insert(vec![1]);
                field_deadlines += 1;
            }
            if let Some(object) = header.object {
                expected.insert(row::owner_row(key.space, object.slot, object.id).to_vec(), key.name.to_vec());
            }
        }
        let is_side = |row: &&Vec<u8>| matches!(Family::of(row), Some(Family::Owner | Family::Expire));
        let found: Rows = rows.iter().filter(|(row, _)| is_side(row)).map(|(r, v)| (r.clone(), v.clone())).collect();
        assert_eq!(found, expected, "deadline and owner rows are those of the keys");
        let counters = [
            (Type::String, Counter::Strings),
            (Type::Hash, Counter::Hashes),
            (Type::Set, Counter::Sets),
            (Type::List, Counter::Lists),
            (Type::Zset, Counter::SortedSets),
            (Type::Stream, Counter::Streams),
        ];
        let of_types = counters.map(|(kind, counter)| (counter, of_types.get(kind.name()).copied().unwrap_or(0)));
        for (counter, count) in
            [(Counter::Keys, keys), (Counter::Deadlines, deadlines), (Counter::FieldDeadlines, field_deadlines)]
                .into_iter()
                .chain(of_types)
        {
            assert_eq!(self.store.counter(0, counter), count, "{counter:?}");
        }
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let _ = self.store.close();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// All bytes of a content.
pub fn bytes(content: Content) -> Vec<u8> {
    match content {
        Content::Shared(value) => value.to_vec(),
        Content::Owned(bytes) => bytes,
        Content::Long(mut long) => {
            let mut bytes = Vec::new();
            let length = long.remaining();
            while long.next(64 * 1024, &mut bytes).expect("memory can be read") {}
            assert_eq!(bytes.len() as u64, length);
            bytes
        }
    }
}

/// A sequence of numbers from a seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
