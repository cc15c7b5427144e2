//! Files of real servers, old and new, and broken ones: their content, as a transcript.

use std::path::PathBuf;

use haypile_rdb::testing::{self, Piece};
use haypile_rdb::{
    Event, Failure, Key, Kind, Part, Payload, Sink, Summary, Tape, Writer, read_file, read_file_recorded,
};

/// Events as lines.
#[derive(Default)]
struct Transcript(Vec<String>);

impl Sink for Transcript {
    type Error = ();

    fn take(&mut self, event: Event<'_>) -> Result<(), ()> {
        let text = |bytes: &[u8]| match bytes.len() {
            0..60 => bytes.escape_ascii().to_string(),
            len => format!("{}... {len} bytes", bytes[..10].escape_ascii()),
        };
        let line = match event {
            Event::Aux { name, .. } => format!("aux {}", text(name)),
            Event::Database(number) => format!("database {number}"),
            Event::Sizes { keys, deadlines } => format!("sizes {keys} {deadlines}"),
            Event::Function(code) => format!("function {}", text(code)),
            Event::Module { name, key } => format!("module {name} {:?}", key.map(text)),
            Event::Key(key) => {
                let deadline = key.deadline_ms.map_or(String::new(), |ms| format!(" until {ms}"));
                format!("{:?} {}{deadline}:", key.kind, text(key.name))
            }
            Event::Part(Part::Ahead { .. }) => String::new(),
            Event::Part(Part::String(bytes) | Part::Element(bytes)) => format!(" {}", text(bytes)),
            Event::Part(Part::Scored(member, score)) => format!(" {}={score}", text(member)),
            Event::Part(Part::Field { field, value, .. }) => format!(" {}={}", text(field), text(value)),
            Event::Part(Part::Entry { id, fields }) => {
                let strings: Vec<_> = fields.strings().map(text).collect();
                format!(" {}-{} {}", id.ms, id.seq, strings.join(" "))
            }
            Event::Part(Part::Group(group)) => {
                let (name, last) = (text(group.name), group.last);
                let read = group.entries_read;
                format!("\n  group {name} last={}-{} read={read:?} pending={}", last.ms, last.seq, group.pending)
            }
            Event::Part(Part::Consumer(consumer)) => {
                format!("\n    consumer {} pending={}", text(consumer.name), consumer.pending)
            }
            Event::Part(Part::Stream(head)) => format!("\n  {head:?}"),
            Event::Part(Part::Pending { id, deliveries, .. }) => format!(" {}-{}x{deliveries}", id.ms, id.seq),
            Event::Part(Part::Owned(id)) => format!(" {}-{}", id.ms, id.seq),
            Event::Part(part) => format!(" {part:?}"),
            Event::End { elements } => format!("({elements})"),
        };
        // A key's parts are in its line.
        match (event, self.0.last_mut()) {
            (Event::Part(_) | Event::End { .. }, Some(key)) => key.push_str(&line),
            _ => self.0.push(line),
        }
        Ok(())
    }
}

fn read(bytes: &[u8]) -> (Vec<String>, Result<Summary, Failure<()>>) {
    let mut transcript = Transcript::default();
    let result = read_file(bytes, &mut transcript);
    (transcript.0, result)
}

/// Returns the folder of this package as cargo says it now, because several checkouts may share a build.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

/// Compares the content of a file beside its aux fields.
fn check(file: &str, version: u32, has_checksum: bool, expected: &[&str]) {
    let bytes = std::fs::read(package().join("tests/data").join(file)).unwrap();
    let (lines, result) = read(&bytes);
    let summary = result.unwrap();
    assert_eq!(summary, Summary { version, has_checksum, bytes: bytes.len() as u64 }, "{file}");
    let lines: Vec<_> = lines.iter().filter(|line| !line.starts_with("aux ")).collect();
    assert_eq!(lines, expected.iter().collect::<Vec<_>>(), "{file}");
    for len in 0..bytes.len() - if has_checksum { 0 } else { usize::from(version >= 5) } {
        assert!(read(&bytes[..len]).1.is_err(), "{file} cut to {len} bytes");
    }
    if has_checksum {
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(read(&bad).1.is_err(), "{file}, byte {at}");
        }
    }
}

