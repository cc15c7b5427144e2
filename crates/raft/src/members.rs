//! The members of a group: their numbers and addresses.

use haypile_log::History;
use std::collections::BTreeMap;
use std::fmt;

/// The most members that a group has: more would make each commit slower without making data safer.
pub const MEMBERS_MAX: usize = 15;

/// The most bytes of an address.
const ADDRESS_BYTES_MAX: usize = 255;

/// A member, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address for clients and members, host:port.
    pub address: String,
}

/// The members of a group, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(BTreeMap<u64, Peer>);

/// The reason why a text or bytes name no members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembersError(String);

impl fmt::Display for MembersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MembersError {}

impl MembersError {
    /// Returns the error of a text that is written in another way than a group writes it.
    pub(crate) fn unusual() -> MembersError {
        MembersError("it is not as a group writes it".into())
    }
}

impl fmt::Display for Members {
    /// Writes the members as [`parse`](Members::parse) reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (id, peer)) in self.0.iter().enumerate() {
            write!(f, "{}{id}@{}", if at == 0 { "" } else { "," }, peer.address)?;
        }
        Ok(())
    }
}

impl Members {
    /// Reads `1@host:port,2@host:port,…`.
    ///
    /// # Errors
    /// The text is not of this form, names a number or an address twice, or names more members than there may be.
    pub fn parse(text: &str) -> Result<Members, MembersError> {
        let mut members = Members::default();
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let wrong = |why: &str| MembersError(format!("{part:?}: {why}"));
            let (id, address) = part.split_once('@').ok_or_else(|| wrong("a member is number@host:port"))?;
            let id = id.parse().ok().filter(|id| *id > 0).ok_or_else(|| wrong("a member's number is from 1 on"))?;
            let port =
                address.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
            if port.is_none_or(|port| port == 0) || address.len() > ADDRESS_BYTES_MAX {
                return Err(wrong("its address is host:port"));
            }
            if members.0.values().any(|peer| peer.address == address) {
                return Err(wrong("another member has this address"));
            }
            if members.0.insert(id, Peer { address: address.into() }).is_some() {
                return Err(wrong("another member has this number"));
            }
        }
        match members.0.len() {
            0 => Err(MembersError("there are no members".into())),
            1..=MEMBERS_MAX => Ok(members),
            _ => Err(MembersError(format!("a group has at most {MEMBERS_MAX} members"))),
        }
    }

    /// Returns the members by their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Peer)> {
        self.0.iter().map(|(id, peer)| (*id, peer))
    }

    /// Returns a member.
    pub fn get(&self, id: u64) -> Option<&Peer> {
        self.0.get(&id)
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name of the history that a group which begins with these members is in: theirs alone, and the same
    /// on each of them.
    pub fn founding(&self) -> History {
        let mut name = [0; 20];
        let text = format!("haypile group {self}");
        for (at, piece) in name.chunks_mut(4).enumerate() {
            let mut hasher = crc32fast::Hasher::new_with_initial(at as u32 + 1);
            hasher.update(text.as_bytes());
            piece.copy_from_slice(&hasher.finalize().to_le_bytes());
        }
        name[0] = name[0].max(1);
        History(name)
    }

    /// Returns the seed of the hashes by which a group that begins with these members places its rows.
    pub fn hash_seed(&self) -> u64 {
        u64::from_le_bytes(*self.founding().0.last_chunk().expect("a name has twenty bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_are_written() {
        let text = "1@10.0.0.1:6379,2@node-2:6379,30@[::1]:7000";
        let members = Members::parse(text).unwrap();
        assert_eq!((members.to_string(), members.len()), (text.to_owned(), 3));
        let other = Members::parse(" 30@[::1]:7000 1@10.0.0.1:6379,,2@node-2:6379").unwrap();
        assert_eq!((&other, other.founding()), (&members, members.founding()), "their order says nothing");
        assert_ne!(
            Members::parse("1@a:1,2@b:1").unwrap().founding(),
            Members::parse("1@a:1,2@b:2").unwrap().founding()
        );
        assert_eq!(members.get(2).unwrap().address, "node-2:6379");
    }

    #[test]
    fn what_names_no_members_is_refused() {
        for (text, why) in [
            ("", "there are no members"),
            ("1", "number@host:port"),
            ("0@a:1", "from 1 on"),
            ("x@a:1", "from 1 on"),
            ("1@a", "host:port"),
            ("1@:1", "host:port"),
            ("1@a:0", "host:port"),
            ("1@a:99999", "host:port"),
            ("1@a:1,1@b:1", "this number"),
            ("1@a:1,2@a:1", "this address"),
        ] {
            let error = Members::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let many: Vec<_> = (1..=16).map(|id| format!("{id}@a:{id}")).collect();
        assert!(Members::parse(&many.join(",")).is_err());
    }
}
