//! The keys that runs hold one by one, of stripes that are not held as a whole.

use crate::keys::claims::{Claim, Hold, Stripe};
use crate::sync::{Mutex, MutexGuard, lock};
use smallvec::SmallVec;
use std::collections::HashMap;

const SHARDS: usize = 64;

/// All keys that are held one by one.
pub struct ByKey {
    shards: Box<[Mutex<Shard>]>,
}

/// The keys of some stripes. Only stripes with such a key have an entry.
#[derive(Default)]
struct Shard(HashMap<Stripe, SmallVec<[Held; 1]>>);

/// A key that is held, by the hash of its name. A run may hold a million.
struct Held {
    hash: u32,
    /// The number of readers, or `WRITER`.
    holders: u32,
}

const WRITER: u32 = u32::MAX;

/// The keys of a stripe that are held one by one, which nobody changes meanwhile.
pub struct OfStripe<'a> {
    shard: MutexGuard<'a, Shard>,
    stripe: Stripe,
}

impl Default for ByKey {
    fn default() -> Self {
        ByKey { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl ByKey {
    /// Waits while another thread looks at the same shard, which takes about a microsecond.
    pub fn of(&self, stripe: Stripe) -> OfStripe<'_> {
        OfStripe { shard: lock(&self.shards[stripe.number() % SHARDS]), stripe }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(shard).0.is_empty())
    }
}

impl OfStripe<'_> {
    /// Returns the first of the claims that a holder does not let in.
    pub fn refused(&self, claims: &[Claim]) -> Option<Claim> {
        let held = self.shard.0.get(&self.stripe)?;
        let is_refused = |claim: &Claim| {
            let mut of_key = held.iter().filter(|held| held.hash == claim.hash());
            of_key.any(|held| claim.hold() == Hold::Exclusive || held.holders == WRITER)
        };
        claims.iter().copied().find(is_refused)
    }

    /// Adds a holder of each key.
    pub fn add(&mut self, claims: &[Claim]) {
        debug_assert!(self.refused(claims).is_none(), "Invariant: a writer excludes all others");
        let held = self.shard.0.entry(self.stripe).or_default();
        for claim in claims {
            match held.iter_mut().find(|held| held.hash == claim.hash()) {
                Some(held) => {
                    assert!(held.holders < WRITER - 1, "a writer would have been refused");
                    held.holders += 1;
                }
                None => {
                    let holders = if claim.hold() == Hold::Exclusive { WRITER } else { 1 };
                    held.push(Held { hash: claim.hash(), holders });
                }
            }
        }
    }

    /// Takes a holder of each key away; returns whether no key of the stripe is held one by one any more.
    pub fn remove(&mut self, claims: &[Claim]) -> bool {
        let held = self.shard.0.get_mut(&self.stripe).expect("a key that is held is given back once");
        for claim in claims {
            let at = held.iter().position(|held| held.hash == claim.hash()).expect("a key is given back once");
            match held[at].holders {
                0 => unreachable!("a key that nobody holds has no entry"),
                1 | WRITER => _ = held.swap_remove(at),
                _ => held[at].holders -= 1,
            }
        }
        let is_empty = held.is_empty();
        if is_empty {
            self.shard.0.remove(&self.stripe);
        }
        is_empty
    }
}
