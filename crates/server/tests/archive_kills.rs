//! Servers that are killed while they archive, restores that are killed, and groups: nothing that was acknowledged and
//! archived is lost, and no backup is half there.

mod archives;
mod process;

use archives::{
    DEBUG, archiving, digest, digest_of, field_of, last_record, objects, refuses, restored, succeeds, text,
    wait_for_archive,
};
use haypile_harness::random::{Random, fresh_seed};
use process::following::fill;
use process::group::Group;
use process::{Client, Ends, Server, TempDir, free_port, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Waits until all that was written is in the archive, and no backup is on its way there.
fn wait_for_all(client: &mut Client<TcpStream>) {
    wait_for_archive(client);
    wait_until("no backup is under way", || field_of(client, "archive_backup_in_progress") == "0");
}

/// Restores all that an archive has, which is sound; returns the digest.
fn newest_of(archive: &Path) -> String {
    assert!(succeeds(&["check", text(archive)]).contains(": 0 defects"));
    digest_of(&restored(archive, &[]).1)
}

/// A moment of a server that archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// A backup is made, or sent.
    Backup,
    /// Files that belong to no backup are removed.
    Prune,
    /// A piece of the log is written.
    Chunk,
    Any,
}

const MOMENTS: [Moment; 4] = [Moment::Backup, Moment::Prune, Moment::Chunk, Moment::Any];

/// The kills that each moment has to get, and the most rounds that they may take.
const HITS: usize = 2;
const ROUNDS_MAX: usize = 60;

/// The time after which a round is killed at whatever it does.
const MOMENT_MAX: Duration = Duration::from_secs(5);

/// Keys that a round writes over and over.
const KEYS: usize = 2000;

/// Old files without a backup, which a prune takes a while to remove.
const STRAY_FILES: usize = 200;

/// Returns the files of the log that have no name yet.
fn parts(archive: &Path) -> BTreeSet<PathBuf> {
    let is_part = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".part-"));
    objects(archive, "log").into_iter().filter(is_part).collect()
}

/// Whether a server removes files, or was killed while it did.
fn is_removing(archive: &Path) -> bool {
    objects(archive, "marks").iter().any(|mark| text(mark).contains("/removing-"))
}

/// Makes a file two days old.
fn age(path: &Path) {
    let file = File::options().write(true).open(path).expect("it is there");
    file.set_modified(SystemTime::now() - Duration::from_secs(48 * 3600)).expect("the file is ours");
}

/// Puts files into an archive that are nobody's.
fn put_stray_files(archive: &Path, round: usize) {
    for number in 0..STRAY_FILES {
        let name = format!("{number:02x}{round:062x}");
        let dir = archive.join("files").join(&name[..2]);
        std::fs::create_dir_all(&dir).expect("the directory is ours");
        std::fs::write(dir.join(&name), "of no backup").expect("the directory is ours");
        age(&dir.join(&name));
    }
}

/// Returns the moments that a kill fell into: those of which something was left.
fn hit(dir: &Path, archive: &Path, parts_before: &BTreeSet<PathBuf>) -> Vec<Moment> {
    let is_removing = is_removing(archive);
    let hits = [
        (Moment::Backup, dir.join("archiving").exists() && !is_removing),
        (Moment::Prune, is_removing),
        (Moment::Chunk, !parts(archive).is_subset(parts_before)),
    ];
    hits.into_iter().filter_map(|(moment, is_hit)| is_hit.then_some(moment)).collect()
}

/// Writes until the server is gone; returns the last key and value that it has taken.
fn write(port: u16, round: usize, ends: &AtomicBool) -> (String, String) {
    let (mut client, mut last) = (Client::at(port), None);
    for number in 0.. {
        let (key, value) = (format!("key:{}", number % KEYS), format!("{round}:{number}:{}", "x".repeat(1000)));
        let reply = client.try_ask(&format!("SET {key} {value}"));
        if ends.load(Ordering::Relaxed) || reply.is_none() {
            break;
        }
        assert_eq!(reply.as_deref(), Some("+OK\r\n"));
        last = Some((key, value));
        // Slowly: the disk would take far more than the archive.
        sleep(Duration::from_micros(300));
    }
    last.expect("it was there for a while")
}

