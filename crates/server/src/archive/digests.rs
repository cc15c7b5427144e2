//! The checksums of files that were archived, so that a file is read once and not for each backup: `haypile.digests`.
//!
//! A file is known again by its inode, length and time of change: those of the base are written once, and a backup's
//! are links to them. A file that is not known is read.

use haypile_archive::{Digest, digest_file};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const TITLE: &str = "haypile digests 1";

/// A file, as the operating system tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i128,
}

pub struct Digests {
    path: PathBuf,
    known: HashMap<Identity, Digest>,
    /// The ones that were asked for: others are of files that are gone.
    used: HashMap<Identity, Digest>,
}

impl Digests {
    /// Reads what is known; nothing where the file is not there, or is damaged.
    pub fn read(path: PathBuf) -> Digests {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        Digests { path, known: parse(&text).unwrap_or_default(), used: HashMap::new() }
    }

    /// Returns the checksum of a file, and its bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(&mut self, path: &Path) -> io::Result<(Digest, u64)> {
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        let identity = Identity {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.len(),
            modified_ns: i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec()),
        };
        let digest = match self.known.get(&identity) {
            Some(digest) => *digest,
            None => {
                let (digest, bytes) = digest_file(&mut file)?;
                if bytes != identity.bytes {
                    return Err(io::Error::other("the file changes while it is read"));
                }
                digest
            }
        };
        self.used.insert(identity, digest);
        Ok((digest, identity.bytes))
    }

    /// Writes the ones that were asked for.
    ///
    /// # Errors
    /// The disk refuses; the files are read again then.
    pub fn write(&self) -> io::Result<()> {
        let fresh = self.path.with_extension("digests.new");
        std::fs::write(&fresh, format(&self.used))?;
        std::fs::rename(&fresh, &self.path)
    }
}

fn format(digests: &HashMap<Identity, Digest>) -> String {
    let mut text = format!("{TITLE}\n");
    for (Identity { device, inode, bytes, modified_ns }, digest) in digests {
        text += &format!("{device} {inode} {bytes} {modified_ns} {digest}\n");
    }
    text + "end\n"
}

fn parse(text: &str) -> Option<HashMap<Identity, Digest>> {
    let mut lines = text.strip_suffix("end\n")?.lines();
    (lines.next()? == TITLE).then_some(())?;
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (device, inode) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (bytes, modified_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((Identity { device, inode, bytes, modified_ns }, Digest::parse(words.next()?)?))
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_harness::server::Workplace;

    #[test]
    fn a_file_is_read_once_until_it_is_another_one() {
        let place = Workplace::new("digests", None).unwrap();
        let (file, link) = (place.file("file"), place.file("link"));
        std::fs::write(&file, "content").unwrap();
        let mut digests = Digests::read(place.file("haypile.digests"));
        let (digest, bytes) = digests.of(&file).unwrap();
        assert_eq!((digest, bytes), digest_file(&mut &b"content"[..]).unwrap());
        digests.write().unwrap();
        let mut digests = Digests::read(place.file("haypile.digests"));
        assert_eq!(digests.known.len(), 1);
        std::fs::hard_link(&file, &link).unwrap();
        // Another checksum that is known shows that the file is not read.
        let forged = Digest([7; 32]);
        digests.known.values_mut().for_each(|known| *known = forged);
        assert_eq!(digests.of(&link).unwrap(), (forged, 7));
        std::fs::write(&file, "contenu").unwrap();
        std::fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        assert_eq!(digests.of(&file).unwrap(), digest_file(&mut &b"contenu"[..]).unwrap());
        let text = format(&digests.used);
        assert_eq!(parse(&text).as_ref(), Some(&digests.used));
        assert_eq!(parse(&text[..text.len() - 1]), None);
    }
}
