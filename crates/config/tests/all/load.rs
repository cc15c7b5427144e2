//! Configurations for which no redis-server can be the judge: error texts, directives that are not there yet or without
//! effect, our own directives, bounds of include, and anything at all as input.

use std::ffi::OsString;

use crate::common::{Random, Scratch};
use haypile_config::{CommandLine, CompactInterval, CompactWindow, Durability, Engine, Loaded, Size, load, table};

fn start(arguments: &[&str]) -> Result<Loaded, String> {
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    load(&CommandLine::parse(&arguments), &mut std::io::empty()).map_err(|error| error.to_string())
}

fn file(scratch: &Scratch, text: &str) -> Result<Loaded, String> {
    let path = scratch.write("haypile.conf", text);
    start(&[path.to_str().unwrap()])
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let scratch = Scratch::new();
    let error = file(&scratch, text).map(|_| ()).expect_err("this is refused");
    for part in expected {
        assert!(error.contains(part), "{part:?} is missing in:\n{error}");
    }
}

#[test]
fn an_error_says_where_what_and_what_would_be_right() {
    let scratch = Scratch::new();
    let error = file(&scratch, "# a\nport 6380\nmaxmemroy 1gb\n").map(|_| ()).unwrap_err();
    let expected = format!(
        "*** FATAL CONFIG FILE ERROR (Haypile {}) ***\n\
         Reading the configuration file {}, at line 3\n\
         >>> 'maxmemroy 1gb'\n\
         Bad directive or wrong number of arguments\n\
         There is no directive 'maxmemroy'; did you mean 'maxmemory'?",
        env!("CARGO_PKG_VERSION"),
        scratch.0.join("haypile.conf").display(),
    );
    assert_eq!(error, expected);
    assert_eq!(
        start(&["--port", "70000"]).map(|_| ()).unwrap_err(),
        format!(
            "*** FATAL CONFIG FILE ERROR (Haypile {}) ***\n\
             Reading the command line\n\
             >>> '--port \"70000\"'\n\
             argument must be between 0 and 65535 inclusive\n\
             'port' takes an integer from 0 to 65535.",
            env!("CARGO_PKG_VERSION")
        )
    );
    refused(
        "durability sometimes",
        &["argument(s) must be one of the following: os, fsync", "'durability' takes one of: os, fsync."],
    );
    refused(
        "memtable-size 1kb",
        &["argument must be between 1048576 and", "'memtable-size' takes auto, or a number of bytes from 1mb up"],
    );
    refused("row-cache-size x", &["argument must be 'auto' or a memory value"]);
    refused("dir nowhere", &["No such file or directory", "'dir' takes an existing directory."]);
    refused(
        "include nowhere.conf",
        &["at line 1", "Fatal error, can't open config file '", "nowhere.conf': No such file or directory"],
    );
    refused("syslog-ident \"a", &["Unbalanced quotes in configuration line"]);
    refused(
        "rename-command GET",
        &["Bad directive or wrong number of arguments", "The form is: rename-command <command> <new name or \"\">"],
    );
    refused("search.timeout 5", &["looks like a directive of a module"]);
    refused("port\0 5", &["NUL"]);
}

#[test]
fn what_is_not_there_yet_stops_the_start_unless_it_is_off() {
    for line in ["cluster-enabled yes", "loadmodule /a.so b", "enable-module-command yes"] {
        refused(&format!("port 6380\n{line}"), &["at line 2", "is not supported yet"]);
    }
    refused("tls-key-file-pass \"secret", &["Unbalanced quotes", ">>> 'tls-key-file-pass (not shown)'"]);
    refused("requirepass \"secret", &["Unbalanced quotes", ">>> 'requirepass (not shown)'"]);
    let scratch = Scratch::new();
    let off = "cluster-enabled yes\ncluster-enabled no\nenable-module-command no\nnotify-keyspace-events \"\"";
    file(&scratch, off).expect("all of it is off, in the last line that says so");
}

