//! Directories and object stores as places: the same calls, the same outcomes; and archives over both.

mod s3;

use haypile_archive::*;
use haypile_log::{Chunk, History, HistoryStart, Index, Origin};
use s3::{BUCKET, Between, Network, S3, options};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A directory of its own, which goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("haypile-archive-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn goes_on() -> GoesOn {
    Arc::new(AtomicBool::new(true))
}

fn in_s3(address: std::net::SocketAddr, path: &str, goes_on: &GoesOn) -> Arc<dyn Place> {
    place_of(&format!("s3://{BUCKET}/{path}"), &options(address), goes_on).expect("it can be opened")
}

/// Runs a test over each kind of place.
fn over_each(test: impl Fn(&str, Arc<dyn Place>)) {
    let scratch = Scratch::new();
    let path = scratch.0.join("directory");
    test("a directory", place_of(path.to_str().expect("a text"), &[], &goes_on()).expect("it can be opened"));
    let s3 = S3::start(&scratch.0);
    test("a bucket", in_s3(s3.address, "some/path", &goes_on()));
}

fn put(place: &dyn Place, name: &str, bytes: &[u8]) {
    let mut parts = bytes.chunks(8 << 20).map(<[u8]>::to_vec);
    place.put(name, &mut || Ok(parts.next())).expect("the place is there");
}

fn get(place: &dyn Place, name: &str) -> Result<Vec<u8>, PlaceError> {
    let mut bytes = Vec::new();
    place.get(name, &mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    })?;
    Ok(bytes)
}

#[test]
fn what_was_put_is_listed_and_comes_back() {
    over_each(|what, place| {
        assert_eq!(place.list("log/", ""), Ok(vec![]), "{what}");
        let long: Vec<u8> = (0..(20 << 20) + 7).map(|at: u32| (at % 251) as u8).collect();
        let exactly = vec![7; 8 << 20];
        for (name, bytes) in
            [("log/b/2", &b"two"[..]), ("log/a/1", b"one"), ("log/c/3", b""), ("files/x", &long), ("files/y", &exactly)]
        {
            put(&*place, name, bytes);
            assert!(get(&*place, name) == Ok(bytes.to_vec()), "{what}: {name}");
            assert_eq!(place.get_start(name, 2).map(|start| start.len()), Ok(bytes.len().min(2)), "{what}: {name}");
        }
        let names = |prefix: &str, after: &str| -> Vec<(String, u64)> {
            let listed = place.list(prefix, after).expect("it is there");
            assert!(listed.iter().all(|listed| listed.modified_ms > 1_700_000_000_000), "{what}");
            listed.into_iter().map(|listed| (listed.name, listed.bytes)).collect()
        };
        let all = [("log/a/1".to_owned(), 3), ("log/b/2".to_owned(), 3), ("log/c/3".to_owned(), 0)];
        assert_eq!(names("log/", ""), all, "{what}");
        assert_eq!(names("log/", "log/a/1"), all[1..], "{what}");
        assert_eq!(names("log/b/", ""), all[1..2], "{what}");
        put(&*place, "log/a/1", b"another");
        assert_eq!(get(&*place, "log/a/1"), Ok(b"another".to_vec()), "{what}");
        assert_eq!(place.create("log/a/1", b"x".to_vec()), Err(PlaceError::Exists("log/a/1".into())), "{what}");
        assert_eq!(place.create("new", b"x".to_vec()), Ok(()), "{what}");
        for _ in 0..2 {
            assert_eq!(place.remove("log/a/1"), Ok(()), "{what}");
        }
        assert_eq!(get(&*place, "log/a/1"), Err(PlaceError::Missing("log/a/1".into())), "{what}");
        assert!(matches!(place.get_start("log/a/1", 1), Err(PlaceError::Missing(_))), "{what}");
        assert_eq!(names("log/", ""), all[1..], "{what}");
    });
}

#[test]
fn nothing_of_what_was_broken_off_is_there() {
    over_each(|what, place| {
        let mut parts = vec![vec![1; 8 << 20], vec![2; 8 << 20]];
        let put = place.put("files/half", &mut || match parts.pop() {
            Some(part) => Ok(Some(part)),
            None => Err(PlaceError::Failed("the disk is broken".into())),
        });
        assert_eq!(put, Err(PlaceError::Failed("the disk is broken".into())), "{what}");
        assert_eq!(place.list("files/", ""), Ok(vec![]), "{what}");
    });
}

/// A chunk that is not looked into.
fn chunk(first: u64) -> Chunk {
    let bytes = vec![first as u8; 100_000];
    Chunk { history: History([3; 20]), first: Index(first), last: Index(first + 9), time_ms: first, bytes }
}

