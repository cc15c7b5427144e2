//! `haypile check`: a sound directory is found sound and left as it is, and each of a set of planted defects is found,
//! by name.

mod cases;
#[path = "../planting/mod.rs"]
mod planting;
#[path = "../process/mod.rs"]
mod process;

use cases::{CASES, Case};
use haypile_log::{Body, RECORD_HEADER_BYTES};
use haypile_store::row::{self, SystemScope};
use planting::log::{Place, append, flip, records};
use planting::sound::{IN_BASE, OPTIONS, SOUND, sound_copy};
use planting::{Look, check, content, write};
use process::{Server, TempDir};
use std::fs;

#[test]
fn a_sound_directory_is_sound_and_stays_as_it_is() {
    let dir = sound_copy();
    let before = content(dir.path());
    let checked = check(dir.path());
    assert_eq!(checked.findings().last(), Some(&"sound"), "{checked:?}");
    assert_eq!(checked.code, Some(0));
    assert!(content(dir.path()) == before, "not a byte of it changes");
}

#[test]
fn planted_defects_are_found() {
    let last = records(SOUND.path()).pop().expect("a record");
    for Case { name, plant, found } in CASES {
        let dir = sound_copy();
        let look = Look::at(dir.path());
        let (slot, id) = look.object("still");
        let next_object = look.value(&row::system_row(SystemScope::Replicated, b"next-object"));
        let (offset, index) = (last.offset + RECORD_HEADER_BYTES as u64 + last.bytes as u64, last.index + 1);
        let segment = dir.path().join("log").join(last.file.file_name().expect("a name"));
        let end = format!("{}: offset {offset}, record {index}", segment.display());
        let names = [
            ("OBJECT", format!("object {} in slot {}", id.0, slot.0)),
            ("F2HASH", look.element_row("hash", "f2")[15..19].iter().map(|byte| format!("{byte:02x}")).collect()),
            ("HASH", format!("{:08x}", look.key("plain").hash)),
            // The log leases a block of ids above that.
            ("LEASED", (u64::from_be_bytes(next_object.try_into().expect("eight bytes")) + 65_536).to_string()),
            ("END", end.clone()),
        ];
        let rows = plant(&look);
        drop(look);
        write(dir.path(), rows);
        let checked = check(dir.path());
        let fill = |line: &&str| names.iter().fold(line.to_string(), |line, (name, text)| line.replace(name, text));
        let expected: Vec<String> = found.iter().map(fill).collect();
        assert_eq!(checked.findings(), expected, "{name}: {checked:?}");
        let is_sound = expected.last().is_some_and(|line| line == "sound");
        assert_eq!(checked.code, Some(i32::from(!is_sound)), "{name}");
    }
}

#[test]
fn damage_of_the_log_is_a_defect_where_it_was_synced_and_a_torn_end_is_none() {
    let dir = sound_copy();
    let all = records(dir.path());
    // Synced in an earlier run, and long in the base.
    let early = &all[3];
    flip(early);
    let checked = check(dir.path());
    let place =
        |record: &Place| format!("log: {}: offset {}, record {}", record.file.display(), record.offset, record.index);
    let [finding, "1 defects: 1 log"] = checked.findings()[..] else { panic!("{checked:?}") };
    assert!(finding.starts_with(&format!("{}: a wrong checksum of a record's body", place(early))), "{checked:?}");
    assert_eq!(checked.code, Some(1));

    // Above the base: what comes behind it counts for nothing, and the rest adds up.
    let dir = sound_copy();
    let all = records(dir.path());
    let late = &all[all.len() - 3];
    assert!(late.bytes > 0);
    flip(late);
    let checked = check(dir.path());
    let [finding, .., "1 defects: 1 log"] = checked.findings()[..] else { panic!("{checked:?}") };
    assert!(finding.starts_with(&place(late)), "{checked:?}");

    // The last record was synced, too, which is noted beside the log; without that note it is cut off.
    let dir = sound_copy();
    let all = records(dir.path());
    let last = all.last().expect("a record");
    flip(last);
    let checked = check(dir.path());
    let [finding, .., "1 defects: 1 log against base"] = checked.findings()[..] else { panic!("{checked:?}") };
    assert!(finding.contains(&format!("all through record {} was synced", last.index)), "{checked:?}");
}

#[test]
fn a_change_of_a_row_of_another_length_is_a_defect() {
    let dir = sound_copy();
    let look = Look::at(dir.path());
    let row = look.meta_row("plain");
    let length = look.value(&row).len() as u32;
    drop(look);
    // A splice that suits is no defect, also after another one: the row is as it was.
    let mut suits = Body::new();
    suits.splice(&[&row], length - 1, 1, b"oo", length + 1);
    suits.splice(&[&row], length, 1, b"", length);
    append(dir.path(), &suits);
    let checked = check(dir.path());
    assert_eq!((checked.code, checked.findings().last()), (Some(0), Some(&"sound")), "{checked:?}");
    let mut beyond = Body::new();
    beyond.splice(&[&row], length, 1, b"", length);
    let index = append(dir.path(), &beyond);
    let checked = check(dir.path());
    let [finding, .., "1 defects: 1 log"] = checked.findings()[..] else { panic!("{checked:?}") };
    assert!(finding.starts_with(&format!("log: record {index} ")), "{checked:?}");
    assert!(
        finding.ends_with(&format!("a splice is of a row of {} bytes, and finds {length}", length + 1)),
        "{finding}"
    );
    assert_eq!(checked.code, Some(1));
}

