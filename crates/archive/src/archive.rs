//! An archive: what is written to it and read from it, by kind; encrypted or not.

use crate::catalog::{Catalog, Lane};
use crate::chain::Chain;
use crate::key::Key;
use crate::manifest::{BackupFile, Manifest, digest_of};
use crate::names::{ABOUT, BACKUPS, ChunkName, Digest, FILES, LOG};
use crate::place::{Listed, PART_BYTES, Place, PlaceError};
use crate::sealed::{HEADER_BYTES, Opener, PIECE_BYTES, Sealer};
use haypile_log::{Chunk, ChunkRecords, History, Index, SEGMENT_HEADER_BYTES};
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

/// The first line of the object that says what the place is, with the version of the format.
const TITLE: &str = "haypile archive 1";
/// The text that an encrypted archive has sealed, so that another key is noticed at once.
const CHECK: &[u8] = b"haypile";
/// Bytes of a manifest: that of the most files that one may have.
const MANIFEST_BYTES_MAX: usize = 512 << 20;
/// Bytes of a chunk that are read: the longest record and what is around it.
const CHUNK_BYTES_MAX: usize = (4 << 30) + (1 << 20);

/// Why an archive did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The place has no archive.
    NoArchive(String),
    /// The object of this name is not there.
    Missing(String),
    /// The object of this name is not what it should be, for this reason.
    Damaged(String, String),
    /// A failure of any other kind, which may be temporary; the text is for people.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoArchive(place) => write!(f, "there is no archive at {place}"),
            Error::Missing(name) => write!(f, "{name} is missing in the archive"),
            Error::Damaged(name, why) => write!(f, "{name} in the archive is damaged: {why}"),
            Error::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<PlaceError> for Error {
    fn from(error: PlaceError) -> Error {
        match error {
            PlaceError::Missing(name) => Error::Missing(name),
            error => Error::Failed(error.to_string()),
        }
    }
}

/// An open archive.
#[derive(Clone)]
pub struct Archive {
    place: Arc<dyn Place>,
    key: Option<Key>,
    id: String,
}

impl Archive {
    /// Opens the archive of a place.
    ///
    /// # Errors
    /// There is none, it is of another version, or the key is not its key.
    pub fn open(place: Arc<dyn Place>, key: Option<Key>) -> Result<Archive, Error> {
        let mut about = Vec::new();
        let read = place.get(ABOUT, &mut |bytes| {
            about.extend_from_slice(bytes);
            if about.len() > 1 << 16 { Err(PlaceError::Failed(format!("{ABOUT} is too long"))) } else { Ok(()) }
        });
        match read {
            Err(PlaceError::Missing(_)) => return Err(Error::NoArchive(place.name())),
            read => read?,
        }
        let mut archive = Archive { place, key, id: String::new() };
        archive.id = archive.check(&about)?;
        Ok(archive)
    }

