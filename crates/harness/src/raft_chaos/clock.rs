//! The wall clock of a process under test, moved by a small library that is loaded before all others. That works for
//! programs that ask the C library for the time; those in Go ask the kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("offset_clock.c");

/// A library that moves the clock of the processes that load it, each by its own file.
#[derive(Clone, Debug)]
pub struct OffsetClock(PathBuf);

impl OffsetClock {
    /// Compiles the library in a directory.
    pub fn build(dir: &Path) -> Result<OffsetClock> {
        let (source, library) = (dir.join("offset_clock.c"), dir.join("offset_clock.so"));
        fs::write(&source, SOURCE).context("writing the source of a library")?;
        let mut compiler = Command::new("cc");
        let output = compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output();
        let output = output.context("cc must be installed")?;
        ensure!(output.status.success(), "compiling a library: {}", String::from_utf8_lossy(&output.stderr));
        Ok(OffsetClock(library))
    }

    /// Returns the variables of a process whose clock a file moves.
    pub fn variables(&self, file: &Path) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![("LD_PRELOAD".into(), text(&self.0)), ("HAYPILE_CLOCK_OFFSET".into(), text(file))]
    }
}

/// Writes by how many seconds a clock is to be moved. The file stays the same, as its readers have mapped it.
pub fn set(file: &Path, seconds: i64) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).create(true).truncate(false).open(file).context("setting a clock")?;
    file.write_all_at(&seconds.to_ne_bytes(), 0).context("setting a clock")
}
