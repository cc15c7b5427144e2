//! CONFIG GET and SET beyond what a redis-server can be compared with: listeners, versions, all or none.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use haypile_config::table::{self, Class};
use haypile_config::value::Mode;
use haypile_config::values::Values;
use haypile_config::{Durability, LogLevel, Settings, words};

fn settings() -> Settings {
    Settings::defaults(Path::new("/"))
}

#[test]
fn the_table_keeps_its_laws() {
    let mut names: Vec<&str> = table::rows()
        .flat_map(|row| row.names().chain(row.of_pika))
        .chain(table::pika::INSTEAD.iter().map(|(name, _)| *name))
        .chain(table::STATEMENTS.iter().map(|statement| statement.name))
        .collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "names are unique");
    for row in table::rows() {
        let name = row.name;
        assert!(row.names().all(|name| name == name.to_ascii_lowercase()), "{name}: names are in lower case");
        assert!(row.doc.ends_with('.') && row.doc.len() > 10, "{name}: the doc is a sentence");
        assert!(row.class == Class::Used || !row.ours, "{name}: our own directives do something");
        // The printed default is one that CONFIG SET would take, and it gives the same value.
        let default = row.default_value();
        let printed = row.kind.print(&default);
        let words: Vec<&[u8]> =
            if row.kind.takes_many_words() { printed.split(|byte| *byte == b' ').collect() } else { vec![&printed] };
        if name != "replicaof" {
            assert_eq!(row.kind.parse(&words, &default, Mode::Runtime), Ok(default.clone()), "{name}");
        }
        if let Some(off) = row.off_value() {
            assert_eq!(off, default, "{name}: off is the default");
        }
        assert!(!row.kind.expects().is_empty());
        assert_eq!(words::split(row.default.as_bytes()).map(|words| words.is_empty()), Ok(false), "{name}");
    }
    assert_eq!(Values::defaults(), Values::defaults());
}

#[test]
fn a_change_reaches_the_config_the_version_and_the_listeners() {
    let settings = settings();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let heard = seen.clone();
    settings.listen(move |changed, before, after| {
        let names: Vec<&str> = changed.iter().map(|change| change.name).collect();
        heard.lock().unwrap().push((names, before.loglevel, after.loglevel));
        Ok(())
    });
    let before = settings.config();
    assert_eq!(settings.version(), 0);
    let changed = settings.set(&[(b"loglevel", b"debug"), (b"timeout", b"0"), (b"maxmemory", b"1mb")]).unwrap();
    let names: Vec<(&str, &[u8])> = changed.iter().map(|change| (change.name, change.value.as_slice())).collect();
    assert_eq!(names, [("loglevel", &b"debug"[..]), ("maxmemory", b"1048576")], "what keeps its value does not change");
    assert_eq!(settings.version(), 1);
    assert_eq!((before.loglevel, settings.config().loglevel), (LogLevel::Notice, LogLevel::Debug));
    assert_eq!(*seen.lock().unwrap(), [(vec!["loglevel", "maxmemory"], LogLevel::Notice, LogLevel::Debug)]);
    assert_eq!(settings.set(&[(b"timeout", b"0")]), Ok(vec![]));
    assert_eq!(settings.version(), 1, "nothing changed");
}

#[test]
fn a_listener_that_refuses_keeps_everything_as_it_was() {
    let settings = settings();
    let budget = Arc::new(AtomicU64::new(0));
    let applied = budget.clone();
    settings.listen(move |_, _, after| {
        applied.store(after.maxmemory, Ordering::Relaxed);
        Ok(())
    });
    settings
        .listen(|_, _, after| if after.maxmemory > 1 << 30 { Err("there is not that much".into()) } else { Ok(()) });
    settings.set(&[(b"maxmemory", b"1gb")]).unwrap();
    assert_eq!(
        settings.set(&[(b"maxmemory", b"2gb"), (b"hz", b"50")]),
        Err("ERR CONFIG SET failed (possibly related to argument 'maxmemory') - there is not that much".into())
    );
    assert_eq!(settings.config().maxmemory, 1 << 30);
    assert_eq!(settings.get(&[b"hz"])[0].1, b"10");
    assert_eq!(budget.load(Ordering::Relaxed), 1 << 30, "who had taken it went back");
    assert_eq!(settings.version(), 1);
}

