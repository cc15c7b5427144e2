//! A log of a consensus group's member: entries are whole or absent, a leader's are numbered as they are written, and
//! what the group did not agree on is taken back.

mod common;

use common::{Life, Owned, Rig, body};
use haypile_log::testing::Random;
use haypile_log::*;

/// Returns the records behind `after` that were written.
fn read(log: &Log, after: Index) -> Vec<Owned> {
    let mut reader = log.reader(after).through(Through::Written);
    std::iter::from_fn(|| match reader.next().unwrap() {
        Next::Record(record) => Some(Owned::of(record)),
        Next::UpToDate => None,
        Next::Gap(first) => panic!("a gap up to {first}"),
    })
    .collect()
}

fn follow(rig: &mut Rig) -> Life {
    rig.open_with(Index(0), |options| options.follows = true)
}

#[test]
fn a_leaders_entries_are_numbered_as_they_are_written() {
    for recovers in [false, true] {
        let mut rig = Rig::new(3);
        let life = follow(&mut rig);
        life.wait_for_spare();
        assert_eq!(life.log.take_entries(), []);
        life.log.lead(4, 9);
        (2..5).for_each(|number| _ = life.append(&body(number, 10)));
        life.log.write();
        life.append(b"ended");
        life.log.end_entry();
        life.log.end_entry();
        if recovers {
            life.faults.fail_writes(0, 1, std::io::ErrorKind::Other);
        }
        life.append(b"the next");
        let (change, crc) = (b"other members", body_crc(b"other members"));
        assert_eq!(life.log.append_members(life.log.reserve(change.len()).unwrap(), 7, change, crc), Index(7));
        life.append(b"behind it");
        life.sync(b"with it");
        let span = |number, first, last| {
            let (first, last, changes_members) = (Index(first), Index(last), number == 12);
            EntrySpan { term: 4, number, first, last, changes_members }
        };
        let expected = [span(9, 2, 4), span(10, 5, 5), span(11, 6, 6), span(12, 7, 7), span(13, 8, 9)];
        assert_eq!(life.log.take_entries(), expected);
        assert_eq!(life.log.take_entries(), [], "each is told once");
        rig.disk.kill();
        let found: Vec<_> = follow(&mut rig).found[1..].iter().map(|record| record.entry).collect();
        assert_eq!(found, [(4, 9), (4, 9), (4, 9), (4, 10), (4, 11), (4, 12), (4, 13), (4, 13)]);
    }
}

#[test]
fn an_entry_is_there_as_a_whole_or_not_at_all() {
    for (term, left) in [(0, 5), (7, 3)] {
        let mut rig = Rig::new(8);
        let life = follow(&mut rig);
        life.wait_for_spare();
        life.append(b"first");
        life.log.begin_entry(term, term);
        life.sync(b"whole");
        life.log.begin_entry(term, 2 * term);
        (4..7).for_each(|number| _ = life.append(&body(number, 100)));
        life.log.write();
        let last = read(&life.log, Index(5)).pop().unwrap();
        rig.disk.kill();
        rig.damage(&rig.path(last.segment), last.offset + RECORD_HEADER_BYTES as u64 + 50);
        let life = follow(&mut rig);
        assert_eq!(life.last, Index(left), "of term {term}");
        assert!(life.cut.is_some(), "what goes is told");
        assert_eq!(life.sync(b"instead"), Index(left).next());
        rig.disk.crash(1);
        assert_eq!(follow(&mut rig).found.pop().unwrap().body, b"instead");
    }
}

