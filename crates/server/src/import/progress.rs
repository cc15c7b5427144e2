//! The progress of an import: bytes of the file and keys.

use crate::progress::{ProgressLine, time_left};
use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::time::Duration;

/// A file that counts the bytes read.
pub struct Counted {
    from: Box<dyn Read>,
    count: Rc<Cell<u64>>,
}

impl Counted {
    pub fn new(from: Box<dyn Read>) -> Counted {
        Counted { from, count: Rc::default() }
    }

    /// Returns the count of bytes read, which goes on.
    pub fn count(&self) -> Rc<Cell<u64>> {
        self.count.clone()
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

pub struct Progress {
    read: Rc<Cell<u64>>,
    /// Bytes of the file, if that is known.
    total: Option<u64>,
    line: Option<ProgressLine>,
}

impl Progress {
    pub fn new(read: Rc<Cell<u64>>, total: Option<u64>) -> Progress {
        Progress { read, total, line: Some(ProgressLine::new()) }
    }

    /// Makes a progress that nobody sees.
    pub fn hidden() -> Progress {
        Progress { read: Rc::default(), total: None, line: None }
    }

    /// Returns the bytes of the file that were read.
    pub fn bytes(&self) -> u64 {
        self.read.get()
    }

    /// Shows the progress, if it is time to.
    pub fn tell(&mut self, keys: u64) {
        let (bytes, total) = (self.bytes(), self.total);
        if let Some(shown) = &mut self.line {
            shown.tell(|elapsed| line(bytes, total, keys, elapsed));
        }
    }

    /// Shows how many of the sorted rows have been written, if it is time to.
    pub fn tell_sorted(&mut self, done: u64, rows: u64) {
        if let Some(shown) = &mut self.line {
            shown.tell(|_| sorted_line(done, rows));
        }
    }

    /// Removes the line.
    pub fn end(&mut self) {
        self.line.iter_mut().for_each(ProgressLine::end);
    }
}

/// Returns `importing: 120.0 of 480.0 MB (25 %), 1000000 keys, 100000 keys/s, 30 s left`.
fn line(bytes: u64, total: Option<u64>, keys: u64, elapsed: Duration) -> String {
    let (mb, seconds) = (bytes as f64 / 1e6, elapsed.as_secs_f64().max(1e-9));
    let keys_per_s = keys as f64 / seconds;
    // A file may grow while it is read.
    let Some(total) = total.filter(|total| *total >= bytes && *total > 0) else {
        return format!("importing: {mb:.1} MB, {keys} keys, {keys_per_s:.0} keys/s");
    };
    let (share, total_mb) = (bytes as f64 / total as f64, total as f64 / 1e6);
    let left = time_left(share, elapsed);
    format!(
        "importing: {mb:.1} of {total_mb:.1} MB ({:.0} %), {keys} keys, {keys_per_s:.0} keys/s{left}",
        share * 100.0
    )
}

/// Returns `writing: 1000000 of 4000000 rows (25 %)`.
fn sorted_line(done: u64, rows: u64) -> String {
    format!("writing: {done} of {rows} rows ({:.0} %)", done as f64 / rows.max(1) as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let after = Duration::from_secs(10);
        let expected = "importing: 120.0 of 480.0 MB (25 %), 1000000 keys, 100000 keys/s, 30 s left";
        assert_eq!(line(120_000_000, Some(480_000_000), 1_000_000, after), expected);
        assert_eq!(line(1_000_000, None, 10, after), "importing: 1.0 MB, 10 keys, 1 keys/s");
        assert_eq!(line(0, Some(100), 0, after), "importing: 0.0 of 0.0 MB (0 %), 0 keys, 0 keys/s");
    }
}
