//! Files that stay as they are while a log over them is open: for a reader of a data directory that may not change a
//! byte of it.
//!
//! Created files lie in memory, removed ones are only out of sight. A file of the directory takes the bytes that it
//! has, which is what an open does with the end of a log, and no others.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::files::{DiskFiles, File, Files, read_exact_at};

/// See the file's head. What is made takes as much memory as is written to it.
#[derive(Debug, Default)]
pub struct UnchangedFiles {
    seen: Mutex<Seen>,
}

/// How the directory looks different from what it is.
#[derive(Debug, Default)]
struct Seen {
    made: HashMap<PathBuf, Arc<MadeFile>>,
    removed: HashSet<PathBuf>,
}

impl Files for UnchangedFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = Arc::<MadeFile>::default();
        self.seen.lock().made.insert(path.to_owned(), file.clone());
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let seen = self.seen.lock();
        if let Some(file) = seen.made.get(path) {
            return Ok(file.clone());
        }
        if seen.removed.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Arc::new(KeptFile(std::fs::File::open(path)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = DiskFiles.list(dir)?;
        let seen = self.seen.lock();
        names.retain(|name| !seen.removed.contains(&dir.join(name)) && !seen.made.contains_key(&dir.join(name)));
        let made = seen.made.keys().filter(|path| path.parent() == Some(dir)).filter_map(|path| path.file_name());
        names.extend(made.map(|name| name.to_string_lossy().into_owned()));
        Ok(names)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut seen = self.seen.lock();
        seen.made.remove(path);
        seen.removed.insert(path.to_owned());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut seen = self.seen.lock();
        match seen.made.remove(from) {
            Some(file) => {
                seen.made.insert(to.to_owned(), file);
                Ok(())
            }
            None => refused(),
        }
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "this file stays as it is"))
}

/// A file of the directory.
#[derive(Debug)]
struct KeptFile(std::fs::File);

impl File for KeptFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut have = vec![0; bytes.len()];
        let read = read_exact_at(self, &mut have, offset)?;
        if have[..read] == *bytes { Ok(bytes.len()) } else { refused() }
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file in memory. What was allocated and not written takes none.
#[derive(Debug, Default)]
struct MadeFile(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    written: Vec<u8>,
    len: u64,
}

impl File for MadeFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let made = self.0.lock();
        let count = made.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let from = offset.min(made.written.len() as u64) as usize;
        let written = &made.written[from..made.written.len().min(from + count)];
        buf[..written.len()].copy_from_slice(written);
        buf[written.len()..count].fill(0);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut made = self.0.lock();
        let offset = usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let end = offset + bytes.len();
        if made.written.len() < end {
            made.written.resize(end, 0);
        }
        made.written[offset..end].copy_from_slice(bytes);
        made.len = made.len.max(end as u64);
        Ok(bytes.len())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut made = self.0.lock();
        made.len = made.len.max(bytes);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let mut made = self.0.lock();
        made.len = bytes;
        let kept = made.written.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        made.written.truncate(kept);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_only_looks_different() {
        let dir = std::env::temp_dir().join(format!("haypile-unchanged-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("kept"), b"0123456789").unwrap();
        let files = UnchangedFiles::default();
        let names = || {
            let mut names = files.list(&dir).unwrap();
            names.sort();
            names
        };

        let kept = files.open(&dir.join("kept")).unwrap();
        assert_eq!(kept.write_at(b"345", 3).unwrap(), 3, "what it has already");
        assert!(kept.write_at(b"x", 3).is_err() && kept.write_at(b"9a", 9).is_err());
        assert!(kept.truncate(1).is_err() && kept.allocate(100).is_err());
        kept.sync().unwrap();

        let made = files.create(&dir.join("made.new")).unwrap();
        made.allocate(100).unwrap();
        made.write_at(b"hay", 5).unwrap();
        files.rename(&dir.join("made.new"), &dir.join("made")).unwrap();
        assert!(files.rename(&dir.join("kept"), &dir.join("other")).is_err());
        assert_eq!(names(), ["kept", "made"]);
        let again = files.open(&dir.join("made")).unwrap();
        let mut bytes = [1; 10];
        assert_eq!((again.len().unwrap(), again.read_at(&mut bytes, 3).unwrap()), (100, 10));
        assert_eq!(&bytes, b"\0\0hay\0\0\0\0\0");
        assert_eq!(again.read_at(&mut bytes, 95).unwrap(), 5, "it ends there");
        made.truncate(6).unwrap();
        assert_eq!(again.read_at(&mut bytes, 5).unwrap(), 1);

        files.remove(&dir.join("kept")).unwrap();
        assert_eq!(names(), ["made"]);
        assert_eq!(files.open(&dir.join("kept")).unwrap_err().kind(), io::ErrorKind::NotFound);
        let real = |name: &str| std::fs::read(dir.join(name)).ok();
        assert_eq!((real("kept").as_deref(), real("made")), (Some(&b"0123456789"[..]), None));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