#[test]
fn the_records_of_an_entry_are_one_group_however_long_they_are() {
    let bodies: Vec<_> = (4..8).map(|number| body(number, 400_000)).collect();
    let records = |first: u64| -> Vec<Record<'_>> {
        let record = |(index, body): (u64, &'static [u8])| Record {
            index: Index(index),
            history: History([1; 20]),
            term: 2,
            entry: 9,
            kind: Kind::Effects,
            time_ms: 7,
            body,
            body_crc: body_crc(body),
            segment: 0,
            offset: 0,
        };
        (first..).zip(bodies.iter().map(|body| &*body.clone().leak())).map(record).collect()
    };
    let mut rig = Rig::new(4);
    let open = |rig: &mut Rig| {
        rig.open_with(Index(0), |options| {
            (options.follows, options.segment_bytes, options.unsynced_bytes_max) = (true, 8 << 20, 8 << 20);
        })
    };
    let life = open(&mut rig);
    life.wait_for_spare();
    life.sync(b"before");
    let reserved = life.log.reserve_entry(&records(3), common::LONG).unwrap();
    assert!(life.log.append_entry(reserved, &records(4)).is_err(), "another record comes next");
    let reserved = life.log.reserve_entry(&records(3), common::LONG).unwrap();
    life.log.append_entry(reserved, &records(3)).unwrap();
    life.log.write();
    life.wait_until("it is written", |log| log.written() == Index(6));
    let found = read(&life.log, Index(2));
    assert_eq!(found.iter().map(|record| record.entry).collect::<Vec<_>>(), [(2, 9); 4]);
    let gaps: Vec<_> = found.windows(2).map(|pair| pair[1].offset - pair[0].offset).collect();
    assert_eq!(gaps, [RECORD_HEADER_BYTES as u64 + 400_000; 3], "no group begins between them");
    rig.disk.kill();
    rig.damage(&rig.path(found[3].segment), found[3].offset + 100);
    assert_eq!(open(&mut rig).last, Index(2), "none is there without the others");
}

#[test]
fn records_behind_the_last_one_to_stay_are_gone_for_good() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut rig = Rig::new(seed);
        let life = follow(&mut rig);
        let count = 2 + random.below(80);
        let (mut term, mut bodies) = (1, vec![Vec::new()]);
        for number in 2..=count {
            bodies.push(body(number, random.below(4000) as usize));
            life.log.begin_entry(term, number);
            life.append(bodies.last().unwrap());
            if random.chance(40) {
                life.log.write();
            }
        }
        life.log.sync_through(life.log.last()).unwrap();
        let mut life = Some(life);
        for _ in 0..3 {
            let keep = 1 + random.below(bodies.len() as u64 + 2);
            drop(life.take());
            if random.chance(50) {
                rig.disk.kill();
            }
            let opened = rig.open_with(Index(0), |options| {
                options.follows = true;
                options.keep_through = Some(Index(keep));
            });
            bodies.truncate(keep as usize);
            assert_eq!(opened.last.0, bodies.len() as u64, "seed {seed}");
            let found: Vec<_> = opened.found.iter().map(|record| record.body.clone()).collect();
            assert!(found == bodies, "seed {seed}");
            term += 1;
            for _ in 0..random.below(30) {
                bodies.push(body(random.number(), random.below(4000) as usize));
                opened.log.begin_entry(term, bodies.len() as u64);
                opened.append(bodies.last().unwrap());
            }
            opened.log.sync_through(opened.log.last()).unwrap();
            let read: Vec<_> = read(&opened.log, Index(0)).into_iter().map(|record| record.body).collect();
            assert!(read == bodies, "seed {seed}");
            if random.chance(50) {
                rig.disk.crash(random.number());
                life = Some(follow(&mut rig));
                let found = &life.as_ref().unwrap().found;
                assert!(found.iter().map(|record| &record.body).eq(&bodies), "seed {seed}");
            } else {
                life = Some(opened);
            }
        }
    }
}

#[test]
fn the_logs_of_a_group_are_in_one_history() {
    let founding = History([7; 20]);
    let mut rig = Rig::new(1);
    let opened = rig.open_with(Index(0), |options| {
        options.follows = true;
        options.founding = Some(founding);
    });
    assert_eq!((opened.history, opened.parent), (founding, None));
    drop(opened);
    assert_eq!(follow(&mut rig).history, founding, "it stays that");
}

#[test]
fn an_abandoned_log_writes_nothing_more() {
    let mut rig = Rig::new(1);
    let life = follow(&mut rig);
    life.wait_for_spare();
    life.sync(b"kept");
    life.append(b"lost");
    life.log.abandon();
    assert!(life.log.reserve(1).is_err());
    life.log.write();
    assert_eq!(follow(&mut rig).last, Index(2));
}