    /// Opens the archive of a place, or begins one where there is none.
    ///
    /// # Errors
    /// The errors of `open`, or that the place cannot be written to.
    pub fn open_or_begin(place: Arc<dyn Place>, key: Option<Key>) -> Result<Archive, Error> {
        match Archive::open(place.clone(), key.clone()) {
            Err(Error::NoArchive(_)) => {}
            opened => return opened,
        }
        let encryption = match &key {
            None => "encryption none\n".to_owned(),
            Some(key) => {
                let sealed = Sealer::whole(key, ABOUT, CHECK);
                let digits: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("encryption aes-256-gcm\ncheck {digits}\n")
            }
        };
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).expect("the kernel's random source always gives bytes");
        let id = u128::from_le_bytes(id);
        match place.create(ABOUT, format!("{TITLE}\nid {id:032x}\n{encryption}").into_bytes()) {
            // Another server has begun it.
            Err(PlaceError::Exists(_)) | Ok(()) => Archive::open(place, key),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the name that the archive has got when it was begun: 32 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Checks what the archive says of itself, and the key; returns its id.
    fn check(&self, about: &[u8]) -> Result<String, Error> {
        let damaged = |why: &str| Error::Damaged(ABOUT.to_owned(), why.to_owned());
        let text = std::str::from_utf8(about).map_err(|_| damaged("it is no text"))?;
        let mut lines = text.lines();
        match lines.next() {
            Some(TITLE) => {}
            Some(line) if line.starts_with("haypile archive ") => {
                return Err(Error::Failed(format!("{} is an archive of another version", self.place.name())));
            }
            _ => return Err(damaged("it is not what this program writes there")),
        }
        let id = lines.next().and_then(|line| line.strip_prefix("id ")).filter(|id| id.len() == 32);
        let id = id.ok_or_else(|| damaged("it has no id"))?.to_owned();
        match (lines.next(), &self.key) {
            (Some("encryption none"), None) => Ok(id),
            (Some("encryption none"), Some(_)) => Err(Error::Failed(format!(
                "the archive at {} is not encrypted, and a key was given",
                self.place.name()
            ))),
            (Some("encryption aes-256-gcm"), None) => {
                Err(Error::Failed(format!("the archive at {} is encrypted: it needs its key", self.place.name())))
            }
            (Some("encryption aes-256-gcm"), Some(key)) => {
                let digits = lines.next().and_then(|line| line.strip_prefix("check ")).unwrap_or_default().as_bytes();
                let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
                let sealed: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
                let sealed = sealed.ok_or_else(|| damaged("its check is no number"))?;
                let mut opener = Opener::new(key, ABOUT);
                let mut plain = Vec::new();
                let mut take = |bytes: &[u8]| {
                    plain.extend_from_slice(bytes);
                    Ok::<_, String>(())
                };
                let opened = opener.add(&sealed, &mut take).and_then(|()| opener.end(&mut take));
                match opened {
                    Ok(()) if plain == CHECK => Ok(id),
                    _ => Err(Error::Failed(format!("the key is not that of the archive at {}", self.place.name()))),
                }
            }
            _ => Err(damaged("it says nothing of an encryption that is known")),
        }
    }

    /// Checks that the archive that was opened is still the one at its place.
    ///
    /// # Errors
    /// Another one is there, or none.
    pub fn is_still_there(&self) -> Result<(), Error> {
        let id = Archive::open(self.place.clone(), self.key.clone())?.id;
        if id == self.id { Ok(()) } else { Err(Error::Failed(format!("another archive is at {} now", self.name()))) }
    }

    /// Checks that this archive is there, where something else may be: nothing is to be written into that.
    ///
    /// # Errors
    /// The archive is not there, or another one is, as `is_still_there` says.
    pub(crate) fn look_first(&self) -> Result<(), Error> {
        if self.place.may_be_exchanged() { self.is_still_there() } else { Ok(()) }
    }

    pub(crate) fn place(&self) -> &Arc<dyn Place> {
        &self.place
    }

    /// Removes what writers that were broken off have left, if it is older than `age`.
    ///
    /// # Errors
    /// The place refuses.
    pub fn remove_broken_off(&self, age: Duration) -> Result<(), Error> {
        Ok(self.place.remove_broken_off(age)?)
    }

    /// Returns the name of the place, for people.
    pub fn name(&self) -> String {
        self.place.name()
    }

    /// Writes a chunk of the log.
    ///
    /// # Errors
    /// The place refuses.
    ///
    /// # Panics
    /// The chunk has no first or no last record. That it has all in between is asserted where it is cut.
    pub fn put_chunk(&self, chunk: &Chunk) -> Result<(), Error> {
        let name = ChunkName::of(chunk).to_string();
        assert_eq!(ChunkName::parse(&name), Some(ChunkName::of(chunk)), "Invariant: a chunk is found by its name");
        self.put(&name, &mut &chunk.bytes[..])
    }

    /// Reads a chunk of the log.
    ///
    /// # Errors
    /// The chunk is missing or damaged, or says of itself what its name does not.
    pub fn get_chunk(&self, name: &ChunkName) -> Result<ChunkRecords, Error> {
        let object = name.to_string();
        let records = ChunkRecords::new(self.get_whole(&object, CHUNK_BYTES_MAX)?);
        let damaged = |why: String| Error::Damaged(object.clone(), why);
        let records = records.map_err(|error| damaged(error.to_string()))?;
        if (records.start().history, records.first()) != (name.history, name.first) {
            return Err(damaged("it has other records than its name says".into()));
        }
        Ok(records)
    }

    /// Returns the name of the object of a file with this content.
    fn object_of(&self, digest: Digest) -> String {
        let name = self.key.as_ref().map_or(digest, |key| Digest(key.name_of(&digest.0)));
        let text = name.to_string();
        format!("{FILES}{}/{text}", &text[..2])
    }

    /// Writes a file of a backup, of this content.
    ///
    /// # Errors
    /// The place refuses, or the file cannot be read.
    pub fn put_file(&self, digest: Digest, file: &mut dyn Read) -> Result<(), Error> {
        self.put(&self.object_of(digest), file)
    }

    /// Reads a file of a backup; hands its bytes to `take`.
    ///
    /// # Errors
    /// The file is missing or damaged, or `take` failed; what was taken is of no use.
    pub fn get_file(&self, file: &BackupFile, take: &mut dyn FnMut(&[u8]) -> Result<(), String>) -> Result<(), Error> {
        let object = self.object_of(file.digest);
        let (mut context, mut bytes) = (Context::new(&SHA256), 0);
        self.get(&object, &mut |part| {
            context.update(part);
            bytes += part.len() as u64;
            take(part).map_err(Error::Failed)
        })?;
        if bytes != file.bytes || context.finish().as_ref() != file.digest.0 {
            return Err(Error::Damaged(object, format!("its content is not that of {}", file.path)));
        }
        Ok(())
    }

    /// Writes the manifest of a backup, of which all files are there.
    ///
    /// # Errors
    /// The place refuses.
    ///
    /// # Panics
    /// The manifest is one that nobody could read.
    pub fn put_manifest(&self, manifest: &Manifest) -> Result<(), Error> {
        assert_eq!(manifest.defect(), None, "Invariant: what a manifest says makes sense");
        self.put(&manifest.object(), &mut manifest.text().as_bytes())
    }

    fn get_manifest(&self, object: &str) -> Result<Manifest, Error> {
        let damaged = |why: String| Error::Damaged(object.to_owned(), why);
        let bytes = self.get_whole(object, MANIFEST_BYTES_MAX)?;
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is no text".into()))?;
        let manifest = Manifest::parse(&text).map_err(|error| damaged(error.to_string()))?;
        if manifest.object() != object {
            return Err(damaged(format!("it is that of {}", manifest.name())));
        }
        Ok(manifest)
    }

    /// Returns the backups that are there, in the order of their names. Damaged ones are passed over.
    ///
    /// # Errors
    /// The place refuses.
    pub fn backups(&self) -> Result<Vec<Manifest>, Error> {
        let mut found = Vec::new();
        for listed in self.place.list(BACKUPS, "")? {
            match self.get_manifest(&listed.name) {
                Ok(manifest) => found.push(manifest),
                Err(Error::Damaged(..) | Error::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Returns the files that are there, with the time at which each was written, and the bytes of its object.
    ///
    /// # Errors
    /// The place refuses.
    pub fn files(&self) -> Result<HashMap<String, Listed>, Error> {
        Ok(self.place.list(FILES, "")?.into_iter().map(|listed| (listed.name.clone(), listed)).collect())
    }

    /// Whether a file of this content is among those that are there.
    pub fn has_file(&self, files: &HashMap<String, Listed>, file: &BackupFile) -> bool {
        let there = files.get(&self.object_of(file.digest));
        there.is_some_and(|listed| listed.bytes == self.object_bytes(file.bytes))
    }

    /// Returns the names of the objects of files, as `files` returns them.
    pub fn objects_of<'a>(&'a self, digests: impl IntoIterator<Item = &'a Digest>) -> impl Iterator<Item = String> {
        digests.into_iter().map(|digest| self.object_of(*digest))
    }

    /// Returns the bytes of an object whose content has so many.
    fn object_bytes(&self, bytes: u64) -> u64 {
        let pieces = bytes / PIECE_BYTES as u64 + 1;
        if self.key.is_some() { HEADER_BYTES as u64 + bytes + 16 * pieces } else { bytes }
    }

    /// Returns what the archive has. Of each history one chunk is read, and each manifest.
    ///
    /// # Errors
    /// The place refuses. What is damaged is in the catalog, among what is strange.
    pub fn catalog(&self) -> Result<Catalog, Error> {
        let mut catalog = Catalog::default();
        for listed in self.place.list(BACKUPS, "")? {
            match self.get_manifest(&listed.name) {
                Ok(manifest) => catalog.backups.push(manifest),
                Err(Error::Damaged(name, why)) => catalog.strange.push((name, why)),
                // The backup went meanwhile.
                Err(Error::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        catalog.backups.sort_by_key(|backup| (backup.made_ms, backup.through));
        let mut chunks: BTreeMap<History, Vec<ChunkName>> = BTreeMap::new();
        for listed in self.place.list(LOG, "")? {
            match ChunkName::parse(&listed.name) {
                Some(name) => chunks.entry(name.history).or_default().push(name),
                None => catalog.strange.push((listed.name, "its name is not that of a chunk".into())),
            }
        }
        for (history, chunks) in chunks {
            match self.chain_of(&chunks, &mut catalog.strange)? {
                Some(chain) => _ = catalog.lanes.insert(history, Lane { chain, chunks }),
                None => continue,
            }
        }
        Ok(catalog)
    }

    /// Returns the histories that lead to these chunks, as the newest one that can be read says; None if none can.
    fn chain_of(&self, chunks: &[ChunkName], strange: &mut Vec<(String, String)>) -> Result<Option<Chain>, Error> {
        for name in chunks.iter().rev() {
            match self.get_header(name) {
                Ok(records) => return Ok(Some(Chain::new(records.histories().starts()))),
                Err(Error::Damaged(name, why)) => strange.push((name, why)),
                Err(Error::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads the header of a chunk.
    fn get_header(&self, name: &ChunkName) -> Result<ChunkRecords, Error> {
        let object = name.to_string();
        let sealed = HEADER_BYTES + PIECE_BYTES + 16;
        let bytes = match &self.key {
            None => self.place.get_start(&object, SEGMENT_HEADER_BYTES as usize)?,
            Some(key) => {
                let start = self.place.get_start(&object, sealed)?;
                let (mut opener, mut plain) = (Opener::new(key, &object), Vec::new());
                let mut take = |bytes: &[u8]| {
                    plain.extend_from_slice(bytes);
                    Ok::<_, String>(())
                };
                let opened = opener.add(&start, &mut take);
                let opened = opened.and_then(|()| if start.len() < sealed { opener.end(&mut take) } else { Ok(()) });
                opened.map_err(|why| Error::Damaged(object.clone(), why))?;
                plain.truncate(SEGMENT_HEADER_BYTES as usize);
                plain
            }
        };
        let records = ChunkRecords::new(bytes).map_err(|error| Error::Damaged(object.clone(), error.to_string()))?;
        if records.start().history != name.history {
            return Err(Error::Damaged(object, "it is of another history than its name says".into()));
        }
        Ok(records)
    }

    /// Returns the last record of a chain that is there without a hole behind `after`.
    ///
    /// # Errors
    /// The place refuses.
    pub fn reach(&self, chain: &Chain, after: Index) -> Result<Index, Error> {
        let mut catalog = Catalog::default();
        for (at, start) in chain.starts().iter().enumerate().filter(|(at, _)| chain.end(*at) >= after) {
            let listed = self.place.list(&ChunkName::prefix(start.history), "")?;
            let chunks = listed.iter().filter_map(|listed| ChunkName::parse(&listed.name)).collect();
            let lane = Lane { chain: Chain::new(&chain.starts()[..=at]), chunks };
            catalog.lanes.insert(start.history, lane);
        }
        Ok(catalog.reach(chain, after))
    }

    /// Returns how far a chain is archived: the place of the newest of its histories that has a chunk, and the last
    /// record of it that is there. `after` is known to be there, of the chain's history at `from`.
    ///
    /// # Errors
    /// The place refuses.
    pub fn newest_in(&self, chain: &Chain, from: Option<(usize, Index)>) -> Result<Option<(usize, ChunkName)>, Error> {
        for at in (from.map_or(0, |(at, _)| at)..chain.starts().len()).rev() {
            let history = chain.starts()[at].history;
            let after = match from {
                Some((place, index)) if place == at => ChunkName::behind(history, index),
                _ => String::new(),
            };
            let names = self.place.list(&ChunkName::prefix(history), &after)?;
            let names = names.iter().filter_map(|listed| ChunkName::parse(&listed.name));
            // Records behind the place where the chain left a history are another one's.
            if let Some(last) = names.filter(|name| name.first <= chain.end(at)).max_by_key(|name| name.last) {
                return Ok(Some((at, last)));
            }
        }
        Ok(None)
    }

    /// Removes a backup, a chunk or a file, by the name of its object.
    ///
    /// Invariant: no manifest names a file that is removed.
    ///
    /// # Errors
    /// The place refuses.
    pub fn remove(&self, object: &str) -> Result<(), Error> {
        debug_assert!(!self.is_named(object), "{object} is removed, and a manifest names it");
        Ok(self.place.remove(object)?)
    }

    /// Returns whether a manifest that can be read names this file. Each of them is read.
    fn is_named(&self, object: &str) -> bool {
        let names_it = |backup: &Manifest| backup.files.iter().any(|file| self.object_of(file.digest) == object);
        object.starts_with(FILES) && self.backups().is_ok_and(|backups| backups.iter().any(names_it))
    }

    fn put(&self, object: &str, content: &mut dyn Read) -> Result<(), Error> {
        self.look_first()?;
        let mut parts = Parts::new(self.key.as_ref(), object);
        Ok(self.place.put(object, &mut || parts.next(content))?)
    }

    fn get(&self, object: &str, take: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        // A place passes on its own errors alone.
        let mut failure = None;
        let mut opener = self.key.as_ref().map(|key| Opener::new(key, object));
        let got = self.place.get(object, &mut |bytes| {
            let taken = match &mut opener {
                None => take(bytes),
                Some(opener) => opener.add(bytes, &mut |plain| take(plain).map_err(Opened::Taken)).map_err(Error::from),
            };
            taken.map_err(|error| {
                let why = error.to_string();
                failure = Some(error);
                PlaceError::Failed(why)
            })
        });
        let named = |error: Error| match error {
            Error::Damaged(name, why) if name.is_empty() => Error::Damaged(object.to_owned(), why),
            error => error,
        };
        if let Some(failure) = failure {
            return Err(named(failure));
        }
        got?;
        match opener {
            None => Ok(()),
            Some(opener) => {
                let ended = opener.end(&mut |plain| take(plain).map_err(Opened::Taken));
                ended.map_err(|error| named(error.into()))
            }
        }
    }

    fn get_whole(&self, object: &str, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.get(object, &mut |part| {
            if bytes.len() + part.len() > bytes_max {
                return Err(Error::Damaged(object.to_owned(), "it is too long".into()));
            }
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }
}

/// Returns the checksum of a file's content, and its bytes.
///
/// # Errors
/// The file cannot be read.
pub fn digest_file(file: &mut dyn Read) -> std::io::Result<(Digest, u64)> {
    let (mut context, mut bytes, mut buf) = (Context::new(&SHA256), 0, vec![0; 256 << 10]);
    loop {
        match file.read(&mut buf) {
            Ok(0) => break,
            Ok(read) => {
                context.update(&buf[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut digest = digest_of(b"");
    digest.0.copy_from_slice(context.finish().as_ref());
    Ok((digest, bytes))
}

/// The reason why a sealed object was not read to its end.
enum Opened {
    /// The bytes are not those that were sealed.
    Damaged(String),
    /// The taker of the bytes refused.
    Taken(Error),
}

impl From<String> for Opened {
    fn from(why: String) -> Opened {
        Opened::Damaged(why)
    }
}

impl From<Opened> for Error {
    fn from(opened: Opened) -> Error {
        match opened {
            // The caller knows the name.
            Opened::Damaged(why) => Error::Damaged(String::new(), why),
            Opened::Taken(error) => error,
        }
    }
}

/// Makes the parts of an object out of its content.
struct Parts {
    sealer: Option<Sealer>,
    /// Bytes of the object that no part has had.
    made: Vec<u8>,
    piece: Vec<u8>,
    is_ended: bool,
}

impl Parts {
    fn new(key: Option<&Key>, object: &str) -> Parts {
        let begun = key.map(|key| Sealer::begin(key, object));
        let (sealer, made) = begun.map_or((None, Vec::new()), |(sealer, header)| (Some(sealer), header));
        Parts { sealer, made, piece: vec![0; PIECE_BYTES], is_ended: false }
    }

    fn next(&mut self, content: &mut dyn Read) -> Result<Option<Vec<u8>>, PlaceError> {
        while !self.is_ended && self.made.len() < PART_BYTES {
            let mut filled = 0;
            while filled < PIECE_BYTES && !self.is_ended {
                match content.read(&mut self.piece[filled..]) {
                    Ok(0) => self.is_ended = true,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(PlaceError::Failed(error.to_string())),
                }
            }
            match &mut self.sealer {
                None => self.made.extend_from_slice(&self.piece[..filled]),
                Some(sealer) => sealer.seal(&self.piece[..filled], self.is_ended, &mut self.made),
            }
        }
        if self.made.is_empty() {
            return Ok(None);
        }
        let rest = self.made.split_off(self.made.len().min(PART_BYTES));
        Ok(Some(std::mem::replace(&mut self.made, rest)))
    }
}