#[test]
fn an_archive_is_begun_once_and_knows_its_key() {
    over_each(|what, place| {
        assert!(matches!(Archive::open(place.clone(), None), Err(Error::NoArchive(_))), "{what}");
        let key = Key::parse(&"07".repeat(32)).expect("64 digits");
        let archive = Archive::open_or_begin(place.clone(), Some(key.clone())).expect("it can be begun");
        assert!(Archive::open_or_begin(place.clone(), Some(key.clone())).is_ok(), "{what}");
        let other = Key::parse(&"08".repeat(32)).expect("64 digits");
        for wrong in [None, Some(other)] {
            assert!(matches!(Archive::open_or_begin(place.clone(), wrong), Err(Error::Failed(_))), "{what}");
        }
        archive.put_chunk(&chunk(1)).expect("the place is there");
        let file = b"the content of a file".repeat(100_000);
        let (digest, bytes) = digest_file(&mut &file[..]).expect("it is in memory");
        let file_of = BackupFile { path: "base/1.sst".into(), bytes, digest };
        archive.put_file(digest, &mut &file[..]).expect("the place is there");
        let there = archive.files().expect("the place is there");
        assert!(archive.has_file(&there, &file_of), "{what}");
        assert!(!archive.has_file(&there, &BackupFile { bytes: bytes + 1, ..file_of.clone() }), "{what}");
        let mut read = Vec::new();
        let mut take = |part: &[u8]| {
            read.extend_from_slice(part);
            Ok(())
        };
        assert_eq!(archive.get_file(&file_of, &mut take), Ok(()), "{what}");
        assert!(read == file, "{what}");
        let other = BackupFile { digest: Digest([1; 32]), ..file_of };
        assert!(matches!(archive.get_file(&other, &mut |_| Ok(())), Err(Error::Missing(_))), "{what}");
    });
}

fn archive_in(scratch: &Scratch) -> Archive {
    let path = scratch.0.join("archive");
    let place = place_of(path.to_str().expect("a text"), &[], &goes_on()).expect("it can be opened");
    Archive::open_or_begin(place, None).expect("it is begun")
}

fn manifest(files: Vec<BackupFile>) -> Manifest {
    let histories = vec![HistoryStart { history: History([3; 20]), origin: Origin::Nothing }];
    Manifest { made_ms: 1, through: Index(9), applied: Index(5), histories, files }
}

#[test]
#[should_panic(expected = "a chunk is found by its name")]
fn no_chunk_is_written_that_ends_before_it_begins() {
    let scratch = Scratch::new();
    let _ = archive_in(&scratch).put_chunk(&Chunk { last: Index(1), ..chunk(7) });
}

#[test]
#[should_panic(expected = "what a manifest says makes sense")]
fn no_manifest_is_written_that_nobody_could_read() {
    let scratch = Scratch::new();
    let _ = archive_in(&scratch).put_manifest(&Manifest { applied: Index(10), ..manifest(Vec::new()) });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is removed, and a manifest names it")]
fn no_file_is_removed_that_a_manifest_names() {
    let scratch = Scratch::new();
    let archive = archive_in(&scratch);
    let (digest, bytes) = digest_file(&mut &b"content"[..]).expect("it is in memory");
    archive.put_file(digest, &mut &b"content"[..]).expect("the place is there");
    let of_backup = manifest(vec![BackupFile { path: "base/1.sst".into(), bytes, digest }]);
    archive.put_manifest(&of_backup).expect("the place is there");
    let object = archive.objects_of([&digest]).next().expect("there is one");
    archive.remove(&of_backup.object()).and_then(|()| archive.remove(&object)).expect("no manifest names it any more");
    archive
        .put_file(digest, &mut &b"content"[..])
        .and_then(|()| archive.put_manifest(&of_backup))
        .expect("it is there");
    let _ = archive.remove(&object);
}

#[test]
fn nothing_is_written_to_a_place_whose_archive_is_gone() {
    let scratch = Scratch::new();
    let (path, aside) = (scratch.0.join("archive"), scratch.0.join("aside"));
    let place = place_of(path.to_str().expect("a text"), &[], &goes_on()).expect("it can be opened");
    let archive = Archive::open_or_begin(place, None).expect("it is begun");
    let mark = archive.mark(Work::Making).expect("it is there");
    std::fs::rename(&path, &aside).expect("it is ours");
    // The empty directory that something was mounted on, or not even that.
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&path).expect("it is ours");
        }
        let refused = [
            archive.put_chunk(&chunk(1)),
            archive.put_file(Digest([7; 32]), &mut &b"x"[..]),
            archive.mark(Work::Removing).map(drop),
            mark.meets(Work::Removing).map(drop),
        ];
        let is_refused = |outcome: &Result<(), Error>| matches!(outcome, Err(Error::NoArchive(_)));
        assert!(refused.iter().all(is_refused), "{refused:?}");
        let entries = std::fs::read_dir(&path).map_or(0, Iterator::count);
        assert_eq!((path.exists(), entries), (is_there, 0));
    }
    std::fs::remove_dir(&path).and_then(|()| std::fs::rename(&aside, &path)).expect("it is ours");
    archive.put_chunk(&chunk(1)).expect("it is back");
}