/// Has a server archive, and kills it at a moment; returns what it was told to keep.
fn kill_at(
    moment: Moment,
    server: Server,
    round: usize,
    random: &mut Random,
    dir: &Path,
    archive: &Path,
) -> [String; 2] {
    let (ends, port) = (AtomicBool::new(false), server.port);
    std::thread::scope(|threads| {
        let _ends = Ends(&ends);
        let writer = threads.spawn(|| write(port, round, &ends));
        sleep(Duration::from_millis(100 + random.below(200)));
        server.client().ask("ARCHIVE.BACKUP");
        let (before, since) = (parts(archive), Instant::now());
        let has_come = || match moment {
            Moment::Backup => dir.join("archiving").exists(),
            Moment::Prune => is_removing(archive),
            Moment::Chunk => !parts(archive).is_subset(&before),
            Moment::Any => true,
        };
        // Without a pause: some of these moments are short.
        while !has_come() && since.elapsed() < MOMENT_MAX {}
        sleep(match moment {
            Moment::Backup => Duration::from_millis(random.below(20)),
            Moment::Prune | Moment::Chunk => Duration::from_micros(random.below(500)),
            Moment::Any => Duration::from_millis(random.below(1500)),
        });
        server.kill();
        let (key, value) = writer.join().expect("the writer does not panic");
        [key, value]
    })
}

#[test]
fn a_server_is_killed_at_any_moment_of_its_archiving() {
    let (dir, place, seed) = (TempDir::new(), TempDir::new(), fresh_seed());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let small = ["--memtable-size", "1mb", "--log-segment-size", "1mb", "--flush-log-bytes", "1mb"];
    let more = [&small[..], &["--archive-backups-keep", "3"]].concat();
    // The data of records, and how often a kill fell into each moment.
    let (mut known, mut hits) = (Vec::new(), BTreeMap::<Moment, usize>::new());
    let (mut round, mut taken) = (0, None::<[String; 2]>);
    let is_enough = |hits: &BTreeMap<Moment, usize>| MOMENTS[..3].iter().all(|moment| hits.get(moment) >= Some(&HITS));
    while !is_enough(&hits) {
        assert!(round < ROUNDS_MAX, "seed {seed}: too few kills fell into each moment: {hits:?}");
        if round > 0 {
            put_stray_files(place.path(), round);
        }
        let server = archiving(dir.path(), place.path(), &more);
        let mut client = server.client();
        if let Some([key, value]) = &taken {
            assert_eq!(client.ask(&format!("GET {key}")), format!("${}\r\n{value}\r\n", value.len()), "seed {seed}");
        }
        wait_until("the backup that was killed is removed", || !dir.path().join("archiving").exists());
        known.push((last_record(&mut client), digest(&mut client)));
        let before = parts(place.path());
        let moment = MOMENTS[round % MOMENTS.len()];
        taken = Some(kill_at(moment, server, round, &mut random, dir.path(), place.path()));
        for moment in hit(dir.path(), place.path(), &before) {
            *hits.entry(moment).or_default() += 1;
        }
        // The marks of a server that is gone count for minutes and hours, and its files stay for a day.
        objects(place.path(), "marks").iter().chain(&parts(place.path())).for_each(|path| age(path));
        round += 1;
    }
    let server = archiving(dir.path(), place.path(), &more);
    let mut client = server.client();
    assert_eq!(client.ask("INCR rounds"), ":1\r\n");
    wait_for_all(&mut client);
    succeeds(&["backup", "--port", &server.port.to_string()]);
    wait_for_all(&mut client);
    assert_eq!(field_of(&mut client, "archive_missing_records"), "", "seed {seed}");
    assert!(!dir.path().join("archiving").exists(), "nothing of a backup is left beside the data");
    assert_eq!(objects(place.path(), "marks"), [] as [PathBuf; 0], "seed {seed}");
    assert_eq!(parts(place.path()), BTreeSet::new(), "what was begun and is old has gone");
    let (last, digest_now) = (last_record(&mut client), digest(&mut client));
    server.kill();
    assert_eq!(newest_of(place.path()), digest_now, "seed {seed}");
    // An older record, as far back as there are backups.
    let listed = succeeds(&["backups", text(place.path())]);
    let oldest = listed.rsplit("it can be restored from record ").next().and_then(|rest| rest.split(' ').next());
    let oldest: u64 = oldest.and_then(|number| number.parse().ok()).expect("it is told");
    known.retain(|(index, _)| (oldest..last).contains(index));
    assert!(!known.is_empty(), "seed {seed}: a record that can be restored: {listed}");
    for (index, expected) in [&known[0], random.pick(&known)] {
        let (_keep, data) = restored(place.path(), &["--to", &index.to_string()]);
        assert_eq!(digest_of(&data), *expected, "seed {seed}: record {index}");
    }
}

