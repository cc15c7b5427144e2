//! The charts of docs/ are what `haypile-harness bench charts` draws from the tables of docs/benchmarks.md.

use std::fs;
use std::path::PathBuf;

use haypile_harness::bench::charts;

/// Returns the folder of this package as cargo says it now, because several checkouts may share a build.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

#[test]
fn the_charts_show_what_the_tables_say() {
    let docs = package().join("../../docs");
    let page = fs::read_to_string(docs.join("benchmarks.md")).expect("the page is there");
    let charts = charts::of_page(&page).expect("the tables are complete");
    assert_eq!(charts.len(), 4);
    for (file, svg) in charts {
        let kept = fs::read_to_string(docs.join(file)).expect("the chart is there");
        assert!(kept == svg, "{file} is out of date: haypile-harness bench charts draws it anew");
    }
}
