//! Claims: the keys of a command, by the hashes of their names, and how it holds each of them.

use smallvec::SmallVec;

/// The number of lock words. 64 KiB of them stay in a core's second-level cache, and few commands that run at the same
/// time meet.
pub const STRIPES: usize = 1 << STRIPE_BITS;
const STRIPE_BITS: u32 = 14;

/// The number of a lock word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stripe(u16);

impl Stripe {
    /// The stripe of a key, by the hash of its name.
    #[inline]
    pub fn of(hash: u32) -> Stripe {
        Stripe((hash as usize % STRIPES) as u16)
    }

    /// Returns a number below `STRIPES`.
    #[inline]
    pub fn number(self) -> usize {
        usize::from(self.0) % STRIPES
    }
}

/// How a command holds its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The run shares the key with other readers.
    Shared,
    /// The run has the key alone.
    Exclusive,
}

/// A key that a command holds, by the hash of its name. Ordered by stripe, by hash, the stronger hold last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim(u64);

impl Claim {
    /// The stripe is the end of a hash: turned to its front, it is what hashes are ordered by.
    #[inline]
    pub fn new(hash: u32, hold: Hold) -> Claim {
        Claim(u64::from(hash.rotate_right(STRIPE_BITS)) << 1 | u64::from(hold == Hold::Exclusive))
    }

    #[inline]
    pub fn hash(self) -> u32 {
        self.hash_in_order().rotate_left(STRIPE_BITS)
    }

    /// The hash as claims are ordered by it.
    #[inline]
    fn hash_in_order(self) -> u32 {
        (self.0 >> 1) as u32
    }

    #[inline]
    pub fn stripe(self) -> Stripe {
        Stripe::of(self.hash())
    }

    #[inline]
    pub fn hold(self) -> Hold {
        if self.0 & 1 == 1 { Hold::Exclusive } else { Hold::Shared }
    }
}

/// The keys of one command. Reused from command to command.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    /// Ascending and each key once after `arrange`.
    /// Invariant: what is to be had before a run begins is taken in this order, so that no two commands refuse each
    /// other in a circle. Two that take keys on their way may: both end, and have these from their beginning then.
    claims: SmallVec<[Claim; 12]>,
}

impl Claims {
    pub fn clear(&mut self) {
        self.claims.clear();
    }

    /// Adds a key by the hash of its name.
    #[inline]
    pub fn add(&mut self, hash: u32, hold: Hold) {
        self.claims.push(Claim::new(hash, hold));
    }

    /// Sorts the keys and keeps the stronger hold of each; to be called after the last `add`.
    #[inline]
    pub fn arrange(&mut self) {
        if self.claims.len() < 2 {
            return;
        }
        self.claims.sort_unstable();
        // The exclusive one of a key's two claims is the larger, so it comes last; it replaces the one before it.
        let mut kept = 0;
        for i in 1..self.claims.len() {
            if self.claims[i].hash() != self.claims[kept].hash() {
                kept += 1;
            }
            self.claims[kept] = self.claims[i];
        }
        self.claims.truncate(kept + 1);
    }

    /// Adds a key to those that are arranged, or makes its hold the stronger one.
    pub fn insert(&mut self, claim: Claim) {
        match self.claims.binary_search_by_key(&claim.hash_in_order(), |other| other.hash_in_order()) {
            Ok(at) => self.claims[at] = self.claims[at].max(claim),
            Err(at) => self.claims.insert(at, claim),
        }
    }

    /// Returns whether they are in the order in which locks are taken.
    pub fn are_arranged(&self) -> bool {
        self.claims.is_sorted_by(|one, next| one < next && one.hash() != next.hash())
    }

    /// The claims on these keys, each exclusively.
    pub fn exclusive(hashes: impl IntoIterator<Item = u32>) -> Claims {
        let mut claims = Claims::default();
        hashes.into_iter().for_each(|hash| claims.add(hash, Hold::Exclusive));
        claims.arrange();
        claims
    }

    /// Returns whether a key is among them, to be held at least so; they are arranged.
    pub fn has(&self, hash: u32, hold: Hold) -> bool {
        let is_there = |hold| self.claims.binary_search(&Claim::new(hash, hold)).is_ok();
        is_there(Hold::Exclusive) || hold == Hold::Shared && is_there(Hold::Shared)
    }

    /// Returns the claims on keys of a stripe; they are arranged.
    pub fn of_stripe(&self, stripe: Stripe) -> &[Claim] {
        let start = self.claims.partition_point(|claim| claim.stripe() < stripe);
        let rest = &self.claims[start..];
        &rest[..rest.partition_point(|claim| claim.stripe() == stripe)]
    }

    /// Returns the claim, if it is a single one, as those of most commands are.
    #[inline]
    pub fn only(&self) -> Option<Claim> {
        if let [claim] = self.claims[..] { Some(claim) } else { None }
    }

    pub fn iter(&self) -> impl Iterator<Item = Claim> {
        self.claims.iter().copied()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Returns the claims stripe by stripe, in the order in which locks are taken.
    #[inline]
    pub fn by_stripe(&self) -> impl Iterator<Item = &[Claim]> {
        self.claims.chunk_by(|one, next| one.stripe() == next.stripe())
    }
}

/// Returns how a stripe is held for these claims on keys of it.
#[inline]
pub fn strongest(claims: &[Claim]) -> Hold {
    let is_exclusive = claims.iter().any(|claim| claim.hold() == Hold::Exclusive);
    if is_exclusive { Hold::Exclusive } else { Hold::Shared }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_claimed_once_and_by_its_stronger_hold() {
        let far = 7 + 5 * STRIPES as u32;
        let mut all = Claims::default();
        for (hash, hold) in [
            (7, Hold::Shared),
            (3, Hold::Exclusive),
            (far, Hold::Shared),
            (7, Hold::Exclusive),
            (3, Hold::Shared),
            (9, Hold::Shared),
        ] {
            all.add(hash, hold);
        }
        all.arrange();
        assert!(all.are_arranged());
        let stripes: Vec<Vec<_>> =
            all.by_stripe().map(|claims| claims.iter().map(|claim| (claim.hash(), claim.hold())).collect()).collect();
        let mut one_by_one = Claims::default();
        for (hash, hold) in [(7, Hold::Shared), (9, Hold::Shared), (far, Hold::Shared), (3, Hold::Exclusive)] {
            one_by_one.insert(Claim::new(hash, hold));
        }
        [Hold::Exclusive, Hold::Shared].iter().for_each(|hold| one_by_one.insert(Claim::new(7, *hold)));
        assert_eq!(one_by_one.claims, all.claims);
        let expected =
            [vec![(3, Hold::Exclusive)], vec![(7, Hold::Exclusive), (far, Hold::Shared)], vec![(9, Hold::Shared)]];
        assert_eq!(stripes, expected);
        assert_eq!(
            (Stripe::of(far), all.of_stripe(Stripe::of(7)).len(), all.of_stripe(Stripe::of(8))),
            (Stripe(7), 2, &[][..])
        );
        assert!(all.has(far, Hold::Shared) && !all.has(far, Hold::Exclusive));
        assert!(all.has(7, Hold::Shared) && all.has(7, Hold::Exclusive) && !all.has(8, Hold::Shared));
        assert_eq!([&[all.claims[1]], &[all.claims[2]]].map(|one| strongest(one)), [Hold::Exclusive, Hold::Shared]);
    }
}
