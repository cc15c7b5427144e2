//! Writes docs/compatibility.md from the command table and the list of Redis's commands.

use haypile_commands::compatibility::{page, redis_commands};
use std::path::PathBuf;

/// Where this package is: what cargo says now, because a build may be shared by several checkouts.
fn package() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this").into()
}

fn main() -> std::io::Result<()> {
    let here = package();
    let list = std::fs::read_to_string(here.join("tests/data/redis-commands.txt"))?;
    let commands = redis_commands(&list).map_err(std::io::Error::other)?;
    let docs = here.join("../../docs");
    std::fs::create_dir_all(&docs)?;
    std::fs::write(docs.join("compatibility.md"), page(&commands))
}
