//! Writes docs/configuration.md from the table.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::create_dir_all(path.parent().expect("the path has a directory"))?;
    std::fs::write(&path, haypile_config::docs::page())?;
    println!("{} is written", path.display());
    Ok(())
}
