//! A file that is written from its beginning to its end past the page cache, where the file system can do that.
//!
//! A copy of all data would push everything else out of the page cache, and its write-back, which works at nobody's
//! priority, makes all others on the machine wait.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// The number that memory, offsets and lengths are multiples of: every block device is content with it.
const ALIGNMENT: usize = 4096;

/// A file that is being written.
pub struct Unbuffered {
    file: File,
    /// The memory of one piece, which lies from the first place on that is aligned.
    memory: Vec<u8>,
    start: usize,
    filled: usize,
    bytes: u64,
}

impl Unbuffered {
    /// Creates a file, or empties it.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> io::Result<Unbuffered> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let past_cache = options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path);
        let file = match past_cache {
            // The file system knows only the page cache.
            Err(error) if error.kind() == ErrorKind::InvalidInput => options.open(path)?,
            opened => opened?,
        };
        let memory = vec![0; PIECE_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Ok(Unbuffered { file, memory, start, filled: 0, bytes: 0 })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.filled));
            let at = self.start + self.filled;
            self.memory[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            self.bytes += now.len() as u64;
            bytes = later;
            if self.filled == PIECE_BYTES {
                self.write_piece(PIECE_BYTES)?;
            }
        }
        Ok(())
    }

    /// Writes what is left, and has all of it on the disk.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub fn finish(mut self) -> io::Result<()> {
        let padded = self.filled.next_multiple_of(ALIGNMENT);
        let end = self.start + self.filled;
        self.memory[end..self.start + padded].fill(0);
        self.write_piece(padded)?;
        self.file.set_len(self.bytes)?;
        self.file.sync_all()
    }

    fn write_piece(&mut self, bytes: usize) -> io::Result<()> {
        self.filled = 0;
        self.file.write_all(&self.memory[self.start..self.start + bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_harness::server::Workplace;

    #[test]
    fn a_file_has_all_bytes_and_no_more() {
        let place = Workplace::new("unbuffered", None).unwrap();
        for length in [0, 1, ALIGNMENT, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES + ALIGNMENT + 7] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            for step in [7 * ALIGNMENT + 1, 3 * PIECE_BYTES] {
                let path = place.file("file");
                let mut file = Unbuffered::create(&path).unwrap();
                bytes.chunks(step).for_each(|some| file.write(some).unwrap());
                file.finish().unwrap();
                assert!(std::fs::read(&path).unwrap() == bytes, "{length} bytes, {step} at a time");
            }
        }
    }
}
