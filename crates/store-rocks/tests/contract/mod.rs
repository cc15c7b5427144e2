//! The contract of every base: `check_base` runs all rules of `haypile_store::base::Base` against fresh bases. Also the
//! helpers that all tests of bases share.

#![allow(dead_code, reason = "each test file uses its part of the helpers")]

use haypile_store::base::{Base, BaseError, Cursor, Direction, Lookup, Reclaim, Rows, Step, Tier};
use haypile_store::row::{
    Family, Key, ObjectId, Slot, Space, SystemScope, data_row, expire_row, meta_row, owner_row, score_row, system_row,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Rows of one flush: ascending, each once, `None` deletes.
#[derive(Clone, Default)]
pub struct Flush {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    current: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Flush {
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.rows.insert(key.as_ref().to_vec(), Some(value.as_ref().to_vec()));
        self
    }

    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.rows.insert(key.as_ref().to_vec(), None);
        self
    }

    pub fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.rows.insert(key.to_vec(), value);
    }

    pub fn into_base(mut self, base: &dyn Base) -> Result<(), BaseError> {
        base.ingest(&mut self)
    }
}

impl Rows for Flush {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        self.current = self.rows.pop_first();
        Ok(self.current.as_ref().map(|(key, value)| (key.as_slice(), value.as_deref())))
    }
}

/// A directory that goes away with its owner.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let unique = format!("haypile-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Directory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn read(base: &dyn Base, key: &[u8]) -> Option<Vec<u8>> {
    match base.get(key, Tier::Disk).expect("a read") {
        Lookup::Row(value) => Some(value.to_vec()),
        Lookup::Absent => None,
        Lookup::WouldBlock => panic!("the disk was allowed"),
    }
}

pub fn rest(mut cursor: Box<dyn Cursor + '_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    loop {
        match cursor.step().expect("a step") {
            Step::Row { key, value } => rows.push((key.to_vec(), value.to_vec())),
            Step::End => return rows,
            Step::WouldBlock => panic!("the disk was allowed"),
        }
    }
}

pub fn all(base: &dyn Base) -> Vec<(Vec<u8>, Vec<u8>)> {
    rest(base.scan(b"", &[0xff; 64], Direction::Forward, Tier::Disk).expect("a scan"))
}

