//! Writes docs/info.md from the table of INFO's fields.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let here: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into();
    std::fs::write(here.join("../../docs/info.md"), haypile_engine::info_page())
}
