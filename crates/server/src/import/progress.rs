//! How far an import is, on standard error: one line that is drawn again and again on a terminal, elsewhere a line now and then.

use std::cell::Cell;
use std::io::{self, IsTerminal, Read, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A file that counts what was read of it.
pub struct Counted {
    from: Box<dyn Read>,
    count: Rc<Cell<u64>>,
}

impl Counted {
    pub fn new(from: Box<dyn Read>) -> Counted {
        Counted { from, count: Rc::default() }
    }

    /// Bytes that were read, as it goes on.
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
    begun: Instant,
    is_terminal: bool,
    next: Instant,
}

impl Progress {
    pub fn new(read: Rc<Cell<u64>>, total: Option<u64>) -> Progress {
        let (is_terminal, begun) = (io::stderr().is_terminal(), Instant::now());
        let first = if is_terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL };
        Progress { read, total, begun, is_terminal, next: begun + first }
    }

    /// Bytes of the file that were read.
    pub fn bytes(&self) -> u64 {
        self.read.get()
    }

    /// Tells how far it is, if it is time to.
    pub fn tell(&mut self, keys: u64) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        let line = line(self.bytes(), self.total, keys, now.duration_since(self.begun));
        let mut out = io::stderr().lock();
        // Nobody has to read it.
        let _ = match self.is_terminal {
            true => write!(out, "\r{line}\x1b[K"),
            false => writeln!(out, "{line}"),
        };
        let _ = out.flush();
        self.next = now + if self.is_terminal { TERMINAL_INTERVAL } else { LINE_INTERVAL };
    }

    /// Takes the line away.
    pub fn end(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// `importing: 120.0 of 480.0 MB (25 %), 1000000 keys, 100000 keys/s, 30 s left`
fn line(bytes: u64, total: Option<u64>, keys: u64, elapsed: Duration) -> String {
    let (mb, seconds) = (bytes as f64 / 1e6, elapsed.as_secs_f64().max(1e-9));
    let keys_per_s = keys as f64 / seconds;
    // A file may grow while it is read.
    let Some(total) = total.filter(|total| *total >= bytes && *total > 0) else {
        return format!("importing: {mb:.1} MB, {keys} keys, {keys_per_s:.0} keys/s");
    };
    let (share, total_mb) = (bytes as f64 / total as f64, total as f64 / 1e6);
    let left = match share > 0.0 {
        true => format!(", {:.0} s left", seconds / share - seconds),
        false => String::new(),
    };
    format!(
        "importing: {mb:.1} of {total_mb:.1} MB ({:.0} %), {keys} keys, {keys_per_s:.0} keys/s{left}",
        share * 100.0
    )
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