pub fn keys(rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<&[u8]> {
    rows.iter().map(|(key, _)| key.as_slice()).collect()
}

/// Runs the whole contract, each rule on a base of its own.
pub fn check_base<B: Base>(mut make: impl FnMut() -> B) {
    for rule in [
        an_empty_base_has_nothing,
        a_flush_is_there_when_it_returns,
        later_flushes_win,
        any_bytes_are_keys_and_values,
        a_scan_stays_within_its_bounds,
        what_descends_is_what_ascends_turned_round,
        a_scan_reads_one_moment,
        a_view_moves_to_another_thread,
        a_flush_is_seen_whole_or_not_at_all,
        what_was_read_from_disk_is_in_memory,
        compaction_takes_only_what_is_dead,
        without_leave_compaction_takes_nothing,
        sizes_grow_with_rows,
    ] {
        let base = make();
        rule(&base);
        base.close();
    }
}

fn an_empty_base_has_nothing(base: &dyn Base) {
    assert_eq!(read(base, b"a"), None);
    assert_eq!(base.get(b"a", Tier::Memory), Ok(Lookup::Absent));
    assert_eq!(all(base), []);
    assert_eq!(base.background_error(), None);
    Flush::default().into_base(base).expect("an empty flush changes nothing");
    assert_eq!(all(base), []);
}

fn a_flush_is_there_when_it_returns(base: &dyn Base) {
    Flush::default().put("a", "1").put("b", "").delete("c").into_base(base).expect("a flush");
    assert_eq!(read(base, b"a"), Some(b"1".to_vec()));
    assert_eq!(read(base, b"b"), Some(Vec::new()), "an empty row is a row");
    assert_eq!(read(base, b"c"), None, "deleting what is not there is nothing");
    assert_eq!(read(base, b"aa"), None);
}

fn later_flushes_win(base: &dyn Base) {
    for round in 0..5u8 {
        let mut flush = Flush::default();
        for key in 0..50u8 {
            // Each key is written in some rounds and deleted in others.
            if (key + round) % 3 == 0 {
                flush.set(&[key], None);
            } else if (key + round) % 3 == 1 {
                flush.set(&[key], Some(vec![round]));
            }
        }
        flush.into_base(base).expect("a flush");
    }
    let expected: Vec<_> = (0..50u8)
        .filter_map(|key| {
            let last = (0..5).rev().find(|round| (key + round) % 3 != 2)?;
            ((key + last) % 3 == 1).then(|| (vec![key], vec![last]))
        })
        .collect();
    assert_eq!(all(base), expected);
    for key in 0..50u8 {
        let row = expected.iter().find(|(other, _)| other == &[key]);
        assert_eq!(read(base, &[key]), row.map(|(_, value)| value.clone()));
    }
}

fn any_bytes_are_keys_and_values(base: &dyn Base) {
    let long = vec![7; 3 << 20];
    let rows: [(&[u8], &[u8]); 5] = [
        (b"\0", b"zero"),
        (b"\0\0", b"\0"),
        (b"k\xff", b"\xff"),
        (b"k\xff\xff", &long),
        (&[b'x'; 40_000], b"long key"),
    ];
    let flush = rows.iter().fold(Flush::default(), |flush, (key, value)| flush.put(key, value));
    flush.into_base(base).expect("a flush");
    for (key, value) in rows {
        assert_eq!(read(base, key).as_deref(), Some(value));
    }
    assert_eq!(keys(&all(base)), rows.map(|(key, _)| key));
}

fn a_scan_stays_within_its_bounds(base: &dyn Base) {
    let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key, 1], [key]));
    flush.into_base(base).expect("a flush");
    Flush::default().delete([20, 1]).put([20, 2], "new").into_base(base).expect("a flush");
    let between =
        |from: &[u8], until: &[u8]| rest(base.scan(from, until, Direction::Forward, Tier::Disk).expect("a scan"));
    assert_eq!(keys(&between(&[19], &[22])), [[19u8, 1], [20, 2], [21, 1]]);
    assert_eq!(keys(&between(&[19, 1], &[21, 1])), [[19u8, 1], [20, 2]], "from is in, until is not");
    assert_eq!(keys(&between(&[19, 1, 0], &[21, 1, 0])), [[20u8, 2], [21, 1]]);
    assert_eq!(between(&[30], &[30]), []);
    assert_eq!(between(&[30], &[20]), [], "a range that ends before it begins is empty");
    assert_eq!(between(&[200], &[255]), []);
    let mut cursor = base.scan(&[99], &[255], Direction::Forward, Tier::Disk).expect("a scan");
    assert_eq!(cursor.step(), Ok(Step::Row { key: &[99, 1], value: &[99] }));
    assert_eq!(cursor.step(), Ok(Step::End));
    assert_eq!(cursor.step(), Ok(Step::End), "after the end there is nothing but the end");
}

fn what_descends_is_what_ascends_turned_round(base: &dyn Base) {
    let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key, 1], [key]));
    flush.into_base(base).expect("a flush");
    Flush::default().delete([20, 1]).put([20, 2], "new").put([20], "").into_base(base).expect("a flush");
    for (from, until) in [
        (&b""[..], &[255][..]),
        (&[19], &[22]),
        (&[19, 1], &[21, 1]),
        (&[19, 1, 0], &[21, 1, 0]),
        (&[99, 1], &[99, 1, 0]),
        (&[30], &[30]),
        (&[30], &[20]),
        (&[200], &[255]),
    ] {
        let mut expected = rest(base.scan(from, until, Direction::Forward, Tier::Disk).expect("a scan"));
        expected.reverse();
        let found = rest(base.scan(from, until, Direction::Backward, Tier::Disk).expect("a scan"));
        assert_eq!(found, expected, "from {from:?} until {until:?}");
        assert_eq!(rest(base.view(from, until, Direction::Backward).expect("a view")), expected);
    }
    let mut cursor = base.scan(b"", &[0, 2], Direction::Backward, Tier::Disk).expect("a scan");
    assert_eq!(cursor.step(), Ok(Step::Row { key: &[0, 1], value: &[0] }));
    assert_eq!(cursor.step(), Ok(Step::End));
    assert_eq!(cursor.step(), Ok(Step::End), "after the end there is nothing but the end");
}