#[test]
fn what_has_no_effect_is_noted_once() {
    let scratch = Scratch::new();
    let loaded =
        file(&scratch, "port 1\nio-threads 4\nappendonly yes\nhz 10\nio-threads 8\nslave-ignore-maxmemory no").unwrap();
    let notes: Vec<_> = loaded.notes.iter().map(|note| (note.name, note.changed, note.origin.to_string())).collect();
    let at = |line: u32| format!("{}, line {line}", scratch.0.join("haypile.conf").display());
    assert_eq!(
        notes,
        [
            ("appendonly", true, at(3)),
            ("replica-ignore-maxmemory", true, at(6)),
            ("hz", false, at(4)),
            ("io-threads", true, at(5))
        ]
    );
    assert_eq!(loaded.settings.get(&[b"io-threads"]), [("io-threads".into(), b"8".to_vec())], "it is remembered");
}

#[test]
fn our_own_directives_reach_the_config() {
    let scratch = Scratch::new();
    let text = format!(
        "dir {}\nworkers 2\nengine memory\ndurability fsync\nmemtable-size 64mb\nrow-cache-size 0\nblock-cache-size 0\nblind-set yes\n\
         logfile a.log\nunixsocket /tmp/b.sock\nrename-command GET lies\nrename-command SET \"\"",
        scratch.0.display()
    );
    let loaded = file(&scratch, &text).unwrap();
    let config = loaded.settings.config();
    assert_eq!((config.workers, config.engine, config.durability), (2, Engine::Memory, Durability::Fsync));
    assert_eq!(
        (config.memtable_size, config.row_cache_size, config.block_cache_size),
        (Size::Bytes(64 << 20), Size::Bytes(0), Size::Auto)
    );
    assert!(config.blind_set && !config.direct_reads);
    assert_eq!(config.dir, scratch.0);
    assert_eq!(config.logfile, Some(scratch.0.join("a.log")));
    assert_eq!(config.unixsocket, Some("/tmp/b.sock".into()));
    let renames: Vec<_> =
        config.renames.iter().map(|rename| (rename.command.as_slice(), rename.to.as_slice())).collect();
    assert_eq!(renames, [(&b"GET"[..], &b"lies"[..]), (b"SET", b"")]);
    assert_eq!(config.renames[1].origin.to_string(), format!("{}, line 12", scratch.0.join("haypile.conf").display()));
    assert!(loaded.notes.is_empty());
    assert_eq!(loaded.file, Some(scratch.0.join("haypile.conf")));
}

#[test]
fn a_pika_conf_is_refused_with_what_to_use_instead() {
    for line in
        ["port : 9221", "dump-expire: 0", "requirepass :", "slaveof : 10.0.0.1:9221", "user : app on", "thread-num : 1"]
    {
        refused(line, &["at line 1", "has the form of a pika.conf", "docs/pika.md"]);
    }
    for line in ["requirepass : secret", "userpass : secret", "userpass secret", "masterauth: secret"] {
        let scratch = Scratch::new();
        let error = file(&scratch, line).map(|_| ()).expect_err("this is refused");
        assert!(!error.contains("secret"), "{error}");
    }
    refused(
        "THREAD-pool-size 12",
        &["'THREAD-pool-size' is a setting of Pika: `workers` is the number of event loops"],
    );
    refused(
        "expire-logs-nums 10",
        &["'expire-logs-nums' is a setting of Pika", "`log-retention-size`", "See docs/pika.md."],
    );
    refused("slaveof 10.0.0.1:9221", &["wrong number of arguments"]);
}

#[test]
fn some_names_of_pika_mean_the_same() {
    let scratch = Scratch::new();
    let text = "thread-num 3\nwrite-buffer-size 64mb\nBINLOG-file-size 104857600\nmax-conn-rbuf-size 256mb\nconsensus-level 1\n\
                compact-cron 3/02-04/60\ncompact-interval 6/30";
    let settings = file(&scratch, text).expect("all of these are known").settings;
    let config = settings.config();
    assert_eq!((config.workers, config.memtable_size), (3, Size::Bytes(64 << 20)));
    assert_eq!((config.log_segment_bytes, config.client_query_buffer_bytes_max), (104_857_600, 256 << 20));
    assert_eq!(config.replication.replicas_to_ack, 1);
    assert_eq!(config.compactions.window, CompactWindow::parse("3/02-04/60"));
    assert_eq!(config.compactions.interval, CompactInterval::parse("6/30"));
    assert!(config.compactions.window.is_some() && config.compactions.interval.is_some());
    let get = |name: &str| settings.get(&[name.as_bytes()]);
    assert_eq!(get("consensus-level"), [("consensus-level".into(), b"1".to_vec())]);
    assert!(settings.set(&[(b"consensus-level", b"2")]).is_ok_and(|changed| changed[0].name == "replicas-to-ack"));
    assert_eq!(get("replicas-to-ack"), [("replicas-to-ack".into(), b"2".to_vec())]);
    for pattern in ["*", "max-conn*", "thread*", "[bc]*"] {
        let found = get(pattern);
        let of_pika = |name: &str| table::rows().any(|row| row.of_pika == Some(name));
        assert!(!found.iter().any(|(name, _)| of_pika(name)), "{pattern} finds no more than in Redis");
    }
    assert!(settings.set(&[(b"compact-cron", b"2-25/60")]).is_err_and(|why| why.contains("like 02-04/60")));
    assert!(settings.set(&[(b"compact-cron", b"")]).is_ok_and(|changed| changed.len() == 1));
    assert_eq!(settings.config().compactions.window, None);
}

