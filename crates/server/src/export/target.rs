//! The destination of an export: a file beside its place until it is whole, or standard output.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A file in the making. A file that is not completed is removed.
pub struct Target {
    to: File,
    bytes: u64,
    /// The name aside; `None` is standard output.
    aside: Option<Aside>,
    failed: Failure,
}

/// The reason why a write failed, kept for callers that only learn that something did.
#[derive(Clone, Default)]
pub struct Failure(Rc<RefCell<Option<String>>>);

impl Failure {
    pub fn take(&self) -> Option<String> {
        self.0.take()
    }
}

/// The name beside the file's own.
struct Aside {
    aside: PathBuf,
    path: PathBuf,
    /// Whether a file of that name is replaced.
    replaces: bool,
    is_complete: bool,
}

impl Target {
    /// Creates the file; `None` is standard output.
    ///
    /// # Errors
    /// A text for people: the file exists already, or cannot be made.
    pub fn create(path: Option<&Path>, replaces: bool) -> Result<Target, String> {
        let Some(path) = path else {
            // The standard library's would look for the end of a line.
            let to = io::stdout().as_fd().try_clone_to_owned().map_err(|error| format!("Standard output: {error}."))?;
            return Ok(Target { to: to.into(), bytes: 0, aside: None, failed: Failure::default() });
        };
        let fails = |error: io::Error| format!("{} cannot be made: {error}.", path.display());
        match fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() => return Err(format!("{} is a directory.", path.display())),
            Ok(_) if !replaces => return Err(exists(path)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(fails(error)),
        }
        let mut name = path.file_name().ok_or_else(|| format!("{} is no name of a file.", path.display()))?.to_owned();
        name.push(format!(".tmp-{}", std::process::id()));
        let aside = path.with_file_name(name);
        // A file of this name was left by an earlier process with this number.
        let to = File::options().read(true).write(true).create(true).truncate(true).open(&aside).map_err(fails)?;
        let aside = Some(Aside { aside, path: path.to_owned(), replaces, is_complete: false });
        Ok(Target { to, bytes: 0, aside, failed: Failure::default() })
    }

    pub fn failure(&self) -> Failure {
        self.failed.clone()
    }

    /// Returns the file itself, if written bytes can be changed.
    pub fn file(&mut self) -> Option<&mut File> {
        self.aside.is_some().then_some(&mut self.to)
    }

    /// Completes the file, which is on the disk and has its name when this returns. Returns how many bytes it has.
    pub fn complete(self) -> io::Result<u64> {
        if let Some(aside) = self.aside {
            self.to.sync_all()?;
            aside.name()?;
        }
        Ok(self.bytes)
    }
}

impl Aside {
    fn name(mut self) -> io::Result<()> {
        if self.replaces {
            fs::rename(&self.aside, &self.path)?;
        } else {
            // A link never takes the place of a file that was made meanwhile.
            match fs::hard_link(&self.aside, &self.path) {
                Ok(()) => fs::remove_file(&self.aside)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(io::Error::other(exists(&self.path)));
                }
                // Some file systems have no links.
                Err(_) => fs::rename(&self.aside, &self.path)?,
            }
        }
        self.is_complete = true;
        let dir = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(dir)?.sync_all()
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_complete {
            // A file that stays has a name that says that it is incomplete.
            let _ = fs::remove_file(&self.aside);
        }
    }
}

fn exists(path: &Path) -> String {
    format!("{} exists. It is replaced with --force.", path.display())
}

impl Write for Target {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.to.write(piece) {
            Ok(written) => {
                self.bytes += written as u64;
                Ok(written)
            }
            Err(error) => {
                if error.kind() != ErrorKind::Interrupted {
                    *self.failed.0.borrow_mut() = Some(error.to_string());
                }
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
