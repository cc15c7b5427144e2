//! The way to a moment, and what need not be kept, told as histories with their backups and chunks.

use haypile_archive::*;
use haypile_log::{History, HistoryStart, Index, Origin};

const A: History = History([1; 20]);
const B: History = History([2; 20]);
const C: History = History([3; 20]);

fn first(history: History) -> HistoryStart {
    HistoryStart { history, origin: Origin::Nothing }
}

fn fork(history: History, parent: History, after: u64) -> HistoryStart {
    HistoryStart { history, origin: Origin::Fork(parent, Index(after)) }
}

fn loaded(history: History, after: u64) -> HistoryStart {
    HistoryStart { history, origin: Origin::Loaded(Index(after)) }
}

/// A backup; its record of index i is of time 10 i.
fn backup(applied: u64, through: u64, histories: &[HistoryStart]) -> Manifest {
    let name = |at: u64| BackupFile { path: format!("base/{at}.sst"), bytes: 1, digest: Digest([at as u8; 32]) };
    Manifest {
        made_ms: through * 10,
        through: Index(through),
        applied: Index(applied),
        histories: histories.to_vec(),
        files: vec![name(through), name(0)],
    }
}

/// Chunks of a history, each from its first to its last record.
fn lane(catalog: &mut Catalog, histories: &[HistoryStart], ranges: &[(u64, u64)]) {
    let history = histories.last().expect("there is one").history;
    let chunk = |(first, last): &(u64, u64)| ChunkName {
        history,
        first: Index(*first),
        last: Index(*last),
        time_ms: last * 10,
    };
    let lane = Lane { chain: Chain::new(histories), chunks: ranges.iter().map(chunk).collect() };
    catalog.lanes.insert(history, lane);
}

/// One history without a hole, with backups at 100 and 200.
fn simple() -> Catalog {
    let mut catalog =
        Catalog { backups: vec![backup(80, 100, &[first(A)]), backup(150, 200, &[first(A)])], ..Catalog::default() };
    lane(&mut catalog, &[first(A)], &[(1, 90), (91, 150), (151, 210), (211, 300)]);
    catalog
}

/// The backup, the chunks and the last record of a way.
fn way(catalog: &Catalog, history: Option<History>, target: Target) -> Result<(u64, Vec<(u64, u64)>, u64), PlanError> {
    let plan = plan(catalog, history, target)?;
    let chunks = plan.chunks.iter().map(|(chunk, last)| (chunk.first.0, last.0)).collect();
    Ok((plan.backup.through.0, chunks, plan.through.0))
}

#[test]
fn the_newest_backup_before_a_moment_is_taken_and_the_log_behind_it() {
    let catalog = simple();
    let is = |target, backup, chunks: &[(u64, u64)], through| {
        assert_eq!(way(&catalog, None, target), Ok((backup, chunks.to_vec(), through)), "{target:?}");
    };
    is(Target::Newest, 200, &[(151, 210), (211, 300)], 300);
    is(Target::Index(Index(300)), 200, &[(151, 210), (211, 300)], 300);
    is(Target::Index(Index(200)), 200, &[], 200);
    is(Target::Index(Index(199)), 100, &[(91, 150), (151, 210)], 199);
    is(Target::Index(Index(100)), 100, &[], 100);
    // The first backup's base holds record 80, and its log the next ones.
    is(Target::Index(Index(80)), 100, &[], 80);
    is(Target::Time(2105), 200, &[(151, 210), (211, 300)], 300);
    is(Target::Time(2000), 200, &[(151, 210)], 210);
    is(Target::Time(1999), 100, &[(91, 150), (151, 210)], 210);
    is(Target::Time(99_999), 200, &[(151, 210), (211, 300)], 300);
    assert_eq!(way(&catalog, None, Target::Index(Index(79))), Err(PlanError::TooEarly(Index(80), 1000)));
    assert_eq!(way(&catalog, None, Target::Time(999)), Err(PlanError::TooEarly(Index(80), 1000)));
    assert_eq!(way(&catalog, None, Target::Index(Index(301))), Err(PlanError::Ends(Index(300))));
    assert_eq!(way(&Catalog::default(), None, Target::Newest), Err(PlanError::NoBackup));
}

