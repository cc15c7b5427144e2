//! The limit that the disk sets: three files that are written at the same time, one after the other piece synced.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::thread::scope;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::random::Random;
use crate::server::Workplace;

const FILES: usize = 3;
/// Bytes of one write, which is synced: what 200 connections with 4 KB each make at once.
const PIECE_BYTES: usize = 800 << 10;

/// Writes three files for so long, and returns how many bytes a second each of them takes.
pub fn bytes_a_second_of_each(dir: &Path, window: Duration) -> Result<f64> {
    let place = Workplace::new("bench-disk", Some(dir))?;
    let mut piece = vec![0; PIECE_BYTES];
    Random::new(3).fill(&mut piece);
    let begin = Instant::now();
    let each = scope(|threads| {
        let write = |number: usize| {
            let (path, piece) = (place.data().join(number.to_string()), &piece);
            threads.spawn(move || write_for(&path, piece, begin, window))
        };
        let all: Vec<_> = (0..FILES).map(write).collect();
        all.into_iter().map(|thread| thread.join().expect("it does not panic")).collect::<Result<Vec<_>>>()
    })?;
    Ok(each.iter().sum::<u64>() as f64 / FILES as f64 / begin.elapsed().as_secs_f64())
}

/// Appends to a file, with a sync after each piece; returns how many bytes it took.
fn write_for(path: &Path, piece: &[u8], begin: Instant, window: Duration) -> Result<u64> {
    let mut file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    let mut bytes = 0;
    while begin.elapsed() < window {
        file.write_all(piece).and_then(|()| file.sync_data()).context("writing to the disk")?;
        bytes += piece.len() as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_takes_something() {
        let bytes = bytes_a_second_of_each(&std::env::temp_dir(), Duration::from_millis(50)).expect("it is writable");
        assert!(bytes > 0.0);
    }
}
