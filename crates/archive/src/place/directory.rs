//! A directory as a place: objects are files, synced before they have their names.

use super::{Listed, NextPart, Place, PlaceError, TakePart};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The beginning of the name of a file that is being written.
const PART: &str = ".part-";

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

pub struct Directory {
    path: PathBuf,
}

impl Directory {
    pub fn new(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into() }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file that has no name of an object yet; returns where it is.
    fn write_aside(&self, path: &Path, parts: &mut NextPart<'_>) -> Result<PathBuf, PlaceError> {
        let dir = path.parent().expect("an object is in a directory");
        make_dirs(dir).map_err(failed(dir))?;
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).expect("the kernel's random source always gives bytes");
        let aside = dir.join(format!("{PART}{:032x}", u128::from_le_bytes(random)));
        let written = (|| {
            let mut file = File::create_new(&aside).map_err(failed(&aside))?;
            while let Some(part) = parts()? {
                file.write_all(&part).map_err(failed(&aside))?;
            }
            file.sync_all().map_err(failed(&aside))
        })();
        match written {
            Ok(()) => Ok(aside),
            Err(error) => {
                // A file that cannot be removed now is no object either.
                let _ = fs::remove_file(&aside);
                Err(error)
            }
        }
    }
}

impl Place for Directory {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn may_be_exchanged(&self) -> bool {
        true
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>, PlaceError> {
        let mut found = Vec::new();
        gather(&self.path_of(prefix), prefix, after, &mut found)?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn put(&self, name: &str, parts: &mut NextPart<'_>) -> Result<(), PlaceError> {
        let path = self.path_of(name);
        let aside = self.write_aside(&path, parts)?;
        fs::rename(&aside, &path).and_then(|()| sync_dir(parent(&path))).map_err(failed(&path))
    }

    fn create(&self, name: &str, bytes: Vec<u8>) -> Result<(), PlaceError> {
        let path = self.path_of(name);
        let mut bytes = Some(bytes);
        let aside = self.write_aside(&path, &mut || Ok(bytes.take()))?;
        // A link fails where the name is taken; a rename would replace it.
        let linked = fs::hard_link(&aside, &path).and_then(|()| sync_dir(parent(&path)));
        let _ = fs::remove_file(&aside);
        match linked {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(PlaceError::Exists(name.to_owned())),
            linked => linked.map_err(failed(&path)),
        }
    }

    fn get(&self, name: &str, take: &mut TakePart<'_>) -> Result<(), PlaceError> {
        let path = self.path_of(name);
        let mut file = open(&path, name)?;
        let mut buf = vec![0; READ_BYTES];
        loop {
            match file.read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(read) => take(&buf[..read])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&path)(error)),
            }
        }
    }

    fn get_start(&self, name: &str, bytes: usize) -> Result<Vec<u8>, PlaceError> {
        let path = self.path_of(name);
        let mut start = Vec::new();
        open(&path, name)?.take(bytes as u64).read_to_end(&mut start).map_err(failed(&path))?;
        Ok(start)
    }

    fn remove(&self, name: &str) -> Result<(), PlaceError> {
        let path = self.path_of(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path)(error)),
            _ => Ok(()),
        }
    }

    fn remove_broken_off(&self, age: Duration) -> Result<(), PlaceError> {
        let mut dirs = vec![self.path.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).map_err(failed(&dir))? {
                let entry = entry.map_err(failed(&dir))?;
                let about = match entry.metadata() {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    about => about.map_err(failed(&entry.path()))?,
                };
                let is_part = entry.file_name().to_str().is_some_and(|name| name.starts_with(PART));
                if about.is_dir() {
                    dirs.push(entry.path());
                } else if is_part && about.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|at| at > age) {
                    fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
                }
            }
        }
        Ok(())
    }
}

fn open(path: &Path, name: &str) -> Result<File, PlaceError> {
    File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => PlaceError::Missing(name.to_owned()),
        _ => failed(path)(error),
    })
}

/// Collects the files below a directory; a missing one has none.
fn gather(dir: &Path, prefix: &str, after: &str, found: &mut Vec<Listed>) -> Result<(), PlaceError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed(dir))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed(dir))?;
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        let name = format!("{prefix}{file_name}");
        let about = match entry.metadata() {
            // The file was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            about => about.map_err(failed(&entry.path()))?,
        };
        if about.is_dir() {
            gather(&entry.path(), &format!("{name}/"), after, found)?;
        } else if name.as_str() > after {
            let since = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let modified_ms = since.map_or(0, |since| since.as_millis() as u64);
            found.push(Listed { name, bytes: about.len(), modified_ms });
        }
    }
    Ok(())
}

/// Makes a directory and those above it, each for good.
fn make_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        make_dirs(above)?;
    }
    match fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_dir(parent(dir))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> PlaceError {
    let path = path.to_owned();
    move |error| PlaceError::Failed(format!("{}: {error}", path.display()))
}