#[test]
fn a_hole_is_named_and_what_comes_before_it_can_be_had() {
    let mut catalog = simple();
    lane(&mut catalog, &[first(A)], &[(1, 90), (91, 150), (151, 210), (251, 300), (320, 400)]);
    let hole = Err(PlanError::Hole(Hole { after: Index(210), next: Some(Index(251)), history: A }));
    for target in [Target::Newest, Target::Index(Index(211)), Target::Index(Index(400)), Target::Time(2600)] {
        assert_eq!(way(&catalog, None, target), hole, "{target:?}");
    }
    assert_eq!(way(&catalog, None, Target::Index(Index(210))), Ok((200, vec![(151, 210)], 210)));
    catalog.backups.push(backup(250, 260, &[first(A)]));
    assert_eq!(
        way(&catalog, None, Target::Index(Index(255))),
        Ok((260, vec![], 255)),
        "in the log of the one behind it"
    );
    assert_eq!(way(&catalog, None, Target::Index(Index(300))), Ok((260, vec![(251, 300)], 300)), "behind the hole");
}

#[test]
fn a_fork_is_passed_where_the_new_history_left_the_old_one() {
    let mut catalog = simple();
    let chain = [first(A), fork(B, A, 250)];
    lane(&mut catalog, &chain, &[(251, 280), (281, 400)]);
    let expected = vec![(151, 210), (211, 250), (251, 280), (281, 400)];
    assert_eq!(way(&catalog, None, Target::Newest), Ok((200, expected, 400)));
    let until_270 = way(&catalog, None, Target::Time(2700)).map(|way| way.1);
    assert_eq!(
        until_270,
        Ok(vec![(151, 210), (211, 250), (251, 280)]),
        "late records beyond the fork are not on the way"
    );
    let old = way(&catalog, Some(A), Target::Newest);
    assert_eq!(old, Ok((200, vec![(151, 210), (211, 300)], 300)), "what the old one had beyond is there if asked for");
    // A backup of records that the new history does not have leads nowhere.
    catalog.backups.push(backup(240, 270, &[first(A)]));
    assert_eq!(way(&catalog, None, Target::Newest).map(|way| way.0), Ok(200));
    assert_eq!(way(&catalog, Some(A), Target::Newest).map(|way| way.0), Ok(270));
    assert_eq!(way(&catalog, Some(C), Target::Newest), Err(PlanError::NoHistory(C)));
}

#[test]
fn records_alone_lead_across_no_load() {
    let mut catalog = simple();
    let chain = [first(A), loaded(C, 300)];
    lane(&mut catalog, &chain, &[(301, 350)]);
    assert_eq!(way(&catalog, None, Target::Newest), Err(PlanError::NoBackup));
    catalog.backups.push(Manifest { made_ms: 3001, ..backup(300, 300, &chain) });
    assert_eq!(way(&catalog, None, Target::Newest), Ok((300, vec![(301, 350)], 350)));
    assert_eq!(way(&catalog, Some(A), Target::Newest), Ok((200, vec![(151, 210), (211, 300)], 300)));
}

#[test]
fn a_load_that_never_came_to_be_is_passed() {
    let mut catalog = simple();
    let chain = [first(A), loaded(C, 300), fork(B, A, 300)];
    lane(&mut catalog, &chain, &[(301, 350)]);
    assert_eq!(way(&catalog, None, Target::Newest).map(|way| (way.0, way.2)), Ok((200, 350)));
    assert_eq!(gone(&catalog, 1).1, [(1, 90), (91, 150)]);
}

#[test]
fn holes_are_found_at_the_joint_of_two_histories_too() {
    let mut catalog = simple();
    lane(&mut catalog, &[first(A)], &[(1, 90), (91, 150)]);
    let chain = [first(A), fork(B, A, 180)];
    lane(&mut catalog, &chain, &[(191, 250)]);
    catalog.backups = vec![backup(80, 100, &[first(A)]), backup(190, 200, &chain)];
    let found = holes(&catalog, &Chain::new(&chain));
    assert_eq!(found, [Hole { after: Index(150), next: Some(Index(191)), history: A }]);
    assert_eq!(way(&catalog, None, Target::Newest).map(|way| way.0), Ok(200), "behind it all is well");
}

#[test]
fn a_backup_without_a_log_behind_it_is_enough() {
    let catalog = Catalog { backups: vec![backup(7, 10, &[first(A), fork(B, A, 5)])], ..Catalog::default() };
    assert_eq!(way(&catalog, None, Target::Newest), Ok((10, vec![], 10)));
    assert_eq!(way(&catalog, Some(B), Target::Time(200)), Ok((10, vec![], 10)));
}