fn a_scan_reads_one_moment(base: &dyn Base) {
    let flush = (0..100u8).fold(Flush::default(), |flush, key| flush.put([key], "old"));
    flush.into_base(base).expect("a flush");
    let mut scan = base.scan(b"", &[255], Direction::Forward, Tier::Disk).expect("a scan");
    let view = base.view(b"", &[255], Direction::Forward).expect("a view");
    assert_eq!(scan.step(), Ok(Step::Row { key: &[0], value: b"old" }));
    let flush = (0..100u8)
        .fold(Flush::default(), |flush, key| if key % 2 == 0 { flush.put([key], "new") } else { flush.delete([key]) });
    flush.put([101], "new").into_base(base).expect("a flush");
    base.reclaim_range(b"", &[255]).expect("a compaction");
    assert_eq!(rest(scan), (1..100u8).map(|key| (vec![key], b"old".to_vec())).collect::<Vec<_>>());
    assert_eq!(rest(view), (0..100u8).map(|key| (vec![key], b"old".to_vec())).collect::<Vec<_>>());
    assert_eq!(all(base).len(), 51);
}

fn a_view_moves_to_another_thread(base: &dyn Base) {
    Flush::default().put("a", "1").put("b", "2").into_base(base).expect("a flush");
    let mut view = base.view(b"a", b"z", Direction::Forward).expect("a view");
    assert_eq!(view.step(), Ok(Step::Row { key: b"a", value: b"1" }));
    let rows = std::thread::spawn(move || rest(view)).join().expect("the thread ends");
    assert_eq!(rows, [(b"b".to_vec(), b"2".to_vec())]);
}

fn a_flush_is_seen_whole_or_not_at_all(base: &dyn Base) {
    let write = |round: u64| {
        let value = round.to_be_bytes();
        // Spread over the key space, so that more than one file may carry them.
        (0..40u8).fold(Flush::default(), |flush, key| flush.put([key * 6], [&value[..], &[0; 3000]].concat()))
    };
    write(0).into_base(base).expect("a flush");
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let rows = all(base);
                let round = |row: &(Vec<u8>, Vec<u8>)| u64::from_be_bytes(row.1[..8].try_into().expect("a round"));
                assert!(rows.iter().all(|row| round(row) == round(&rows[0])), "a scan saw half a flush");
                assert!(round(&rows[0]) >= seen, "a later scan saw an earlier state");
                seen = round(&rows[0]);
                let (first, last) = (read(base, &[0]), read(base, &[39 * 6]));
                assert!(first.expect("a row")[..8] <= last.expect("a row")[..8], "the later read saw less");
            }
        });
        for round in 1..40 {
            write(round).into_base(base).expect("a flush");
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("the reader saw whole flushes only");
    });
}

fn what_was_read_from_disk_is_in_memory(base: &dyn Base) {
    let flush = (0..=255u8).fold(Flush::default(), |flush, key| flush.put([key, 0], [key; 500]));
    flush.into_base(base).expect("a flush");
    for key in 0..=255u8 {
        assert!(matches!(base.get(&[key, 0], Tier::Memory), Ok(Lookup::Row(_) | Lookup::WouldBlock)));
        assert_eq!(read(base, &[key, 0]), Some(vec![key; 500]));
        assert!(matches!(base.get(&[key, 0], Tier::Memory), Ok(Lookup::Row(value)) if *value == [key; 500]));
    }
}

