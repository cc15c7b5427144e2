//! The answers of the commands on data, case by case (`cases/`), over a base in memory: with the rows in the memtable,
//! and with every row flushed and out of reach of an event loop before the next command.

mod runner;

use std::path::PathBuf;

use haypile_store::testing::memory_store;

/// Runs a file of cases both ways.
fn check(file: &str, text: &str) {
    let warm = memory_store();
    runner::run(file, text, &warm, &|| {});
    let cold = memory_store();
    cold.base.set_cold(true);
    runner::run(file, text, &cold, &|| {
        cold.flush_now().expect("flushes to memory");
        // Forgets what was read.
        cold.base.set_cold(true);
    });
}

macro_rules! cases {
    ($($name:ident)*) => {
        /// The files of `cases/` that are run.
        const FILES: &[&str] = &[$(stringify!($name)),*];

        $(
        #[test]
        fn $name() {
            let file = concat!("cases/", stringify!($name), ".txt");
            check(file, include_str!(concat!("cases/", stringify!($name), ".txt")));
        }
    )*};
}

cases! { geo stream string bitmap hyperloglog hash hash_expire list counter lcs substring keys expire scan database object migrate set zset sort stream_group newer_commands stream_newer stream_idempotent }

#[test]
fn no_file_of_cases_is_left_out() {
    // Cargo says where the package is now: several checkouts may share a build.
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this"));
    let folder = package.join("tests/cases");
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let name = file.expect("can be read").file_name().into_string().expect("a plain name");
        let is_run = name.strip_suffix(".txt").is_some_and(|name| FILES.contains(&name));
        assert!(is_run, "{name} is not in the list of cases");
    }
}
