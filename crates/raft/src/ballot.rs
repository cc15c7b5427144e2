//! The ballot: a member's term and vote, and for how long a leader may rely on its vote, which it must never forget, in
//! a small file of their own.
//!
//! The file has two slots, a page each, which say the same: each is written and synced in turn. A torn write leaves the
//! other one, and so does a sector that is damaged later, without a vote being forgotten. That is done before any
//! message that rests on a vote leaves, and before the entries of a new term. `docs/format/raft.md` has the bytes.

use crate::machine::Fault;
use haypile_log::{File, Files, History, read_exact_at, write_all_at};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MAGIC: [u8; 8] = *b"haypiler";
/// Version of the file's format, in each slot. Another one is refused, but for this one:
const VERSION: u32 = 2;
/// The version of a slot of a member that has begun with restored data and that no record of a leader has named yet. A
/// server that does not know the rule about its votes refuses the file.
const UNNAMED_VERSION: u32 = 3;
const SLOT_BYTES: usize = 80;
/// A disk writes a sector whole: each slot has one of its own.
const SLOT_DISTANCE: u64 = 4096;
const SLOTS: u64 = 2;

/// A member's newest term, and whom it voted for there; 0 for nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    pub term: u64,
    pub vote: u64,
}

/// The file of a member.
#[derive(Debug)]
pub struct Ballot {
    file: Arc<dyn File>,
    path: PathBuf,
    group: History,
    id: u64,
    sequence: u64,
    vote: Vote,
    leased: Duration,
    filled: bool,
    unnamed: Option<u64>,
}

/// The content of a slot.
struct Slot {
    sequence: u64,
    group: History,
    id: u64,
    vote: Vote,
    leased: Duration,
    filled: bool,
    /// Invariant: a member for which this is set has voted for nobody.
    unnamed: Option<u64>,
}

impl Slot {
    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let version = if self.unnamed.is_some() { UNNAMED_VERSION } else { VERSION };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..44].copy_from_slice(&self.group.0);
        bytes[44..48].copy_from_slice(&u32::from(self.filled).to_le_bytes());
        bytes[48..56].copy_from_slice(&self.id.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.vote.term.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.unnamed.unwrap_or(self.vote.vote).to_le_bytes());
        bytes[72..80].copy_from_slice(&(self.leased.as_micros() as u64).to_le_bytes());
        let crc = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns None of what is no slot of these versions.
    fn decode(bytes: &[u8]) -> Option<Slot> {
        let number =
            |at: usize| bytes.get(at..at + 8).map(|bytes| u64::from_le_bytes(*bytes.first_chunk().expect("eight")));
        let is_unnamed = *bytes.get(8..)?.first_chunk()? == UNNAMED_VERSION.to_le_bytes();
        let (vote, unnamed) = if is_unnamed { (0, Some(number(64)?)) } else { (number(64)?, None) };
        let slot = Slot {
            sequence: number(16)?,
            group: History(*bytes.get(24..)?.first_chunk()?),
            id: number(48)?,
            vote: Vote { term: number(56)?, vote },
            leased: Duration::from_micros(number(72)?),
            filled: *bytes.get(44)? == 1,
            unnamed,
        };
        (slot.encode()[..] == bytes[..SLOT_BYTES]).then_some(slot)
    }
}

