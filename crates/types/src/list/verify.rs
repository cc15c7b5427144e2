//! Checks that a list is as its format says: for tests, and for tools that check a data directory.

use super::directory::{Directory, Kind, Segment};
use super::rows::{ListRows, POSITIONS_END, STEP, position_of};
use super::{Form, List};
use crate::value::encoding;
use crate::{Result, listpack};
use haypile_store::row::{self, Family};
use haypile_store::{Direction, Key, Txn};
use std::ops::ControlFlow;

impl List {
    /// Returns a defect in words; `None` if there is none. Reads the whole list.
    pub fn defect(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<String>> {
        match &mut self.form {
            Form::Packed(packed) if packed.len() == 0 => Ok(Some("it has no elements".into())),
            Form::Packed(packed) => Ok(packed.has_more().then(|| "bytes follow its last element".into())),
            Form::Rows(rows) => rows.defect(txn, key),
        }
    }
}

impl ListRows {
    fn defect(&mut self, txn: &mut Txn<'_>, key: &Key<'_>) -> Result<Option<String>> {
        let (mut segments, nodes) = match &mut self.directory {
            None => (vec![Segment { start: self.first, count: self.len(), kind: Kind::Dense }], Vec::new()),
            Some(directory) => match directory.segments(txn)? {
                Ok(found) => found,
                Err(defect) => return Ok(Some(defect)),
            },
        };
        if self.directory.is_some() && matches!(segments[..], [Segment { kind: Kind::Dense, .. }]) {
            return Ok(Some("its directory says that it is dense".into()));
        }
        segments.reverse();
        let mut walk = Walk { segments, nodes, current: None, last: None, count: 0, listpack_bytes: 0 };
        let (from, until) = row::object_range(Family::Data, key.space, self.head.object.slot, self.head.object.id);
        let mut defect = None;
        txn.visit(&from, &until, Direction::Forward, usize::MAX, |row, element| {
            defect = walk.step(position_of(row), element, self.first).err();
            if defect.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let expected_bytes = match self.head.encoding {
            encoding::LIST_LISTPACK => listpack::EMPTY_BYTES + walk.listpack_bytes,
            _ => 0,
        };
        Ok(defect.or_else(|| {
            if walk.count != self.len() {
                Some(format!("it has {} elements, not {}", walk.count, self.len()))
            } else if walk.last != Some(self.last) {
                Some(format!("its last element is not at {:x}", self.last))
            } else if !walk.segments.is_empty() || !walk.nodes.is_empty() {
                Some("rows are missing".into())
            } else if self.listpack_bytes as usize != expected_bytes {
                Some(format!("as a listpack it has {expected_bytes} bytes, not {}", self.listpack_bytes))
            } else {
                None
            }
        }))
    }
}

/// A walk over all rows of a list.
struct Walk {
    /// The segments ahead, the next one at the end.
    segments: Vec<Segment>,
    /// The numbers of the nodes ahead, in order.
    nodes: Vec<u32>,
    /// The segment that the walk is in, and how many of its elements are still to come.
    current: Option<(Segment, u64)>,
    last: Option<u64>,
    count: u64,
    listpack_bytes: usize,
}

impl Walk {
    fn step(&mut self, position: u64, element: &[u8], first: u64) -> std::result::Result<(), String> {
        if position >= POSITIONS_END {
            let number = (position - POSITIONS_END) as u32;
            return match self.nodes.first() {
                Some(expected) if *expected == number => {
                    self.nodes.remove(0);
                    Ok(())
                }
                _ => Err(format!("nothing leads to its node {number}")),
            };
        }
        if self.current.is_none_or(|(_, left)| left == 0) {
            let next = self.segments.pop().ok_or_else(|| format!("an element at {position:x} is in no segment"))?;
            if self.last.is_some_and(|last| last >= next.start) {
                return Err(format!("the segment at {:x} begins inside of the one before it", next.start));
            }
            self.current = Some((next, next.count));
        }
        let Some((segment, left)) = &mut self.current else { return Err("it has no segments".into()) };
        let is_right = match segment.kind {
            Kind::Dense => position == segment.start + (segment.count - *left) * STEP,
            Kind::Loose => position >= segment.start,
        };
        if !is_right || self.count == 0 && position != first {
            return Err(format!("an element at {position:x} is not where it should be"));
        }
        *left -= 1;
        self.last = Some(position);
        self.count += 1;
        self.listpack_bytes += listpack::entry_bytes(element);
        Ok(())
    }
}

impl Directory {
    /// Returns all segments in order, and all numbers of nodes in theirs; or a defect of the nodes.
    fn segments(&mut self, txn: &mut Txn<'_>) -> Result<std::result::Result<(Vec<Segment>, Vec<u32>), String>> {
        let (mut segments, mut numbers) = (Vec::new(), Vec::new());
        // Numbers of nodes, with their parent's entry: level, start, count.
        let mut rest = vec![(self.numbers().0, None)];
        while let Some((number, expected)) = rest.pop() {
            let (level, entries) = self.look(txn, number)?;
            numbers.push(number);
            let (start, count) = (entries.first().map(|e| e.0), entries.iter().map(|e| e.1).sum::<u64>());
            let is_root = expected.is_none();
            if expected.is_some_and(|said| said != (level, start, count)) {
                return Ok(Err(format!("its node {number} is not what the one above says")));
            }
            if entries.len() < if is_root && level == 0 { 1 } else { 2 } || number >= self.numbers().1 {
                return Ok(Err(format!("its node {number} should not be there")));
            }
            if level > 0 {
                let children = entries.iter().rev();
                rest.extend(children.map(|&(start, count, link)| (link, Some((level - 1, Some(start), count)))));
                continue;
            }
            segments.extend(entries.into_iter().map(|(start, count, link)| Segment {
                start,
                count,
                kind: if link == Kind::Dense as u32 { Kind::Dense } else { Kind::Loose },
            }));
        }
        numbers.sort_unstable();
        let short = segments.windows(2).find(|pair| pair[0].count + pair[1].count <= super::directory::JOINED_MAX);
        let long = segments.iter().find(|s| s.kind == Kind::Loose && s.count > super::directory::LOOSE_MAX);
        Ok(match (short, long) {
            (Some(pair), _) => {
                Err(format!("the segments at {:x} and {:x} should be one", pair[0].start, pair[1].start))
            }
            (_, Some(segment)) => Err(format!("the segment at {:x} is too long", segment.start)),
            _ => Ok((segments, numbers)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Rows;
    use crate::key::Object;
    use crate::list::directory::LOOSE_MAX;
    use haypile_store::{ObjectId, Slot, Space};

    /// Checks a directory of one segment.
    fn check(count: u64, kind: Kind) {
        let rows = Rows { space: Space(0), object: Object { id: ObjectId(1), slot: Slot(0) } };
        Directory::of(rows, Segment { start: 1 << 40, count, kind }).assert_sound();
    }

    #[test]
    #[should_panic(expected = "loose segments have at most 128 elements")]
    fn a_long_loose_segment_is_noticed() {
        check(LOOSE_MAX + 1, Kind::Dense);
        check(LOOSE_MAX, Kind::Loose);
        check(LOOSE_MAX + 1, Kind::Loose);
    }

    #[test]
    #[should_panic(expected = "segments and nodes count some element")]
    fn a_segment_without_elements_is_noticed() {
        check(0, Kind::Dense);
    }
}
