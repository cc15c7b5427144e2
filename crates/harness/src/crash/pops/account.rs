//! The place of every element of one kind after a kill: with a consumer or in a list, once.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// The known state of the elements of one kind.
#[derive(Default)]
pub struct Account {
    /// Elements acknowledged to their producers, and not gone before.
    pub known: BTreeSet<String>,
    /// Pushes without a reply, each of which happened as a whole or not at all.
    pub unanswered: Vec<Vec<String>>,
    /// The elements of each source.
    pub sources: Vec<Vec<String>>,
    pub consumers: Vec<Received>,
    /// Whether consumers have elements moved to lists of their own.
    pub moves: bool,
}

#[derive(Default)]
pub struct Received {
    /// The elements that replies brought.
    pub elements: Vec<String>,
    /// The elements of the consumer's own list.
    pub own: Vec<String>,
    /// The most elements of the pop without a reply.
    pub in_flight: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// Elements in the sources.
    pub left: BTreeSet<String>,
    pub received: usize,
    /// The number of elements that are gone with a lost reply.
    pub underway: usize,
}

impl Account {
    pub fn settle(mut self) -> Result<Settled> {
        let (mut found, mut received) = (BTreeSet::new(), BTreeSet::new());
        let mut seen_once = |element: &String| {
            ensure!(found.insert(element.clone()), "{element} is there twice");
            Ok(())
        };
        self.sources.iter().flatten().try_for_each(&mut seen_once)?;
        self.consumers.iter().flat_map(|consumer| &consumer.own).try_for_each(&mut seen_once)?;
        for consumer in &self.consumers {
            let own: BTreeSet<&String> = consumer.own.iter().collect();
            for element in &consumer.elements {
                ensure!(received.insert(element.clone()), "{element} was received twice");
                if self.moves {
                    ensure!(own.contains(element), "{element} was received, and is not in its consumer's list");
                } else {
                    ensure!(!found.contains(element), "{element} was received, and is still there");
                }
            }
        }
        for push in &self.unanswered {
            // A push without a reply has happened if one of its elements is found.
            if push.iter().any(|element| found.contains(element) || received.contains(element)) {
                self.known.extend(push.iter().cloned());
            }
        }
        for element in found.iter().chain(&received) {
            ensure!(self.known.contains(element), "{element} turned up: nobody pushed it, or it was gone before");
        }
        let missing: Vec<_> = self.known.iter().filter(|e| !found.contains(*e) && !received.contains(*e)).collect();
        // No moved element may be missing: a move without a reply left its element in the source or moved it.
        let missing_max = if self.moves { 0 } else { self.consumers.iter().map(|consumer| consumer.in_flight).sum() };
        ensure!(
            missing.len() <= missing_max,
            "{} elements are lost, and only {missing_max} can have been on the way: {missing:?}",
            missing.len()
        );
        let left = self.sources.into_iter().flatten().collect();
        Ok(Settled { left, received: received.len(), underway: missing.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    /// Settles an account in which `a b c` are known and `d e` are one push without a reply; `received` and `own` are
    /// one consumer's. Returns how many elements were on the way.
    fn settle(moves: bool, source: &str, received: &str, own: &str, in_flight: usize) -> Option<usize> {
        let consumer = Received { elements: names(received), own: names(own), in_flight };
        let account = Account {
            known: names("a b c").into_iter().collect(),
            unanswered: vec![names("d e")],
            sources: vec![names(source)],
            consumers: vec![consumer],
            moves,
        };
        account.settle().ok().map(|settled| settled.underway)
    }

    #[test]
    fn what_is_popped_is_with_one_consumer_or_there() {
        let pops = |source, received, in_flight| settle(false, source, received, "", in_flight);
        assert_eq!(pops("b c", "a", 0), Some(0));
        assert_eq!(pops("b c d e", "a", 0), Some(0), "a push without a reply may have happened");
        assert_eq!(pops("b c d", "a", 0), None, "half a push");
        assert_eq!(pops("b c d", "a", 1), Some(1), "the other half may have been on the way");
        assert_eq!(pops("c", "a", 0), None, "lost");
        assert_eq!(pops("c", "a", 1), Some(1), "on the way");
        assert_eq!(pops("", "a", 1), None, "two of which one can have been on the way");
        assert_eq!(pops("a b c", "a", 1), None, "received and still there");
        assert_eq!(pops("b c", "a a", 1), None, "received twice");
        assert_eq!(pops("b c c", "a", 1), None, "there twice");
        assert_eq!(pops("b c x", "a", 1), None, "a ghost");
        assert_eq!(pops("b c", "a x", 1), None, "a ghost is received");
    }

    #[test]
    fn what_is_moved_is_in_one_list() {
        let moves = |source, received, own| settle(true, source, received, own, 1);
        assert_eq!(moves("b c", "a", "a"), Some(0));
        assert_eq!(moves("c", "a", "a b"), Some(0), "a move without a reply");
        assert_eq!(moves("c", "a", "a"), None, "gone on the way");
        assert_eq!(moves("b c", "a", ""), None, "a move that had a reply is undone");
        assert_eq!(moves("a b c", "a", "a"), None, "in both");
    }
}