impl Ballot {
    /// Opens the ballot of a member. One that begins, with an empty log, has none yet: it is made.
    ///
    /// # Errors
    /// The file is damaged, of another member or group, or lost while the log has entries: a member that may have
    /// forgotten a vote takes no part. Or it cannot be read or written.
    pub fn open(files: &dyn Files, path: &Path, group: History, id: u64, begins: bool) -> Result<Ballot, Fault> {
        let at = |what: &str| format!("{}: {what}", path.display());
        let failed = |error: io::Error| Fault::Refused(at(&error.to_string()));
        let file = match files.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !begins {
                    return Err(Fault::Damaged(at(
                        "it is missing, and the log has entries: this member may have voted, and must be replaced",
                    )));
                }
                return Ballot::create(files, path, (group, id), Vote::default(), None).map_err(failed);
            }
            file => file.map_err(failed)?,
        };
        let mut newest: Option<Slot> = None;
        for slot in 0..SLOTS {
            let mut bytes = [0; SLOT_BYTES];
            read_exact_at(&*file, &mut bytes, slot * SLOT_DISTANCE).map_err(failed)?;
            if bytes[..8] == MAGIC && bytes[8..12] == 1_u32.to_le_bytes() {
                return Err(Fault::Damaged(at(
                    "it is of version 1 of its format, and this server reads versions 2 and 3",
                )));
            }
            newest = newest.into_iter().chain(Slot::decode(&bytes)).max_by_key(|slot| slot.sequence);
        }
        let Some(slot) = newest else {
            return Err(Fault::Damaged(at(
                "neither of its two notes has the right checksum: this member must be replaced",
            )));
        };
        if (slot.group, slot.id) != (group, id) {
            let (of, is) = (format!("member {} of group {}", slot.id, slot.group), format!("member {id} of {group}"));
            return Err(Fault::Damaged(at(&format!("it is of {of}, and this is {is}"))));
        }
        // The note that was found may be in memory only: a process that was killed had written it, and not synced.
        let Slot { sequence, vote, leased, filled, unnamed, .. } = slot;
        let found = Ballot { file, path: path.to_owned(), group, id, sequence, vote, leased, filled, unnamed };
        found.write(&slot).and_then(|()| path.parent().map_or(Ok(()), |dir| files.sync_dir(dir))).map_err(failed)?;
        Ok(found)
    }

    /// Makes the ballot of a member that begins with restored data, of which the last entry is of this term. The member
    /// votes for nobody before a record of a leader names it, behind entry `unnamed`: through that one the group had no
    /// member with its number, or only a learner.
    ///
    /// # Errors
    /// There is a ballot, or it cannot be written.
    pub fn begin_restored(
        files: &dyn Files,
        path: &Path,
        (group, id): (History, u64),
        term: u64,
        unnamed: u64,
    ) -> Result<Ballot, Fault> {
        let failed = |error: io::Error| Fault::Refused(format!("{}: {error}", path.display()));
        if files.open(path).is_ok() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        Ballot::create(files, path, (group, id), Vote { term, vote: 0 }, Some(unnamed)).map_err(failed)
    }

    fn create(
        files: &dyn Files,
        path: &Path,
        (group, id): (History, u64),
        vote: Vote,
        unnamed: Option<u64>,
    ) -> io::Result<Ballot> {
        let fresh = path.with_extension("new");
        let file = files.create(&fresh)?;
        let (leased, filled) = (Duration::ZERO, false);
        let bytes = Slot { sequence: 1, group, id, vote, leased, filled, unnamed }.encode();
        (0..SLOTS).try_for_each(|slot| write_all_at(&*file, &bytes, slot * SLOT_DISTANCE))?;
        file.sync()?;
        files.rename(&fresh, path)?;
        if let Some(dir) = path.parent() {
            files.sync_dir(dir)?;
        }
        Ok(Ballot { file, path: path.to_owned(), group, id, sequence: 1, vote, leased, filled, unnamed })
    }

    /// Returns what was stored last.
    pub fn vote(&self) -> Vote {
        self.vote
    }

    /// Returns for how long after a word of a leader the member votes for nobody else, so that the leader may rely on
    /// it; zero where no leader does.
    pub(crate) fn leased(&self) -> Duration {
        self.leased
    }

    /// Notes that time; it is on the disk when this returns. A shorter one than before may only be noted when no leader
    /// relies on that any more.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub(crate) fn lease(&mut self, leased: Duration) -> Result<(), Fault> {
        self.put(self.vote, leased, self.filled)
    }

    /// Returns whether the member has had all that was acknowledged before it began with nothing.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled
    }

    /// Notes that; it is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub fn fill(&mut self) -> Result<(), Fault> {
        self.put(self.vote, self.leased, true)
    }

    /// Returns, of a member that has begun with restored data and that no record of a leader has named since, the entry
    /// behind which such a record counts.
    pub(crate) fn unnamed(&self) -> Option<u64> {
        self.unnamed
    }

    /// Notes that a record of a leader has named the member; the note is on the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written or synced.
    pub(crate) fn name(&mut self) -> Result<(), Fault> {
        self.put_slot(self.vote, self.leased, self.filled, None)
    }

    /// Writes both slots, and syncs each.
    fn write(&self, slot: &Slot) -> io::Result<()> {
        (0..SLOTS).try_for_each(|number| {
            write_all_at(&*self.file, &slot.encode(), number * SLOT_DISTANCE)?;
            self.file.sync()
        })
    }

    /// Stores a vote; it is on the disk, twice, when this returns.
    ///
    /// # Errors
    /// The file cannot be written or synced. Nothing may leave that rests on the vote.
    pub fn store(&mut self, vote: Vote) -> Result<(), Fault> {
        assert!(vote.term >= self.vote.term, "terms never go back: {vote:?}, {:?}", self.vote);
        assert!(
            vote.term > self.vote.term || self.vote.vote == 0 || vote.vote == self.vote.vote,
            "a vote is never taken back: {vote:?}, {:?}",
            self.vote
        );
        assert!(self.unnamed.is_none() || vote.vote == 0, "a member that nobody has named votes for nobody: {vote:?}");
        self.put(vote, self.leased, self.filled)
    }

    fn put(&mut self, vote: Vote, leased: Duration, filled: bool) -> Result<(), Fault> {
        self.put_slot(vote, leased, filled, self.unnamed)
    }

    fn put_slot(&mut self, vote: Vote, leased: Duration, filled: bool, unnamed: Option<u64>) -> Result<(), Fault> {
        let Ballot { group, id, .. } = *self;
        let slot = Slot { sequence: self.sequence + 1, group, id, vote, leased, filled, unnamed };
        self.write(&slot).map_err(|error| Fault::Refused(format!("{}: {error}", self.path.display())))?;
        (self.sequence, self.vote, self.leased, self.filled) = (slot.sequence, vote, leased, filled);
        self.unnamed = unnamed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::{ForgetfulFiles, Random};

    const GROUP: History = History([9; 20]);

    const PATH: &str = "/dir/ballot";

    fn disk() -> ForgetfulFiles {
        let disk = ForgetfulFiles::new();
        disk.create_dir_all(Path::new("/dir")).unwrap();
        disk
    }

    fn open(disk: &ForgetfulFiles, begins: bool) -> Result<Ballot, Fault> {
        Ballot::open(&*disk.process(), Path::new(PATH), GROUP, 3, begins)
    }

    #[test]
    fn a_vote_that_was_stored_is_found_after_any_crash() {
        for seed in 0..200 {
            let (disk, mut random) = (disk(), Random(seed));
            let mut ballot = open(&disk, true).unwrap();
            for term in 1..1 + random.below(6) {
                ballot.store(Vote { term, vote: 0 }).unwrap();
                ballot.store(Vote { term, vote: random.below(3) }).unwrap();
            }
            let stored = ballot.vote();
            // A store that the crash comes into: in one slot or the other.
            let (sequence, vote) = (ballot.sequence + 1, Vote { term: 99, vote: 1 });
            let (leased, filled, unnamed) = (Duration::ZERO, false, None);
            let slot = Slot { sequence, group: GROUP, id: 3, vote, leased, filled, unnamed };
            write_all_at(&*ballot.file, &slot.encode(), 0).unwrap();
            if random.chance(50) {
                ballot.file.sync().unwrap();
                write_all_at(&*ballot.file, &slot.encode(), SLOT_DISTANCE).unwrap();
            }
            disk.crash(random.number());
            let found = open(&disk, false).unwrap().vote();
            assert!(found == stored || found == slot.vote, "seed {seed}: {found:?}, {stored:?}");
        }
    }

    #[test]
    fn who_may_have_forgotten_a_vote_takes_no_part() {
        let disk = disk();
        assert!(matches!(open(&disk, false), Err(Fault::Damaged(why)) if why.contains("must be replaced")));
        open(&disk, true).unwrap().store(Vote { term: 4, vote: 1 }).unwrap();
        let of = |id| Ballot::open(&*disk.process(), Path::new(PATH), GROUP, id, false);
        assert!(matches!(of(2), Err(Fault::Damaged(why)) if why.contains("it is of member 3")));
        let bytes = disk.read(Path::new(PATH)).unwrap();
        let damage = |slots: &[usize]| {
            let mut bytes = bytes.clone();
            slots.iter().for_each(|slot| bytes[slot * SLOT_DISTANCE as usize + 60] ^= 1);
            disk.replace(Path::new(PATH), bytes);
            open(&disk, false).map(|ballot| ballot.vote())
        };
        let stored = Ok(Vote { term: 4, vote: 1 });
        assert_eq!([damage(&[0]), damage(&[1])], [stored.clone(), stored], "either slot is enough");
        assert!(matches!(damage(&[0, 1]), Err(Fault::Damaged(_))));
    }

    #[test]
    fn how_long_leaders_rely_on_a_member_is_kept() {
        let disk = disk();
        let mut ballot = open(&disk, true).unwrap();
        assert_eq!(ballot.leased(), Duration::ZERO);
        ballot.lease(Duration::from_millis(1500)).unwrap();
        ballot.store(Vote { term: 4, vote: 1 }).unwrap();
        ballot.fill().unwrap();
        disk.crash(1);
        let found = open(&disk, false).unwrap();
        assert_eq!((found.leased(), found.vote().term, found.is_filled()), (Duration::from_millis(1500), 4, true));
    }

    #[test]
    fn a_ballot_of_an_older_version_is_refused() {
        let disk = disk();
        open(&disk, true).unwrap();
        let mut bytes = disk.read(Path::new(PATH)).unwrap();
        bytes[8] = 1;
        disk.replace(Path::new(PATH), bytes);
        assert!(matches!(open(&disk, false), Err(Fault::Damaged(why)) if why.contains("of version 1")));
    }

    #[test]
    #[should_panic(expected = "a vote is never taken back")]
    fn a_second_vote_in_a_term_is_noticed() {
        let mut ballot = open(&disk(), true).unwrap();
        ballot.store(Vote { term: 2, vote: 1 }).unwrap();
        drop(ballot.store(Vote { term: 2, vote: 3 }));
    }

    #[test]
    fn the_bytes_of_a_slot() {
        let (vote, leased) = (Vote { term: 7, vote: 2 }, Duration::from_millis(1));
        let slot = Slot { sequence: 5, group: GROUP, id: 3, vote, leased, filled: true, unnamed: None };
        let bytes = slot.encode();
        assert_eq!(bytes[..12], *b"haypiler\x02\0\0\0");
        assert_eq!(
            bytes[16..],
            [
                &[5, 0, 0, 0, 0, 0, 0, 0][..],
                &[9; 20],
                &[1, 0, 0, 0],
                &[3, 0, 0, 0, 0, 0, 0, 0],
                &[7, 0, 0, 0, 0, 0, 0, 0],
                &[2, 0, 0, 0, 0, 0, 0, 0],
                &[0xe8, 3, 0, 0, 0, 0, 0, 0]
            ]
            .concat()
        );
        assert!(Slot::decode(&bytes).is_some() && Slot::decode(&bytes[..78]).is_none());
        let unnamed = Slot { vote: Vote { term: 7, vote: 0 }, unnamed: Some(0x1234), ..slot };
        let unnamed_bytes = unnamed.encode();
        assert_eq!(unnamed_bytes[..12], *b"haypiler\x03\0\0\0");
        assert_eq!(unnamed_bytes[16..64], bytes[16..64]);
        assert_eq!(unnamed_bytes[64..], [0x34, 0x12, 0, 0, 0, 0, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0]);
        let found = Slot::decode(&unnamed_bytes).expect("it was just encoded");
        assert_eq!((found.vote, found.unnamed), (unnamed.vote, Some(0x1234)));
    }

    #[test]
    fn a_member_with_restored_data_is_unnamed_until_that_is_noted() {
        let disk = disk();
        let begin = || Ballot::begin_restored(&*disk.process(), Path::new(PATH), (GROUP, 3), 6, 40);
        let mut ballot = begin().unwrap();
        assert!(matches!(begin(), Err(Fault::Refused(_))), "a ballot that is there stays");
        ballot.store(Vote { term: 8, vote: 0 }).unwrap();
        ballot.lease(Duration::from_millis(5)).unwrap();
        disk.crash(1);
        let mut ballot = open(&disk, false).unwrap();
        assert_eq!((ballot.vote(), ballot.unnamed()), (Vote { term: 8, vote: 0 }, Some(40)));
        assert_eq!(disk.read(Path::new(PATH)).unwrap()[8], 3, "an older server refuses it");
        ballot.name().unwrap();
        ballot.store(Vote { term: 8, vote: 1 }).unwrap();
        disk.crash(2);
        let ballot = open(&disk, false).unwrap();
        assert_eq!((ballot.vote(), ballot.unnamed()), (Vote { term: 8, vote: 1 }, None));
        assert_eq!(ballot.leased(), Duration::from_millis(5));
        let bytes = disk.read(Path::new(PATH)).unwrap();
        assert_eq!([bytes[8], bytes[SLOT_DISTANCE as usize + 8]], [2, 2], "an older server takes it");
    }

    #[test]
    #[should_panic(expected = "votes for nobody")]
    fn a_vote_of_an_unnamed_member_is_noticed() {
        let disk = disk();
        let mut ballot = Ballot::begin_restored(&*disk.process(), Path::new(PATH), (GROUP, 3), 6, 40).unwrap();
        drop(ballot.store(Vote { term: 7, vote: 2 }));
    }
}