fn gone(catalog: &Catalog, keep: usize) -> (Vec<u64>, Vec<(u64, u64)>) {
    gone_behind(catalog, keep, None)
}

fn gone_behind(catalog: &Catalog, keep: usize, made: Option<&Manifest>) -> (Vec<u64>, Vec<(u64, u64)>) {
    let surplus = surplus(catalog, keep, made);
    let backups = surplus.backups.iter().map(|backup| backup.through.0).collect();
    (backups, surplus.chunks.iter().map(|chunk| (chunk.first.0, chunk.last.0)).collect())
}

#[test]
fn what_leads_to_no_kept_backup_goes() {
    let mut catalog = simple();
    assert_eq!(gone(&catalog, 0), (vec![], vec![]), "all stay");
    assert_eq!(gone(&catalog, 2), (vec![], vec![]), "the chunk through 90 has records that the first base lacks");
    assert_eq!(gone(&catalog, 1), (vec![100], vec![(1, 90), (91, 150)]));
    // A fork behind the kept backup needs it; one before it is nobody's.
    lane(&mut catalog, &[first(A), fork(B, A, 250)], &[(251, 280)]);
    assert_eq!(gone(&catalog, 1), (vec![100], vec![(1, 90), (91, 150)]));
    lane(&mut catalog, &[first(A), fork(B, A, 120)], &[(121, 180), (181, 500)]);
    assert_eq!(gone(&catalog, 1), (vec![], vec![]), "one backup leads to what was written last");
    let behind = gone_behind(&catalog, 1, Some(&catalog.backups[1]));
    assert_eq!(behind, (vec![], vec![]), "the fork is written to, and has no other backup");
    lane(&mut catalog, &[first(A), fork(B, A, 120)], &[(121, 180), (181, 199)]);
    let behind = gone_behind(&catalog, 1, Some(&catalog.backups[1]));
    assert_eq!(behind, (vec![100], vec![(1, 90), (91, 150), (121, 180), (181, 199)]), "it was left before");
    lane(&mut catalog, &[first(A), fork(B, A, 120), fork(C, B, 130)], &[(131, 300)]);
    catalog.backups.remove(0);
    let behind = gone_behind(&catalog, 1, Some(&catalog.backups[0]));
    assert!(!behind.1.contains(&(131, 300)), "what is younger may become a backup's");
}

#[test]
fn no_branch_that_is_written_to_loses_its_only_backup() {
    let mut catalog = simple();
    catalog.backups.remove(0);
    let chain = [first(A), fork(B, A, 220)];
    lane(&mut catalog, &chain, &[(221, 250)]);
    let on_b = backup(230, 240, &chain);
    catalog.backups.push(on_b.clone());
    assert_eq!(gone_behind(&catalog, 1, Some(&on_b)).0, [0u64; 0], "A goes on through 300");
    // The server of A makes one in turn, while that of B writes on.
    let on_a = backup(250, 260, &[first(A)]);
    catalog.backups.push(on_a.clone());
    lane(&mut catalog, &chain, &[(221, 250), (251, 270)]);
    assert_eq!(gone_behind(&catalog, 1, Some(&on_a)).0, [200]);
    // Nobody writes to B any more.
    let last = backup(280, 290, &[first(A)]);
    catalog.backups.push(last.clone());
    assert_eq!(gone_behind(&catalog, 1, Some(&last)).0, [200, 240, 260]);
}

#[test]
fn damage_bounds_what_can_be_restored_as_a_hole_does() {
    let catalog = simple();
    let chunk = |at: usize| catalog.lanes[&A].chunks[at];
    let through = |damaged: &[(usize, u64)]| {
        let damaged: Vec<_> = damaged.iter().map(|(at, last)| (chunk(*at), Index(*last))).collect();
        through_damage(&catalog, &damaged).into_iter().map(|last| last.map(|last| last.0)).collect::<Vec<_>>()
    };
    assert_eq!(through(&[(3, 210)]), [Some(210)]);
    assert_eq!(through(&[(3, 250)]), [Some(250)], "some of its records can be read");
    assert_eq!(through(&[(1, 90)]), [Some(90)], "in the log of the first backup");
    assert_eq!(through(&[(0, 0)]), [None], "no backup is as old");
    assert_eq!(through(&[(2, 180), (3, 210)]), [Some(180), None], "one lies behind the other");
    let sound = catalog.sound(&[(chunk(3), Index(210))]);
    assert_eq!(way(&sound, None, Target::Newest).map(|way| way.2), Ok(210));
}

