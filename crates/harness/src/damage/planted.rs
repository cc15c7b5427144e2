//! How often each kind of damage was drawn and planted. A kind that never finds its file has tested nothing.

use std::collections::BTreeMap;

use super::plant::Kind;
use crate::random::Random;

/// The draws of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    drawn: u64,
    planted: u64,
}

/// The counts of a list of kinds.
pub struct Planted {
    /// The kinds, those that come more often several times.
    kinds: Vec<Kind>,
    counts: BTreeMap<Kind, Count>,
}

impl Planted {
    pub fn new(kinds: impl Iterator<Item = Kind>) -> Planted {
        let kinds: Vec<Kind> = kinds.collect();
        let counts = kinds.iter().map(|kind| (*kind, Count::default())).collect();
        Planted { kinds, counts }
    }

    /// Draws a kind: every other time one that was never planted, while there are such.
    pub fn draw(&self, random: &mut Random) -> Kind {
        let missing = self.missing();
        if missing.is_empty() || random.percent(50) { *random.pick(&self.kinds) } else { *random.pick(&missing) }
    }

    /// Counts a draw, and whether its file was there.
    pub fn note(&mut self, kind: Kind, was_planted: bool) {
        let count = self.counts.entry(kind).or_default();
        count.drawn += 1;
        count.planted += u64::from(was_planted);
    }

    /// Returns the kinds of the list that were never planted, each once.
    pub fn missing(&self) -> Vec<Kind> {
        let never = self.counts.iter().filter(|(_, count)| count.planted == 0);
        never.map(|(kind, _)| *kind).collect()
    }

    /// Returns all counts as text, each kind with how often it was planted; where its file was missing now and then,
    /// with how often it was drawn.
    pub fn text(&self) -> String {
        let one = |(kind, Count { drawn, planted }): (&Kind, &Count)| match planted == drawn {
            true => format!("{kind:?} {planted}"),
            false => format!("{kind:?} {planted} of {drawn}"),
        };
        self.counts.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant::Target;
    use super::*;

    #[test]
    fn a_kind_that_was_never_planted_is_missing_and_comes_soon() {
        let [rare, usual] = [Kind::Delete(Target::Table), Kind::Flip(Target::Head)];
        let mut planted = Planted::new([vec![rare], vec![usual; 1000]].concat().into_iter());
        assert_eq!(planted.missing().len(), 2);
        planted.note(usual, true);
        planted.note(rare, false);
        assert_eq!(planted.missing(), [rare]);
        assert_eq!(planted.text(), "Delete(Table) 0 of 1, Flip(Head) 1");
        let mut random = Random::new(1);
        assert!((0..100).filter(|_| planted.draw(&mut random) == rare).count() > 30);
        planted.note(rare, true);
        assert!(planted.missing().is_empty());
        assert_eq!(planted.text(), "Delete(Table) 1 of 2, Flip(Head) 1");
    }
}