/// Begins a restore, and kills it at a moment; returns whether it was killed before its end.
fn kill_restore(archive: &Path, data: &Path, has_come: impl Fn() -> bool) -> bool {
    let mut restore = Command::new(env!("CARGO_BIN_EXE_haypile"))
        .args(["restore", "--from", text(archive), "--dir", text(data)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be run");
    // Without a pause: the moment is short.
    while !has_come() && restore.try_wait().expect("it is our child").is_none() {}
    restore.kill().expect("it is our child");
    restore.wait().expect("it is our child");
    data.join("haypile.restoring").exists() && !data.join("HAYPILE").exists()
}

#[test]
fn a_restore_that_is_killed_goes_on_when_it_is_run_again() {
    let (dir, place) = (TempDir::new(), TempDir::new());
    let server = archiving(dir.path(), place.path(), &["--memtable-size", "1mb"]);
    let mut client = server.client();
    let random = |client: &mut Client<TcpStream>, from: usize| {
        let mut bytes = vec![0; 100_000];
        for number in from..from + 200 {
            Random::new(number as u64).fill(&mut bytes);
            assert_eq!(client.ask_words(&[b"SET", format!("long:{number}").as_bytes(), &bytes]), "+OK\r\n");
        }
    };
    random(&mut client, 0);
    fill(&mut client, 0, 1000);
    wait_for_all(&mut client);
    succeeds(&["backup", "--port", &server.port.to_string()]);
    // The log behind the backup.
    random(&mut client, 200);
    wait_for_all(&mut client);
    let digest_now = digest(&mut client);
    server.stop();
    let (_keep, whole) = restored(place.path(), &[]);
    let files = objects(&whole, "base").len();
    assert!(files > 3, "{files} files");

    let scratch = TempDir::new();
    let mut kills = 0;
    for attempt in 0..20 {
        let data = scratch.path().join(attempt.to_string());
        // One directory is killed three times: with some files, with most of them, and with a part of the log.
        let moments: [&dyn Fn() -> bool; 3] =
            [&|| !objects(&data, "base").is_empty(), &|| objects(&data, "base").len() >= files - 1, &|| {
                !objects(&data, "log").is_empty()
            }];
        if !moments.iter().all(|has_come| kill_restore(place.path(), &data, has_come)) {
            continue;
        }
        kills += 1;
        let told = "`haypile restore` was broken off in it";
        assert!(refuses(&["check", text(&data)]).contains(told));
        assert!(process::fails(&data, free_port(), &DEBUG).contains(told));
        succeeds(&["restore", "--from", text(place.path()), "--dir", text(&data)]);
        assert!(!data.join("haypile.restoring").exists());
        assert_eq!(digest_of(&data), digest_now);
        if kills == 2 {
            break;
        }
    }
    assert_eq!(kills, 2, "restores that were killed in the middle");
}

#[test]
fn whoever_leads_a_group_archives_what_it_has_agreed_on() {
    let place = TempDir::new();
    let archive: &'static str = Box::leak(text(place.path()).to_owned().into_boxed_str());
    let mut group = Group::start(&[
        "--archive-to",
        archive,
        "--archive-interval",
        "1",
        "--enable-debug-command",
        "yes",
        "--memtable-size",
        "1mb",
    ]);
    for round in 0..3 {
        let leader = group.leader();
        let mut client = group.client(leader);
        for n in 0..300 {
            assert_eq!(client.ask(&format!("SET key:{round}:{n} value")), "+OK\r\n");
        }
        if round == 1 {
            wait_for_all(&mut client);
        }
        group.kill(leader);
        let next = group.leader();
        assert_eq!(group.client(next).ask(&format!("SET after:{round} value")), "+OK\r\n");
        group.begin(leader);
        group.settle();
    }
    let leader = group.leader();
    let mut client = group.client(leader);
    wait_until("it writes", || field_of(&mut client, "archive_state") == "writing");
    wait_for_all(&mut client);
    let other = (leader + 1) % 3;
    wait_until("the others look on", || field_of(&mut group.client(other), "archive_state") == "watching");
    assert_eq!(field_of(&mut client, "archive_missing_records"), "");
    let digest_now = digest(&mut client);
    drop(group);
    assert_eq!(newest_of(place.path()), digest_now);
}