#[test]
fn a_backup_of_a_clock_that_was_ahead_is_not_kept_instead_of_the_one_just_made() {
    let mut catalog = simple();
    catalog.backups[1].made_ms = 99_000;
    let chain = [first(A), fork(B, A, 120)];
    lane(&mut catalog, &chain, &[(121, 180), (181, 260)]);
    let made = backup(170, 190, &chain);
    catalog.backups.push(made.clone());
    let surplus = surplus(&catalog, 1, Some(&made));
    let gone: Vec<u64> = surplus.backups.iter().map(|backup| backup.through.0).collect();
    assert_eq!(gone, [100]);
    assert!(surplus.chunks.iter().all(|chunk| chunk.history != B || chunk.last <= made.applied), "{surplus:?}");
}

#[test]
fn backups_of_another_branch_take_no_place_of_ours() {
    let mut catalog = simple();
    let chain = [first(A), fork(B, A, 120)];
    lane(&mut catalog, &chain, &[(121, 180), (181, 260)]);
    let made = backup(130, 140, &chain);
    catalog.backups.push(made.clone());
    // Record 100 leads to both, 200 is the other's and younger than what is made here.
    let gone = |keep| {
        let surplus = surplus(&catalog, keep, Some(&made));
        surplus.backups.iter().map(|backup| backup.through.0).collect::<Vec<_>>()
    };
    assert_eq!(gone(2), [0u64; 0], "ours are two");
    assert_eq!(gone(1), [100]);
    // A backup that is no younger than the oldest of ours goes with time, once nobody writes to its branch.
    catalog.backups.push(backup(230, 240, &chain));
    let newest = catalog.backups.last().cloned();
    assert!(!surplus(&catalog, 1, newest.as_ref()).backups.iter().any(|backup| backup.through == Index(200)));
    lane(&mut catalog, &[first(A)], &[(1, 90), (91, 150), (151, 210)]);
    let surplus = surplus(&catalog, 1, newest.as_ref());
    assert_eq!(surplus.backups.iter().map(|backup| backup.through.0).collect::<Vec<_>>(), [100, 200, 140]);
}

#[test]
fn whatever_could_be_restored_from_a_kept_backup_still_can() {
    let mut random = haypile_log::testing::Random(7);
    for round in 0..500 {
        let mut catalog = Catalog::default();
        let (mut chain, mut next) = (vec![first(A)], 1);
        let mut histories = vec![A];
        for number in 0..3u8 {
            let mut ranges = Vec::new();
            for _ in 0..random.below(6) {
                let last = next + random.below(30);
                ranges.push((next, last));
                next = last + 1;
                if random.chance(30) {
                    let through = last;
                    catalog.backups.push(backup(through - random.below(through.min(20)), through, &chain));
                }
            }
            if !ranges.is_empty() {
                lane(&mut catalog, &chain, &ranges);
            }
            // The next history begins at the end, or some records before it.
            let after = (next - 1).saturating_sub(random.below(10)).max(chain.last().unwrap().after().0);
            let history = History([10 + number; 20]);
            chain.push(fork(history, chain.last().unwrap().history, after));
            histories.push(history);
            next = after + 1;
        }
        catalog.backups.sort_by_key(|backup| (backup.made_ms, backup.through));
        let keep = 1 + random.below(2) as usize;
        let surplus = surplus(&catalog, keep, None);
        let mut after = catalog.clone();
        after.backups.retain(|backup| !surplus.backups.contains(backup));
        for lane in after.lanes.values_mut() {
            lane.chunks.retain(|chunk| !surplus.chunks.contains(chunk));
        }
        let mut before = catalog.clone();
        before.backups = after.backups.clone();
        for history in histories {
            for index in 0..next + 40 {
                let target = Target::Index(Index(index));
                let (one, other) = (plan(&before, Some(history), target), plan(&after, Some(history), target));
                if one.is_ok() {
                    assert_eq!(one, other, "round {round}, record {index} of {history}");
                }
            }
        }
    }
}