#[test]
fn durability_and_appendfsync_are_two_names_for_one_thing() {
    for (text, durability, appendfsync) in [
        ("", Durability::Os, "everysec"),
        ("appendfsync always", Durability::Fsync, "always"),
        ("appendfsync no", Durability::Os, "no"),
        ("durability fsync", Durability::Fsync, "always"),
        ("appendfsync always\ndurability os", Durability::Os, "everysec"),
        ("appendfsync no\ndurability os", Durability::Os, "no"),
        ("durability fsync\nappendfsync everysec", Durability::Os, "everysec"),
    ] {
        let settings = file(&Scratch::new(), text).unwrap().settings;
        assert_eq!(settings.config().durability, durability, "{text}");
        assert_eq!(settings.get(&[b"appendfsync"])[0].1, appendfsync.as_bytes(), "{text}");
    }
}

#[test]
fn files_that_include_themselves_end() {
    let scratch = Scratch::new();
    let path = scratch.0.join("haypile.conf");
    let error = file(&scratch, &format!("include {}", path.display())).map(|_| ()).unwrap_err();
    assert!(error.contains("Too many files include each other"), "{error}");

    let scratch = Scratch::new();
    for name in ["conf.d/a.conf", "conf.d/b.conf"] {
        scratch.write(name, format!("timeout 1\ninclude {}/conf.d/*.conf\n", scratch.0.display()));
    }
    let error = file(&scratch, &format!("include {}/conf.d/*.conf", scratch.0.display())).map(|_| ()).unwrap_err();
    assert!(error.contains("Too many files include each other"), "{error}");
}

#[test]
fn an_error_in_an_included_file_names_that_file() {
    let scratch = Scratch::new();
    let inner = scratch.write("inner [1].conf", "timeout 1\ntimeout x\n");
    let error = file(&scratch, &format!("include \"{}/inner*.conf\"", scratch.0.display())).map(|_| ()).unwrap_err();
    assert!(error.contains(&format!("{}, at line 2", inner.display())), "{error}");
    let error = file(&scratch, &format!("dir {}\ninclude inner*.conf", scratch.0.display())).map(|_| ()).unwrap_err();
    assert!(error.contains(&format!("{}, at line 2", inner.display())), "{error}");
}

#[test]
fn a_file_may_be_missing_in_no_case() {
    let error = start(&["/nowhere/haypile.conf"]).map(|_| ()).unwrap_err();
    assert!(
        error.contains("Fatal error, can't open config file '/nowhere/haypile.conf': No such file or directory"),
        "{error}"
    );
}

#[test]
fn any_bytes_are_taken_or_refused() {
    let seed = 7;
    let mut random = Random(seed);
    let words: Vec<&str> = haypile_config::table::rows().flat_map(|row| [row.name, row.default]).collect();
    let noise = b" \t\n\r\"'\\#-x0aZ%*[]\0\xff\xc3";
    for _ in 0..3000 {
        let mut text = Vec::new();
        for _ in 0..random.below(12) {
            match random.below(3) {
                0 => text.push(noise[random.below(noise.len())]),
                1 => text.push(b"\n "[random.below(2)]),
                _ => text.extend(words[random.below(words.len())].bytes()),
            }
        }
        let command_line = CommandLine { stdin: true, ..CommandLine::default() };
        if let Ok(loaded) = load(&command_line, &mut text.as_slice()) {
            assert!(loaded.settings.get(&[b"*"]).len() > 200, "seed {seed}");
        }
    }
}