/// Returns a base with live and dead rows of each kind, and the keys of those that must stay.
fn populate(base: &dyn Base) -> Vec<Vec<u8>> {
    let (live, dead, slot) = (Space(1), Space(2), Slot(77));
    let name = |space| Key { space, slot, hash: 9, name: b"k" };
    let mut flush = Flush::default();
    let mut stay = Vec::new();
    let mut put = |row: &[u8], stays: bool| {
        flush.set(row, Some(b"v".to_vec()));
        if stays {
            stay.push(row.to_vec());
        }
    };
    for space in [live, dead, Space(3)] {
        let lives = space != dead;
        put(&meta_row(&name(space)), lives);
        put(&expire_row(&name(space), 1234), lives);
        for id in 1..=4u64 {
            // 1 and 3 have owners, 2 and 4 do not; ids from 4 on are not wholly in the base yet.
            let owned = id % 2 == 1;
            let id = ObjectId(id);
            if owned {
                put(&owner_row(space, slot, id), lives);
            }
            for element in [&b"a"[..], b"b", b""] {
                put(&data_row(space, slot, id, element), lives && (owned || id.0 >= 4));
                put(&score_row(space, slot, id, element), lives && (owned || id.0 >= 4));
            }
        }
    }
    put(&system_row(SystemScope::Replicated, b"spaces"), true);
    put(&system_row(SystemScope::Local, b"applied"), true);
    // Rows that no part of the store writes: rows that cannot be parsed stay.
    put(&[Family::Data as u8, 0, 0, 0, 1, 0, 77, 0, 0], true);
    put(b"\x09unknown", true);
    flush.into_base(base).expect("a flush");
    stay.sort();
    stay
}

fn compaction_takes_only_what_is_dead(base: &dyn Base) {
    let stay = populate(base);
    let before = all(base).len();
    base.set_reclaim(Reclaim { objects_below: 4, dead_spaces: vec![Space(2)] });
    base.reclaim_range(b"", &[255]).expect("a compaction");
    assert_eq!(keys(&all(base)), stay);
    assert!(before > stay.len());
    // An object that loses its owner goes with the next compaction.
    let (space, slot, id) = (Space(1), Slot(77), ObjectId(3));
    Flush::default().delete(owner_row(space, slot, id)).into_base(base).expect("a flush");
    base.reclaim_range(b"", &[255]).expect("a compaction");
    let gone = |row: &Vec<u8>| {
        *row == data_row(space, slot, id, &row[15.min(row.len())..]).to_vec()
            || *row == score_row(space, slot, id, &row[15.min(row.len())..]).to_vec()
            || *row == owner_row(space, slot, id).to_vec()
    };
    let stay: Vec<_> = stay.into_iter().filter(|row| !gone(row)).collect();
    assert_eq!(keys(&all(base)), stay);
}

fn without_leave_compaction_takes_nothing(base: &dyn Base) {
    populate(base);
    let before = all(base);
    base.reclaim_range(b"", &[255]).expect("a compaction");
    assert_eq!(all(base), before);
}

fn sizes_grow_with_rows(base: &dyn Base) {
    let mut random = Random(5);
    let mut flush = Flush::default();
    for key in 0..2000u32 {
        flush.set(&key.to_be_bytes(), Some((0..1000).map(|_| random.next() as u8).collect()));
    }
    flush.into_base(base).expect("a flush");
    let (half, whole) = (base.bytes_in(&[0], &1000u32.to_be_bytes()), base.bytes_in(&[0], &[255]));
    assert!((500_000..1_500_000).contains(&half), "{half}");
    assert!((1_500_000..3_000_000).contains(&whole), "{whole}");
    assert!(base.disk_bytes() == 0 || base.disk_bytes() >= 1_900_000, "on disk or in memory");
    base.pressure();
    assert!(base.figures().iter().all(|(name, _)| !name.is_empty()));
    base.set_cache_bytes(32 << 20);
}

pub struct Random(pub u64);

impl Random {
    /// Returns the next number (xorshift64*).
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }
}
