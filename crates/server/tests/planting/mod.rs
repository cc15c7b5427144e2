//! Data directories with defects: a sound one is copied, rows are written into its base or bytes of its log are
//! changed, behind the server's back.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod log;
pub mod sound;

use haypile_store::Key;
use haypile_store::base::{Base, BaseError, Rows};
use haypile_store::check::Stored;
use haypile_store::row::{self, ObjectId, Slot, Space, SystemScope};
use haypile_store_rocks::{Image, Options, Rocks};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A row to be written, or deleted.
pub type Write = (Vec<u8>, Option<Vec<u8>>);

/// The output of `haypile check`.
#[derive(Debug)]
pub struct Checked {
    pub code: Option<i32>,
    pub lines: Vec<String>,
    pub errors: String,
}

pub fn check(dir: &Path) -> Checked {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haypile"));
    let output = command.arg("check").arg(dir).stdin(Stdio::null()).output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let lines = text(&output.stdout).lines().map(str::to_owned).collect();
    Checked { code: output.status.code(), lines, errors: text(&output.stderr) }
}

impl Checked {
    /// Returns the findings, without the line that says how much was read.
    pub fn findings(&self) -> Vec<&str> {
        self.lines.iter().map(String::as_str).filter(|line| !line.contains(" records of the log (")).collect()
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("it is readable").map(|entry| entry.expect("it is readable")) {
        let target = to.join(entry.file_name());
        match entry.file_type().expect("it is readable").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("there is room")),
        }
    }
}

/// All files below a directory with their content.
pub fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("it is readable").map(|entry| entry.expect("it is readable")) {
        match entry.file_type().expect("it is readable").is_dir() {
            true => files.extend(content(&entry.path())),
            false => drop(files.insert(entry.path(), fs::read(entry.path()).expect("it is readable"))),
        }
    }
    files
}

/// The base of a directory, looked at.
pub struct Look {
    base: Image,
    seed: u64,
}

impl Look {
    pub fn at(dir: &Path) -> Look {
        let base = Image::open(&dir.join("base")).expect("the base opens");
        let mut look = Look { base, seed: 0 };
        let seed = look.value(&row::system_row(SystemScope::Replicated, b"hash-seed"));
        look.seed = u64::from_be_bytes(seed.try_into().expect("eight bytes"));
        look
    }

    /// A key of database 0.
    pub fn key<'k>(&self, name: &'k str) -> Key<'k> {
        let name = name.as_bytes();
        Key { space: Space(0), slot: row::slot_of(name), hash: row::hash_of(name, self.seed), name }
    }

    pub fn meta_row(&self, name: &str) -> Vec<u8> {
        row::meta_row(&self.key(name)).to_vec()
    }

    pub fn value(&self, row: &[u8]) -> Vec<u8> {
        self.base.row(row).expect("it is readable").expect("the row is there").to_vec()
    }

    pub fn meta(&self, name: &str) -> Vec<u8> {
        self.value(&self.meta_row(name))
    }

    /// The object of a key.
    pub fn object(&self, name: &str) -> (Slot, ObjectId) {
        let mut meta = self.meta(name);
        let times = [0, 8, 16, 24][usize::from(meta[1])];
        meta.drain(2..2 + times);
        let number =
            |range: std::ops::Range<usize>| meta[range].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        (Slot(number(10..12) as u16), ObjectId(number(2..10)))
    }

    pub fn owner_row(&self, name: &str) -> Vec<u8> {
        let (slot, id) = self.object(name);
        row::owner_row(Space(0), slot, id).to_vec()
    }

    pub fn data_row(&self, name: &str, element: &[u8]) -> Vec<u8> {
        let (slot, id) = self.object(name);
        row::data_row(Space(0), slot, id, element).to_vec()
    }

    /// Returns the part behind the object in the key of an element that is found by its hash.
    pub fn element(&self, element: &str) -> Vec<u8> {
        let hash = row::element_hash_of(element.as_bytes(), self.seed).to_be_bytes();
        [&hash, element.as_bytes()].concat()
    }

    /// Returns the row of an element that is found by its hash.
    pub fn element_row(&self, name: &str, element: &str) -> Vec<u8> {
        self.data_row(name, &self.element(element))
    }

    pub fn score_row(&self, name: &str, element: &[u8]) -> Vec<u8> {
        let (slot, id) = self.object(name);
        row::score_row(Space(0), slot, id, element).to_vec()
    }
}

/// Writes rows into the base of a directory.
pub fn write(dir: &Path, rows: Vec<Write>) {
    let rows: BTreeMap<Vec<u8>, Option<Vec<u8>>> = rows.into_iter().collect();
    let base = Rocks::open(&dir.join("base"), Options::default()).expect("the base opens");
    base.ingest(&mut Planted { rows: rows.into_iter(), current: None }).expect("the rows go in");
    base.close();
}

struct Planted {
    rows: std::collections::btree_map::IntoIter<Vec<u8>, Option<Vec<u8>>>,
    current: Option<Write>,
}

impl Rows for Planted {
    fn next_row(&mut self) -> Result<Option<(&[u8], Option<&[u8]>)>, BaseError> {
        self.current = self.rows.next();
        Ok(self.current.as_ref().map(|(row, value)| (&row[..], value.as_deref())))
    }
}
