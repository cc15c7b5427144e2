//! What the commands on data answer, case by case (`cases/`), over a base in memory: with the rows in the memtable, and with
//! every row flushed and out of reach of an event loop before the next command.

mod runner;

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
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let file = concat!("cases/", stringify!($name), ".txt");
            check(file, include_str!(concat!("cases/", stringify!($name), ".txt")));
        }
    )*};
}

cases! { string hash hash_expire list counter lcs substring keys expire scan database object set zset }