#[test]
fn a_bad_network_is_an_error_and_nothing_half_written_is_there() {
    let scratch = Scratch::new();
    let s3 = S3::start(&scratch.0);
    let between = Between::new(s3.address);
    let archive = Archive::open_or_begin(in_s3(between.address, "a", &goes_on()), None).expect("the network is good");
    archive.put_chunk(&chunk(1)).expect("the network is good");
    let objects = || in_s3(s3.address, "a", &goes_on()).list("log/", "").expect("it is there").len();
    for network in [Network::Refusing, Network::Cutting(50_000)] {
        between.set(network);
        let failed = archive.put_chunk(&chunk(11));
        assert!(matches!(failed, Err(Error::Failed(_))), "{network:?}: {failed:?}");
        assert_eq!(objects(), 1, "{network:?}");
    }
    between.set(Network::Slow(10));
    archive.put_chunk(&chunk(11)).expect("it is only slow");
    assert_eq!(objects(), 2);
}

#[test]
fn whoever_wants_no_answer_any_more_does_not_wait_for_it() {
    let scratch = Scratch::new();
    let s3 = S3::start(&scratch.0);
    let (between, goes_on) = (Between::new(s3.address), goes_on());
    let archive = Archive::open_or_begin(in_s3(between.address, "a", &goes_on), None).expect("the network is good");
    between.set(Network::Slow(60_000));
    let (since, before) = (Instant::now(), between.pieces());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while between.pieces() == before {
                std::thread::yield_now();
            }
            goes_on.store(false, Ordering::Release);
        });
        assert!(archive.put_chunk(&chunk(1)).is_err());
    });
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

#[test]
fn addresses_and_options_that_make_no_sense_are_refused() {
    for (location, options) in [
        ("ftp://somewhere/else", vec![]),
        ("s3://", vec![]),
        ("s3://bucket/path", vec![("no-such-option".to_owned(), "x".to_owned())]),
        ("no scheme://x", vec![]),
    ] {
        let refused = place_of(location, &options, &goes_on());
        assert!(refused.is_err_and(|why| why.contains(location)), "{location}");
    }
}

#[test]
fn whoever_makes_a_backup_and_whoever_removes_files_see_each_other() {
    over_each(|what, place| {
        let archive = Archive::open_or_begin(place.clone(), None).expect("it can be begun");
        let making = archive.mark(Work::Making).expect("the place takes it");
        assert_eq!(making.meets(Work::Removing), Ok(false), "{what}");
        assert_eq!(making.meets(Work::Making), Ok(false), "{what}: it is its own");
        let removing = archive.mark(Work::Removing).expect("the place takes it");
        assert_eq!(removing.meets(Work::Making), Ok(true), "{what}");
        assert_eq!(making.meets(Work::Removing), Ok(true), "{what}");
        drop(removing);
        assert_eq!(making.meets(Work::Removing), Ok(false), "{what}");
        drop(making);
        assert_eq!(place.list("marks/", ""), Ok(vec![]), "{what}");
    });
}

/// Makes files that were last written to so long ago.
fn age(path: &std::path::Path, seconds: u64) {
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).expect("the file is ours");
}

#[test]
fn the_mark_of_a_server_that_is_gone_counts_no_more_after_a_while() {
    let scratch = Scratch::new();
    let place = place_of(scratch.0.to_str().expect("a text"), &[], &goes_on()).expect("it can be opened");
    let archive = Archive::open_or_begin(place, None).expect("it can be begun");
    let left = scratch.0.join("marks").join("removing-00");
    let making = archive.mark(Work::Making).expect("the place takes it");
    std::fs::write(&left, "haypile\n").expect("the directory is ours");
    age(&left, 300);
    assert_eq!(making.meets(Work::Removing), Ok(true));
    age(&left, 700);
    assert_eq!(making.meets(Work::Removing), Ok(false));
    assert!(!left.exists(), "it is cleared away");
}

#[test]
fn files_that_were_broken_off_go_after_a_while() {
    let scratch = Scratch::new();
    let place = place_of(scratch.0.to_str().expect("a text"), &[], &goes_on()).expect("it can be opened");
    put(&*place, "files/ab/x", b"whole");
    let [old, young] = ["1", "2"].map(|name| scratch.0.join("files/ab").join(format!(".part-{name}")));
    for part in [&old, &young] {
        std::fs::write(part, "half").expect("the directory is ours");
    }
    age(&old, 7200);
    age(&scratch.0.join("files/ab/x"), 7200);
    place.remove_broken_off(Duration::from_secs(3600)).expect("the directory is ours");
    assert!(!old.exists() && young.exists());
    assert!(get(&*place, "files/ab/x") == Ok(b"whole".to_vec()));
}
