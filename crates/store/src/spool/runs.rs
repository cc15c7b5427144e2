//! Sorted runs of rows in one file that has no name, so that nothing is left of it however the process ends.

use crate::base::BaseError;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Most bytes that are read of a run at once; `READ_BYTES_MIN` is the least.
const READ_BYTES_MAX: usize = 1 << 20;
const READ_BYTES_MIN: usize = 16 << 10;

/// The lengths of a row's key and of its value, u32 each.
const LENGTHS_BYTES: usize = 8;

pub(super) struct Runs {
    file: File,
    /// The end of each run; the next one begins there.
    ends: Vec<u64>,
    /// The key of the last row of the last run.
    last: Vec<u8>,
    buffer: Vec<u8>,
}

/// A run that is being written.
pub(super) struct Run<'r> {
    runs: &'r mut Runs,
    end: u64,
}

impl Runs {
    pub fn create(directory: &Path) -> Result<Runs, BaseError> {
        let file = create(directory).map_err(|error| failed("making a file for sorting", &error))?;
        Ok(Runs { file, ends: Vec::new(), last: Vec::new(), buffer: Vec::with_capacity(WRITE_BYTES) })
    }

    /// Begins a run, or goes on with the last one where `first`, the key of the next row, comes behind all of it: rows
    /// that arrive in order are one run, however many they are.
    pub fn begin(&mut self, first: &[u8]) -> Run<'_> {
        let end = self.ends.last().copied().unwrap_or(0);
        if !self.ends.is_empty() && *self.last <= *first {
            self.ends.pop();
        }
        Run { runs: self, end }
    }

    /// Returns all rows of all runs, ascending; rows of equal keys in the order of their runs. The buffers take about
    /// `bytes`.
    pub fn merge(self, bytes: usize) -> Result<Merged, BaseError> {
        let file = Arc::new(self.file);
        let share = (bytes / self.ends.len().max(1)).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let mut readers: Vec<Reader> =
            begins.zip(&self.ends).map(|(begin, end)| Reader::new(file.clone(), begin, *end, share)).collect();
        for reader in &mut readers {
            reader.advance()?;
        }
        let mut merged = Merged { order: (0..readers.len()).collect(), readers, begun: false };
        for at in (0..merged.order.len() / 2).rev() {
            merged.sift_down(at);
        }
        Ok(merged)
    }
}

impl Run<'_> {
    /// Appends a row: lengths, key and value.
    pub fn push(&mut self, row: &[u8]) -> Result<(), BaseError> {
        if self.runs.buffer.len() + row.len() > WRITE_BYTES {
            self.write()?;
        }
        self.runs.buffer.extend_from_slice(row);
        Ok(())
    }

    fn write(&mut self) -> Result<(), BaseError> {
        let Runs { file, buffer, .. } = &mut *self.runs;
        file.write_all_at(buffer, self.end).map_err(|error| failed("writing what is being sorted", &error))?;
        self.end += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }

    /// Ends the run, of which `last` is the key of the last row.
    pub fn end(mut self, last: &[u8]) -> Result<(), BaseError> {
        self.write()?;
        self.runs.ends.push(self.end);
        self.runs.last.clear();
        self.runs.last.extend_from_slice(last);
        Ok(())
    }
}

/// One run as it is read.
struct Reader {
    file: Arc<File>,
    /// The part of the run that was not read yet.
    from: u64,
    until: u64,
    buffer: Vec<u8>,
    /// Bytes that are read at once, but for longer rows.
    share: usize,
    /// The place of the row in hand in the buffer, and where its value begins and ends; nothing at the run's end.
    row: usize,
    value: usize,
    end: usize,
}

impl Reader {
    fn new(file: Arc<File>, from: u64, until: u64, share: usize) -> Reader {
        Reader { file, from, until, buffer: Vec::new(), share, row: 0, value: 0, end: 0 }
    }