#[test]
fn files_of_all_versions_are_read() {
    check(
        "encodings.rdb",
        4,
        false,
        &[
            "database 0",
            "Zset zset: bb=20 cc=30 bbb=200 bbbb=5000000000 ccc=300 cccc=123456789 a=1 aa=10 b=2 aaa=100 c=3 aaaa=1000(12)",
            "Set set_zipped_1: 1 2 3 4(4)",
            "List list_zipped: 1 2 3 a b c 100000 6000000000(8)",
            "String string: Hello World(1)",
            "String compressible: aaaaaaaaaa... 137 bytes(1)",
            "Set set_zipped_2: 100000 200000 300000 400000(4)",
            "String number: 10(1)",
            "Set set_zipped_3: 1000000000 2000000000 3000000000 4000000000 5000000000 6000000000(6)",
            "Set set: 6000000000 100000 a 1 b 2 c 3(8)",
            "List list: 1 2 3 a b c 100000 6000000000 1 2 3 a b c 100000 6000000000 1 2 3 a b c 100000 6000000000(24)",
            "Hash hash_zipped: a=1 b=2 c=3(3)",
            "Zset zset_zipped: a=1 b=2 c=3(3)",
            "Hash hash: b=2 aa=10 c=3 aaa=100 bb=20 cc=30 bbb=200 ccc=300 ddd=400 eee=5000000000 a=1(11)",
        ],
    );
    check("hash-zipmap.rdb", 3, false, &["database 0", "Hash hash: f1=v1 f2=v2(2)"]);
    check("hash-ziplist.rdb", 9, true, &["database 0", "sizes 1 0", "Hash hash: f1=v1 f2=v2(2)"]);
    check("list-quicklist.rdb", 8, true, &["database 0", "sizes 2 0", "List list: 7(1)", "String x: 7(1)"]);
    // Scripts are not loaded, as in Redis since 7.0.
    check("scriptbackup.rdb", 10, true, &[]);
    check("zset-ziplist.rdb", 10, true, &["database 0", "sizes 1 0", "Zset zset: one=1 two=2(2)"]);
}

/// A file that redis-server 7.0 has saved, of all types, in all the forms that it has for them.
#[test]
fn a_file_of_redis_7_is_read() {
    let (lines, result) = read(include_bytes!("data/redis-7.0.rdb"));
    assert!(result.unwrap().has_checksum);
    let expected = include_str!("data/redis-7.0.txt");
    assert_eq!(lines.join("\n") + "\n", expected);
}

#[test]
fn empty_keys_are_told() {
    // Redis has written such values by a defect, and skips them since.
    let empty =
        ["Set set:", "Hash hash:", "List list_ziplist:", "Zset zset:", "Zset zset_listpack:", "Hash hash_ziplist:"];
    let empty =
        empty.into_iter().chain(["List list_quicklist:", "Zset zset_ziplist:", "List list_quicklist_empty_ziplist:"]);
    let expected: Vec<String> = empty.map(|line| format!("{line}(0)")).collect();
    let expected: Vec<&str> =
        ["database 0", "sizes 9 0"].into_iter().chain(expected.iter().map(String::as_str)).collect();
    check("corrupt_empty_keys.rdb", 10, true, &expected);
}

/// Compares the message about a file that is refused after so many whole keys.
fn check_refused(file: &str, keys: usize, message: &str) {
    let bytes = std::fs::read(package().join("tests/data").join(file)).unwrap();
    let (lines, result) = read(&bytes);
    assert_eq!(lines.iter().filter(|line| line.ends_with(')')).count(), keys);
    assert_eq!(result.unwrap_err().to_string_lossy(), message);
}

trait Lossy {
    fn to_string_lossy(&self) -> String;
}

impl Lossy for Failure<()> {
    fn to_string_lossy(&self) -> String {
        match self {
            Failure::Input(error) => error.to_string(),
            Failure::Sink(()) => "the sink".into(),
        }
    }
}

#[test]
fn broken_files_are_refused_with_the_place() {
    let message = "at byte 494, key \"key:000000000091\": corrupt: a ziplist is shorter than its head";
    check_refused("corrupt_ziplist.rdb", 15, message);
}

