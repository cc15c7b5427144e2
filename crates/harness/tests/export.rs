//! Files that `haypile export` makes beside a real redis-server: it loads them, and has then what the source has, key
//! by key.

use haypile_harness::client::{Client, Reply};
use haypile_harness::random::Random;
use haypile_harness::server::{Server, Template, Workplace, haypile_binary};
use haypile_harness::values::value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const DEBUG: &str = "--enable-debug-command yes --databases 32";
const DATABASES: [u32; 3] = [0, 5, 31];
const KEYS: u64 = 120;

fn start(template: &Template, name: &str) -> (Server, Workplace) {
    let place = Workplace::new(name, None).expect("there is a disk");
    (Server::start(template, &place).expect("the server starts").0, place)
}

fn ask(client: &mut Client, words: &[&[u8]]) -> Reply {
    client.call(words).expect("the server answers")
}

/// Keys of all types and sizes in several databases, some with a deadline, some without a value that is left.
fn fill(client: &mut Client, seed: u64) {
    let mut random = Random::new(seed);
    for database in DATABASES {
        assert!(ask(client, &[b"SELECT", database.to_string().as_bytes()]).is_ok());
        for n in 0..KEYS {
            let key = match random.below(4) {
                0 => n.to_string(),
                1 => format!("a key with a name that compresses {n} {n} {n} {n}"),
                _ => format!("key{n}"),
            };
            for command in value(&mut random, key.as_bytes()) {
                let reply = client.call(&command).expect("the server answers");
                assert!(reply.error().is_none(), "seed {seed}: {command:?} gave {reply}");
            }
            match random.below(5) {
                0 => {
                    let deadline = (4_102_444_800_000 + random.below(1 << 30)).to_string();
                    ask(client, &[b"PEXPIREAT", key.as_bytes(), deadline.as_bytes()]);
                }
                1 if random.percent(20) => drop(ask(client, &[b"PEXPIRE", key.as_bytes(), b"1"])),
                _ => {}
            }
        }
    }
}

/// All keys of a database, by KEYS.
fn names(client: &mut Client, database: u32) -> BTreeSet<Vec<u8>> {
    assert!(ask(client, &[b"SELECT", database.to_string().as_bytes()]).is_ok());
    let names = ask(client, &[b"KEYS", b"*"]);
    names.elements().expect("names").iter().map(|name| name.bytes().expect("a name").to_vec()).collect()
}

/// Checks that two servers have the same data, down to the consumer groups of streams.
fn compare(ours: &mut Client, theirs: &mut Client, what: &str) {
    let mut keys = 0;
    for database in DATABASES {
        let all = names(ours, database);
        assert_eq!(all, names(theirs, database), "{what}: database {database}");
        keys += all.len();
        for name in all {
            for question in ["DEBUG DIGEST-VALUE", "TYPE", "PEXPIRETIME"] {
                let words: Vec<&[u8]> = question.split(' ').map(str::as_bytes).chain([&name[..]]).collect();
                let shown = name.escape_ascii();
                assert_eq!(ask(ours, &words), ask(theirs, &words), "{what}: {question} {shown} of {database}");
            }
            if ask(ours, &[b"TYPE", &name]).to_string().contains("stream") {
                for question in [&[&b"XINFO"[..], b"GROUPS", &name][..], &[b"XPENDING", &name, b"group 0"]] {
                    assert_eq!(ask(ours, question), ask(theirs, question), "{what}: {question:?}");
                }
            }
        }
    }
    assert!(keys > DATABASES.len() * 50, "{what}: {keys} keys");
}

