//! The check of a rank tree against the rows that it counts, and its size.

use super::{ROOT, Ranks, WALK_MAX};
use crate::Result;
use haypile_store::Txn;

impl Ranks {
    /// Checks that the tree counts the elements that exist, comparing each block with its rows; the inner error is the
    /// defect.
    pub fn verify(&self, txn: &mut Txn<'_>, count: u64) -> Result<std::result::Result<(), String>> {
        if !self.is_there() {
            let walked = self.count_rows(txn, b"", None, WALK_MAX)?;
            let is_right = walked == count && count <= WALK_MAX;
            return Ok(if is_right { Ok(()) } else { Err(format!("{walked} of {count} elements, no tree")) });
        }
        self.verify_node(txn, ROOT, None, b"", None, count)
    }

    fn verify_node(
        &self,
        txn: &mut Txn<'_>,
        number: u32,
        level: Option<u8>,
        from: &[u8],
        until: Option<&[u8]>,
        count: u64,
    ) -> Result<std::result::Result<(), String>> {
        let node = self.node(txn, number)?;
        node.expect_level(level)?;
        let (entries, sum) = (node.entries(), node.count_before(node.len()));
        if sum != count || entries[0].key != from || number >= self.next_node {
            return Ok(Err(format!("node {number}: {sum} elements for {count}, from {:02x?}", entries[0].key)));
        }
        for (at, entry) in entries.iter().enumerate() {
            let end = entries.get(at + 1).map_or(until, |next| Some(&next.key[..]));
            if end.is_some_and(|end| *end <= entry.key[..]) {
                return Ok(Err(format!("node {number}: part {at} ends before it begins")));
            }
            let checked = match node.level() {
                0 => match self.count_rows(txn, &entry.key, end, entry.count)? {
                    walked if walked == entry.count => Ok(()),
                    walked => Err(format!("node {number}: block {at} has {walked} elements, not {}", entry.count)),
                },
                level => self.verify_node(txn, entry.child, Some(level - 1), &entry.key, end, entry.count)?,
            };
            if checked.is_err() {
                return Ok(checked);
            }
        }
        Ok(Ok(()))
    }

    /// Returns the numbers of levels and nodes.
    pub fn size(&self, txn: &mut Txn<'_>) -> Result<(u32, u64)> {
        if !self.is_there() {
            return Ok((0, 0));
        }
        let (mut levels, mut nodes, mut below) = (0, 0, vec![ROOT]);
        while !below.is_empty() {
            levels += 1;
            nodes += below.len() as u64;
            let mut next = Vec::new();
            for number in below {
                let node = self.node(txn, number)?;
                if node.level() > 0 {
                    next.extend((0..node.len()).map(|at| node.child(at)));
                }
            }
            below = next;
        }
        Ok((levels, nodes))
    }
}