    /// Returns the key of the row in hand; `None` behind the last one.
    fn key(&self) -> Option<&[u8]> {
        (self.end > self.row).then(|| &self.buffer[self.row + LENGTHS_BYTES..self.value])
    }

    fn value(&self) -> &[u8] {
        &self.buffer[self.value..self.end]
    }

    /// Goes to the next row.
    fn advance(&mut self) -> Result<(), BaseError> {
        self.row = self.end;
        if self.buffer.len() < self.row + LENGTHS_BYTES && !self.read(LENGTHS_BYTES)? {
            self.end = self.row;
            return Ok(());
        }
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("it is eight bytes"));
        let lengths = number(&self.buffer[self.row..self.row + LENGTHS_BYTES]);
        let (key, value) = ((lengths >> 32) as usize, lengths as u32 as usize);
        let whole = LENGTHS_BYTES + key + value;
        if self.buffer.len() < self.row + whole {
            self.read(whole)?;
        }
        self.value = self.row + LENGTHS_BYTES + key;
        self.end = self.value + value;
        Ok(())
    }

    /// Reads until at least `needed` bytes from the row in hand on are in the buffer; returns false at the end of the
    /// run.
    fn read(&mut self, needed: usize) -> Result<bool, BaseError> {
        self.buffer.drain(..self.row);
        self.row = 0;
        let have = self.buffer.len();
        let left = (self.until - self.from) as usize;
        let want = self.share.max(needed - have).min(left);
        self.buffer.resize(have + want, 0);
        let read = self.file.read_exact_at(&mut self.buffer[have..], self.from);
        read.map_err(|error| failed("reading what is being sorted", &error))?;
        self.from += want as u64;
        if self.buffer.len() < needed && !self.buffer.is_empty() {
            return Err(BaseError::Corrupt("a file for sorting ends within a row".into()));
        }
        Ok(!self.buffer.is_empty())
    }
}

/// The runs' rows, ascending.
pub(crate) struct Merged {
    readers: Vec<Reader>,
    /// A binary heap of the readers: the one with the lowest row in hand comes first.
    order: Vec<usize>,
    /// Whether the row in hand of the first reader was handed out.
    begun: bool,
}

impl Merged {
    /// Returns the number of runs.
    #[cfg(test)]
    pub fn runs(&self) -> usize {
        self.readers.len()
    }

    /// Returns the bytes of memory that the buffers take.
    pub fn bytes(&self) -> usize {
        self.readers.iter().map(|reader| reader.buffer.capacity()).sum()
    }

    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>, BaseError> {
        if std::mem::replace(&mut self.begun, true) {
            self.readers[self.order[0]].advance()?;
            self.sift_down(0);
        }
        let first = &self.readers[self.order[0]];
        Ok(first.key().map(|key| (key, first.value())))
    }

    /// Returns whether the row of one reader comes before that of another: readers at their end come last, and of equal
    /// rows the earlier run's first.
    fn is_before(&self, a: usize, b: usize) -> bool {
        match (self.readers[a].key(), self.readers[b].key()) {
            (Some(key), Some(other)) => (key, a) < (other, b),
            (key, None) => key.is_some(),
            (None, Some(_)) => false,
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut first = 2 * at + 1;
            if first >= self.order.len() {
                return;
            }
            if first + 1 < self.order.len() && self.is_before(self.order[first + 1], self.order[first]) {
                first += 1;
            }
            if !self.is_before(self.order[first], self.order[at]) {
                return;
            }
            self.order.swap(at, first);
            at = first;
        }
    }
}

/// Creates a file without a name that no other user may open.
fn create(directory: &Path) -> io::Result<File> {
    let file = tempfile::tempfile_in(directory)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn failed(what: &str, error: &io::Error) -> BaseError {
    let text = format!("{what}: {error}");
    if error.kind() == io::ErrorKind::StorageFull { BaseError::Full(text) } else { BaseError::Failed(text) }
}
