//! The network between members: messages travel as bytes, are lost, delayed and doubled, and connections cut.

use crate::group::Terms;
use haypile_log::testing::Random;
use haypile_raft::Envelope;
use std::collections::BTreeMap;

pub struct Network {
    /// The messages on their way, by their arrival.
    on_way: BTreeMap<(u64, u64), (usize, Terms, Vec<u8>)>,
    sent: u64,
    pub now: u64,
    /// From, to.
    cut: Vec<Vec<bool>>,
    /// Of a hundred messages, so many are lost, and so many late.
    lost: u64,
    late: u64,
}

impl Network {
    pub fn new(members: usize, random: &mut Random) -> Network {
        let (lost, late) = (random.below(8), random.below(20));
        let cut = vec![vec![false; members]; members];
        Network { on_way: BTreeMap::new(), sent: 0, now: 0, cut, lost, late }
    }

    /// Makes the network a good one.
    pub fn heal(&mut self) {
        self.mend();
        (self.lost, self.late) = (0, 0);
    }

    /// Ends all cuts.
    pub fn mend(&mut self) {
        self.cut.iter_mut().for_each(|row| row.fill(false));
    }

    /// Cuts one direction between two members, or both; or a member off from all others.
    pub fn cut(&mut self, random: &mut Random) {
        let members = self.cut.len();
        let (from, to) = (random.below(members as u64) as usize, random.below(members as u64) as usize);
        match random.below(3) {
            0 => self.cut[from][to] = true,
            1 => (self.cut[from][to], self.cut[to][from]) = (true, true),
            _ => (0..members).for_each(|other| (self.cut[from][other], self.cut[other][from]) = (true, true)),
        }
    }

    /// Sends a message of a member that has these terms.
    pub fn send(&mut self, envelope: &Envelope, terms: Terms, random: &mut Random) {
        let (from, to) = (envelope.from() as usize - 1, envelope.to() as usize - 1);
        if self.cut[from][to] || random.below(100) < self.lost {
            return;
        }
        let mut bytes = Vec::new();
        envelope.encode(&mut bytes);
        let copies = if random.below(100) < self.lost { 2 } else { 1 };
        for _ in 0..copies {
            let late = if random.below(100) < self.late { random.below(200) } else { 0 };
            self.sent += 1;
            self.on_way.insert((self.now + 1 + random.below(4) + late, self.sent), (to, terms, bytes.clone()));
        }
    }

    /// Loses all messages of a member that are on their way.
    pub fn forget(&mut self, from: u64) {
        let is_other = |bytes: &[u8]| {
            Envelope::decode(bytes).is_ok_and(|read| read.is_some_and(|(envelope, _)| envelope.from() != from))
        };
        self.on_way.retain(|_, (.., bytes)| is_other(bytes));
    }

    /// Returns the next message that has arrived, for whom it is, and the terms of its sender.
    pub fn deliver(&mut self) -> Option<(usize, Terms, Envelope)> {
        let first = self.on_way.first_entry().filter(|first| first.key().0 <= self.now)?;
        let (to, terms, bytes) = first.remove();
        let (envelope, length) = Envelope::decode(&bytes).expect("it was encoded").expect("it is whole");
        assert_eq!(length, bytes.len());
        let mut again = Vec::new();
        envelope.encode(&mut again);
        assert!(again == bytes, "a message is decoded as it was encoded");
        Some((to, terms, envelope))
    }
}
