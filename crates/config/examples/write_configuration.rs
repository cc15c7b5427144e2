//! Writes docs/configuration.md from the table.

use std::path::PathBuf;

/// Returns where this package is: by cargo's variable of this run, because a build may be shared by several checkouts.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

fn main() -> std::io::Result<()> {
    let path = package().join("../../docs/configuration.md");
    std::fs::create_dir_all(path.parent().expect("the path has a directory"))?;
    std::fs::write(&path, haypile_config::docs::page())?;
    println!("{} is written", path.display());
    Ok(())
}