#[test]
fn what_is_not_there_yet_cannot_be_set() {
    let settings = settings();
    for row in table::rows().filter(|row| matches!(row.class, Class::NotYet { .. })) {
        let set = settings.set(&[(b"timeout", b"5"), (row.name.as_bytes(), b"yes")]);
        assert!(set.is_err_and(|error| error.ends_with("can't set immutable config")), "{}", row.name);
    }
    assert_eq!(settings.config().timeout_s, 0);
}

#[test]
fn what_names_a_file_changes_though_its_value_does_not() {
    let settings = settings();
    let changed = |pairs: &[(&[u8], &[u8])]| -> Vec<&str> {
        settings.set(pairs).expect("right values").into_iter().map(|change| change.name).collect()
    };
    assert_eq!(changed(&[(b"tls-cert-file", b"a"), (b"timeout", b"5")]), ["timeout", "tls-cert-file"]);
    assert_eq!(changed(&[(b"tls-cert-file", b"a"), (b"timeout", b"5")]), ["tls-cert-file"]);
    assert_eq!(changed(&[(b"timeout", b"5")]), [""; 0]);
}

#[test]
fn the_master_is_known_to_config_get_and_is_not_set() {
    let settings = settings();
    let get = |settings: &Settings| settings.get(&[b"replicaof"])[0].1.clone();
    assert_eq!((get(&settings), settings.config().replication.replicaof.clone()), (Vec::new(), None));
    let error = settings.set(&[(b"replicaof", b"a 1")]).expect_err("as in Redis");
    assert!(error.ends_with("can't set immutable config"), "{error}");
    settings.set_replicaof(Some(("::1", 6380)));
    assert_eq!((get(&settings), settings.version()), (b"::1 6380".to_vec(), 1));
    assert_eq!(settings.config().replication.replicaof, Some(("::1".to_owned(), 6380)));
    settings.set_replicaof(None);
    assert_eq!(settings.config().replication.replicaof, None);
}

#[test]
fn durability_follows_appendfsync_at_run_time() {
    let settings = settings();
    let changed = settings.set(&[(b"appendfsync", b"always")]).unwrap();
    assert_eq!(changed.iter().map(|change| change.name).collect::<Vec<_>>(), ["durability", "appendfsync"]);
    assert_eq!(settings.config().durability, Durability::Fsync);
    settings.set(&[(b"durability", b"os")]).unwrap();
    assert_eq!(settings.get(&[b"appendfsync"])[0].1, b"everysec");
}

#[test]
fn log_levels_are_those_of_redis_7_2() {
    let expected = "ERR CONFIG SET failed (possibly related to argument 'loglevel') - argument(s) must be one of the following: debug, verbose, notice, warning, nothing";
    assert_eq!(settings().set(&[(b"loglevel", b"loud")]), Err(expected.into()));
}

#[test]
fn a_draft_knows_its_own_changes_and_nobody_else_does() {
    let settings = Settings::defaults(Path::new("/data"));
    let mut draft = settings.draft();
    draft.set(&[(b"timeout", b"77")]).expect("a right value");
    let refused =
        draft.set(&[(b"timeout", b"78"), (b"databases", b"1")]).expect_err("it cannot be set while the server runs");
    assert!(refused.contains("immutable"), "{refused}");
    assert_eq!(draft.get(&[b"timeout"]), [("timeout".into(), b"77".to_vec())], "all or none");
    assert_eq!(settings.get(&[b"timeout"]), [("timeout".into(), b"0".to_vec())]);
    assert_eq!(settings.version(), 0);
}
