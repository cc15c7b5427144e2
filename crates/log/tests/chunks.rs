//! The log in chunks, and a log that is put together out of them.

mod common;

use std::path::Path;

use common::*;
use haypile_log::*;

/// Cuts what a log has behind `after` and through `until` into chunks.
fn cut(life: &Life, after: u64, until: u64, bytes_max: usize) -> Vec<Chunk> {
    let mut chunks = life.log.chunks(Index(after));
    let cut = || match chunks.next(Index(until), bytes_max).unwrap() {
        ChunkCut::Chunk(chunk) => Some(chunk),
        ChunkCut::UpToDate => None,
        ChunkCut::Gap(first) => panic!("there is a gap before {first}"),
    };
    std::iter::from_fn(cut).collect()
}

fn read(chunk: &Chunk) -> Result<Vec<Owned>, ChunkError> {
    let mut records = ChunkRecords::new(chunk.bytes.clone())?;
    let mut found = Vec::new();
    while let Some(record) = records.next()? {
        found.push(Owned::of(record));
    }
    Ok(found)
}

/// The parts of records that do not depend on where they lie.
fn content(records: &[Owned]) -> Vec<(Index, History, (u64, u64), u64, Vec<u8>)> {
    records.iter().map(|r| (r.index, r.history, r.entry, r.time_ms, r.body.clone())).collect()
}

fn all(life: &Life) -> Vec<Owned> {
    let mut reader = life.log.reader(Index(0));
    std::iter::from_fn(|| match reader.next().unwrap() {
        Next::Record(record) => Some(Owned::of(record)),
        _ => None,
    })
    .collect()
}

#[test]
fn chunks_hold_each_record_once_and_none_of_two_histories() {
    let mut rig = Rig::new(1);
    let life = written(&mut rig);
    let all = all(&life);
    for (after, until, bytes_max) in
        [(0, 600, 1), (0, 600, 8192), (0, 600, 1 << 30), (299, 301, 1 << 20), (5, 5, 100), (300, 402, 50_000)]
    {
        let chunks = cut(&life, after, until, bytes_max);
        let mut next = Index(after).next();
        let mut found = Vec::new();
        for chunk in &chunks {
            let records = read(chunk).unwrap();
            assert_eq!((chunk.first, records[0].index), (next, next));
            assert_eq!(records.last().map(|last| (last.index, last.time_ms)), Some((chunk.last, chunk.time_ms)));
            assert!(records.iter().all(|record| record.history == chunk.history));
            assert!(chunk.bytes.len() < bytes_max.max(4096) + 1000, "{} bytes", chunk.bytes.len());
            next = chunk.last.next();
            found.extend(records);
        }
        assert_eq!(content(&found), content(&all[after as usize..until as usize]), "{after} to {until}");
    }
    let whole = cut(&life, 0, 600, 1 << 30);
    assert_eq!(whole.len(), 2, "one for each history");
    let second = ChunkRecords::new(whole[1].bytes.clone()).unwrap();
    assert_eq!(second.histories().starts().len(), 2);
    assert_eq!(second.start().parent(), Some((whole[0].history, Index(300))));
}

#[test]
fn no_bit_of_a_chunk_changes_unnoticed_and_no_end_is_missed() {
    let mut rig = Rig::new(2);
    let life = rig.open();
    (2..=20).for_each(|number| _ = life.write(&body(number, 100)));
    life.log.sync_through(life.log.last()).unwrap();
    let chunk = cut(&life, 0, 20, 1 << 20).remove(0);
    assert_eq!(read(&chunk).unwrap().len(), 20);
    for at in 0..chunk.bytes.len() {
        let mut changed = chunk.clone();
        changed.bytes[at] ^= 0x10;
        assert!(read(&changed).is_err(), "byte {at}");
        changed.bytes = chunk.bytes[..at].to_vec();
        // A chunk that ends with a group has fewer records, which its name and its neighbour tell.
        let ended = read(&changed).map_or(true, |records| records.len() < 20);
        assert!(ended, "cut at {at}");
    }
}

#[test]
fn a_log_out_of_chunks_goes_on_where_it_was_cut() {
    let mut rig = Rig::new(3);
    let life = written(&mut rig);
    let all = all(&life);
    let dir = Path::new("/rebuilt");
    for until in [1, 300, 301, 455, 600] {
        life.faults.create_dir_all(dir).unwrap();
        let (mut options, _) = rig.options();
        options.files = life.faults.clone();
        let mut copy = Copy::new(&options, dir);
        let mut start = None;
        for chunk in cut(&life, 0, 600, 10_000) {
            let mut records = ChunkRecords::new(chunk.bytes).unwrap();
            let histories = records.histories();
            while let Some(record) = records.next().unwrap().filter(|record| record.index <= Index(until)) {
                copy.take(&record);
                start = Some(histories.newest().unwrap());
                copy.add(histories.newest().unwrap(), &|| histories.clone()).unwrap();
            }
        }
        let exported = copy.end(start.unwrap(), Index(until + 1), &Histories::default).unwrap();
        assert_eq!(exported.records, until);
        let rebuilt = rig.try_open(Index(0), |options| {
            options.dir = dir.into();
            options.complete_through = Index(until);
            options.end = None;
        });
        let rebuilt = rebuilt.unwrap();
        assert_eq!(content(&rebuilt.found), content(&all[..until as usize]), "through {until}");
        assert_eq!(rebuilt.parent, Some((all[until as usize - 1].history, Index(until))), "a history of its own");
        drop(rebuilt);
        for name in life.faults.list(dir).unwrap() {
            life.faults.remove(&dir.join(name)).unwrap();
        }
    }
}

#[test]
fn a_gap_is_told_once_what_comes_before_it_was_cut() {
    let mut rig = Rig::new(4);
    drop(written(&mut rig));
    let life = rig.open_with(Index(600), |options| options.retention.bytes = 0);
    life.log.purge(Index(600));
    let first = life.log.stats().first;
    assert!(first > Index(1));
    let mut chunks = life.log.chunks(Index(0));
    assert!(matches!(chunks.next(Index(600), 1000).unwrap(), ChunkCut::Gap(index) if index == first));
    assert_eq!(chunks.position(), Index(1), "and again");
}