fn export(file: &Path, from: &[&str]) -> String {
    let binary = haypile_binary().expect("it is built");
    let mut command = Command::new(binary);
    let output = command.arg("export").arg(file).args(from).stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let checked = Command::new("redis-check-rdb").arg(file).output().expect("it is installed with redis-server");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// redis-server on a file.
fn loaded(file: &Path) -> (Server, Workplace) {
    let place = Workplace::new("export-loaded", None).expect("there is a disk");
    std::fs::copy(file, place.data().join("dump.rdb")).expect("there is room");
    let template = Template::redis(DEBUG).expect("a command line");
    (Server::start(&template, &place).expect("it loads the file").0, place)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

#[test]
fn redis_loads_what_was_exported() {
    let haypile = Template::haypile(&haypile_binary().expect("it is built"), DEBUG).expect("a command line");
    let files = Workplace::new("export-files", None).expect("there is a disk");
    let (ours, place) = start(&haypile, "export-ours");
    let mut client = ours.client().expect("it accepts clients");
    fill(&mut client, 7);
    let port = ours.port().to_string();

    let from_server = files.data().join("server.rdb");
    let summary = export(&from_server, &["--port", &port]);
    assert!(summary.contains("database 31: "), "{summary}");
    let (theirs, _theirs_place) = loaded(&from_server);
    compare(&mut client, &mut theirs.client().expect("it accepts clients"), "from the server");

    assert!(ask(&mut client, &[b"SAVE"]).is_ok());
    let backup = std::fs::read_dir(place.data().join("backups")).expect("there is one").next().expect("there is one");
    let from_backup = files.data().join("backup.rdb");
    export(&from_backup, &["--dir", text(&backup.expect("it can be listed").path())]);
    let (theirs, _theirs_place) = loaded(&from_backup);
    compare(&mut client, &mut theirs.client().expect("it accepts clients"), "from the backup");

    // From the directory of one that was killed: to compare, it is started again.
    assert!(ask(&mut client, &[b"SELECT", b"5"]).is_ok());
    assert!(ask(&mut client, &[b"SET", b"after the backup", b"x"]).is_ok());
    drop(client);
    let mut ours = ours;
    ours.kill().expect("it is our child");
    let from_directory = files.data().join("directory.rdb");
    export(&from_directory, &["--dir", text(&place.data())]);
    let (theirs, _theirs_place) = loaded(&from_directory);
    let ours = Server::start(&haypile, &place).expect("it starts again").0;
    let mut client = ours.client().expect("it accepts clients");
    assert!(names(&mut client, 5).contains(&b"after the backup"[..]));
    compare(&mut client, &mut theirs.client().expect("it accepts clients"), "from the directory");
}

/// Sets what it holds when it goes: a scope waits for its writer also if the test fails.
struct Stopping<'s>(&'s AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// redis-server is exported itself: also its forms of values, and with SCAN while its tables grow.
#[test]
fn redis_is_exported_and_loads_it_again() {
    let files = Workplace::new("export-files", None).expect("there is a disk");
    let (theirs, _place) = start(&Template::redis(DEBUG).expect("a command line"), "export-theirs");
    let mut client = theirs.client().expect("it accepts clients");
    fill(&mut client, 8);
    let port = theirs.port().to_string();
    let file = files.data().join("a.rdb");
    export(&file, &["--port", &port]);
    let (again, _again_place) = loaded(&file);
    compare(&mut client, &mut again.client().expect("it accepts clients"), "from redis-server");
    drop(client);

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stopping = Stopping(&stop);
        let mut writer = theirs.client().expect("it accepts clients");
        let stop = &stop;
        scope.spawn(move || {
            // The table doubles again and again, and shrinks when most of it is gone.
            for round in 0u64.. {
                for n in 0..50_000 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    writer
                        .call(&[b"SET".to_vec(), format!("grows {round} {n}").into_bytes(), b"x".to_vec()])
                        .expect("it answers");
                }
                let all =
                    names(&mut writer, 0).into_iter().filter(|name| name.starts_with(b"grows")).collect::<Vec<_>>();
                for some in all.chunks(1000) {
                    let words: Vec<&[u8]> =
                        [&b"UNLINK"[..]].into_iter().chain(some.iter().map(Vec::as_slice)).collect();
                    ask(&mut writer, &words);
                }
            }
        });
        for round in 0..5 {
            export(&file, &["--port", &port, "--force"]);
            // A key that is there twice, and it does not start.
            let (again, _again_place) = loaded(&file);
            let kept = names(&mut again.client().expect("it accepts clients"), 31).len();
            assert!(kept > 50, "round {round}: {kept}");
        }
    });
}