/// Written files can be read: all types, deadlines, databases.
#[test]
fn files_are_written_and_read() {
    let key = |name, kind, deadline_ms| Key { name, kind, deadline_ms, idle_s: None, frequency: None, position: 0 };
    let write = || -> std::io::Result<Vec<u8>> {
        let mut writer = Writer::file(Vec::new(), haypile_rdb::VERSION_WITH_FIELD_DEADLINES)?;
        writer.aux(b"redis-ver", b"7.2.0")?;
        writer.database(0)?;
        writer.sizes(3, 1)?;
        writer.key(&key(b"s", Kind::String, Some(1_700_000_000_000)))?;
        writer.begin_string(100_000)?;
        (0..100).try_for_each(|_| writer.raw(&[b'x'; 1000]))?;
        writer.key(&Key { idle_s: Some(70), ..key(b"h", Kind::TimedHash, None) })?;
        writer.first_deadline(5000)?;
        writer.length(2)?;
        for (field, deadline) in [("f", Some(5001)), ("g", None)] {
            writer.field_deadline(deadline)?;
            writer.string(field.as_bytes())?;
            writer.string(b"-77")?;
        }
        writer.database(17)?;
        let payload = testing::payload(Kind::List, &[Piece::Element(b"a".to_vec()), Piece::Element(b"70000".to_vec())]);
        let list = Key { frequency: Some(9), ..key(b"l", Kind::List, None) };
        writer.key_of(&list, &Payload::check(&payload).unwrap())?;
        assert_eq!(writer.version(), haypile_rdb::VERSION_WITH_FIELD_DEADLINES);
        writer.end()
    };
    let bytes = write().unwrap();
    let (lines, summary) = read(&bytes);
    assert_eq!(summary.unwrap(), Summary { version: 12, has_checksum: true, bytes: bytes.len() as u64 });
    let expected = [
        "aux redis-ver",
        "database 0",
        "sizes 3 1",
        "String s until 1700000000000: xxxxxxxxxx... 100000 bytes(1)",
        "TimedHash h: f=-77 g=-77(2)",
        "database 17",
        "List l: a 70000(2)",
    ];
    assert_eq!(lines, expected);
}

/// Reads payloads off a tape, and notes the value of each key.
struct Listener {
    tape: Tape,
    parts: Vec<Piece>,
    /// Parts of a value when the tape was seen to be full.
    long_at: Option<usize>,
    whole: usize,
    long: usize,
}

impl Sink for Listener {
    type Error = ();

    fn take(&mut self, event: Event<'_>) -> Result<(), ()> {
        match event {
            Event::Key(_) => {
                self.parts.clear();
                self.long_at = None;
            }
            Event::Part(part) => {
                if self.tape.is_long() && self.long_at.is_none() {
                    self.hear_the_beginning();
                }
                self.parts.extend(Piece::of(part));
            }
            Event::End { .. } => match self.tape.seal().map(|payload| payload.to_vec()) {
                Some(payload) => {
                    let (_, parts) = testing::pieces(&Payload::check(&payload).unwrap()).unwrap();
                    assert_eq!(parts, self.parts);
                    self.whole += 1;
                }
                None => {
                    if self.long_at.is_none() {
                        self.hear_the_beginning();
                    }
                    self.long += 1;
                }
            },
            _ => {}
        }
        Ok(())
    }
}

impl Listener {
    /// Checks that the parts handed over are in the beginning.
    fn hear_the_beginning(&mut self) {
        let (beginning, mut heard) = (self.tape.take_beginning(), Vec::new());
        let count = self.parts.len();
        let _ = beginning.payload().read(|part| match heard.len() < count {
            true => {
                heard.extend(Piece::of(part));
                Ok(())
            }
            false => Err(()),
        });
        assert_eq!(heard, self.parts);
        self.long_at = Some(count);
    }
}

#[test]
fn values_are_recorded_as_they_lie_in_the_file() {
    let mut made = Writer::file(Vec::new(), haypile_rdb::VERSION).unwrap();
    let key = |name, kind| Key { name, kind, deadline_ms: None, idle_s: None, frequency: None, position: 0 };
    for (name, count) in [(b"small", 10), (b"large", 100_000)] {
        made.key(&key(&name[..], Kind::Set)).unwrap();
        made.length(count).unwrap();
        (0..count).for_each(|n| made.string(format!("member {n}").as_bytes()).unwrap());
    }
    made.key(&key(&b"string"[..], Kind::String)).unwrap();
    made.begin_string(1 << 20).unwrap();
    (0..1 << 10).for_each(|_| made.raw(&[b'x'; 1 << 10]).unwrap());
    let files = [include_bytes!("data/redis-7.0.rdb").to_vec(), made.end().unwrap()];
    // How many values of the two files are recorded whole, and how many are too long.
    for (bytes_max, expected) in [(100, (14, 5)), (10_000, (17, 2)), (1 << 20, (17, 2)), (1 << 21, (19, 0))] {
        let tape = Tape::new(bytes_max);
        let mut listener = Listener { tape: tape.clone(), parts: Vec::new(), long_at: None, whole: 0, long: 0 };
        for bytes in &files {
            read_file_recorded(&bytes[..], &tape, &mut listener).unwrap();
        }
        assert_eq!((listener.whole, listener.long), expected, "{bytes_max}");
    }
}
