//! INFO's fields and the pages made of them.
#![cfg(not(feature = "shuttle"))]

mod server;

use server::{Server, check_on};
use std::collections::HashSet;

#[test]
fn the_page_of_info_is_current() {
    let here: std::path::PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into();
    let page = std::fs::read_to_string(here.join("../../docs/info.md")).unwrap_or_default();
    assert!(page == haypile_engine::info_page(), "run: make docs");
}

#[test]
fn every_field_has_a_name_of_its_own_and_is_on_the_page() {
    let mut server = Server::new();
    let info = server.ask(0, "INFO everything");
    let page = haypile_engine::info_page();
    let mut seen = HashSet::new();
    for field in info.split(' ').filter_map(|word| word.split_once(':')).map(|(name, _)| name) {
        assert!(seen.insert(field.to_owned()), "{field} is there twice");
    }
    assert!(seen.len() > 150, "{seen:?}");
    for figure in ["memtable_active_bytes", "log_bytes", "row_cache_hits", "total_reads_processed"] {
        assert!(seen.contains(figure) && page.contains(&format!("| `{figure}` |")), "{figure}");
    }
}

#[test]
fn keys_are_counted_by_type() {
    let mut server = Server::new();
    check_on(
        &mut server,
        "in two databases",
        "0: MSET a 1 b 2 c 3 => +OK
         0: DEL b => :1
         0: SELECT 3 => +OK
         0: SET x 1 => +OK
         0: SELECT 0 => +OK",
    );
    let types = |count| format!("strings={count},lists=0,sets=0,sorted_sets=0,hashes=0,streams=0");
    assert_eq!([server.info(0, "types_db0"), server.info(0, "types_db3")], [types(2), types(1)]);
}