#[test]
fn damage_of_the_base_is_a_defect() {
    let dir = sound_copy();
    let files = content(&dir.path().join("base"));
    let (table, mut bytes) = files
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "sst"))
        .max_by_key(|(_, bytes)| bytes.len())
        .expect("a file with rows");
    bytes[100] ^= 1;
    fs::write(&table, bytes).expect("it is writable");
    let checked = check(dir.path());
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.lines[0].starts_with("base: base: Corruption: "), "{checked:?}");
    assert_eq!(checked.findings()[1], "1 defects: 1 base");

    fs::remove_file(&table).expect("it is there");
    let checked = check(dir.path());
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.lines[0].contains("No such file"), "{checked:?}");
}

/// The log has everything from its first record on, and yet no server would start.
#[test]
fn a_base_that_lost_all_its_files_is_a_defect() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.client().ask("SET k v"), "+OK\r\n");
    server.kill();
    let base = dir.path().join("base");
    fs::remove_dir_all(&base).and_then(|()| fs::create_dir(&base)).expect("it is ours");
    let checked = check(dir.path());
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert!(checked.findings()[0].contains("the hash seed is missing"), "{checked:?}");
    assert!(process::fails(dir.path(), process::free_port(), &[]).contains("it is not the base of this log"));
}

#[test]
fn a_lost_base_or_log_is_a_defect_where_a_start_would_miss_it() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    for command in ["SET k v", "SAVE"] {
        assert_eq!(server.client().ask(command), "+OK\r\n");
    }
    server.stop();
    let backups = fs::read_dir(dir.path().join("backups")).expect("backups");
    let backup = backups.flatten().next().expect("a backup").path();
    for whole in [dir.path(), &backup] {
        for part in ["base", "log"] {
            let without = TempDir::new();
            planting::copy(whole, without.path());
            let lost = without.path().join(part);
            fs::remove_dir_all(&lost).expect("it is there");
            let checked = check(without.path());
            assert_eq!(checked.code, Some(1), "{checked:?}");
            assert!(checked.lines[0].contains(lost.to_str().expect("text")), "{checked:?}");
            assert_eq!((checked.errors.as_str(), lost.exists()), ("", false), "{checked:?}");
        }
    }
    let base = dir.path().join("base");
    fs::remove_dir_all(&base).expect("it is there");
    let lines = [
        &format!("base: {}: it is missing", base.display()),
        "1 defects: 1 base",
        "not everything was checked: there is damage behind which nothing can be told",
    ];
    assert_eq!(check(dir.path()).lines, lines);
    // A first start that was killed before it had made them.
    let fresh = TempDir::new();
    let about = fs::read_to_string(dir.path().join("HAYPILE")).expect("readable");
    fs::write(fresh.path().join("HAYPILE"), about.replace("log noted in haypile.end\n", "")).expect("it is writable");
    let checked = check(fresh.path());
    assert_eq!((checked.code, checked.findings()), (Some(0), vec!["sound"]), "{checked:?}");
    Server::start(fresh.path(), &[]).stop();
}

#[test]
fn what_cannot_be_read_is_neither_sound_nor_a_defect() {
    let empty = TempDir::new();
    let checked = check(empty.path());
    assert_eq!((checked.code, &checked.lines[..]), (Some(2), &[][..]), "{checked:?}");
    assert!(checked.errors.contains("is not a data directory of Haypile"), "{checked:?}");

    let dir = TempDir::new();
    let server = Server::start(dir.path(), &[]);
    let checked = check(dir.path());
    assert_eq!(checked.code, Some(2), "{checked:?}");
    let holder = format!("is in use by the server with process id {}", server.pid());
    assert!(checked.errors.contains(&holder), "{checked:?}");
    server.stop();
    assert_eq!(check(dir.path()).code, Some(0));

    fs::write(dir.path().join("HAYPILE"), "haypile data directory\nformat 3\nengine rocksdb\n")
        .expect("it is writable");
    let checked = check(dir.path());
    assert_eq!(checked.code, Some(2), "{checked:?}");
    assert!(checked.errors.contains("is of format 3, which is newer"), "{checked:?}");
}

#[test]
fn backups_are_checked_as_directories_are() {
    let dir = TempDir::new();
    let server = Server::start(dir.path(), &OPTIONS);
    let mut client = server.client();
    for command in IN_BASE.iter().chain(&["SELECT 0", "SAVE", "SET after x"]) {
        assert!(!client.ask(command).starts_with('-'), "{command}");
    }
    // The server goes on meanwhile: no server has the backup.
    let backup =
        fs::read_dir(dir.path().join("backups")).expect("backups").next().expect("one").expect("it is readable");
    let before = content(&backup.path());
    let checked = check(&backup.path());
    assert_eq!((checked.code, checked.findings().last()), (Some(0), Some(&"sound")), "{checked:?}");
    assert!(content(&backup.path()) == before, "not a byte of it changes");
    // A backup without its last records does not hold what its file says.
    let format = fs::read_to_string(backup.path().join("HAYPILE")).expect("it is readable");
    let (rest, index) = format.trim_end().rsplit_once(' ').expect("the last line is a number");
    let more = index.parse::<u64>().expect("a number") + 1;
    fs::write(backup.path().join("HAYPILE"), format!("{rest} {more}\n")).expect("it is writable");
    let checked = check(&backup.path());
    assert!(checked.lines[0].contains(&format!("all through record {more} was synced")), "{checked:?}");
    assert_eq!(checked.findings().last(), Some(&"1 defects: 1 log against base"));
    server.stop();
}
