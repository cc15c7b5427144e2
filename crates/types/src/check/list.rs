//! Lists: docs/format/list.md.

use super::collection::{self, check_count};
use super::objects::ObjectRows;
use super::place::Report;
use super::tree::{Counting, Node, Part, Rules, Tree};
use crate::element::Head;
use crate::listpack;
use crate::value::encoding::{LIST_LISTPACK, LIST_QUICKLIST};
use haypile_store::base::BaseError;

/// Bytes of the head's own part: bytes of a listpack, first and last position, root and next node.
const OWN_BYTES: usize = 28;

/// Positions between neighbours of a dense run.
const STEP: u64 = 1 << 16;

/// The lowest position of an element.
const POSITIONS_START: u64 = 1 << 32;

/// Elements lie below, the nodes of the directory from here on.
const POSITIONS_END: u64 = 0xffff_ffff << 32;

/// Kinds of a leaf's part: its elements are `STEP` apart, or lie anywhere.
const DENSE: u32 = 0;
const LOOSE: u32 = 1;

/// Elements of a loose segment at most, and of two neighbours together at least.
const LOOSE_MAX: u64 = 128;
const NEIGHBOURS_MIN: u64 = 65;

static RULES: Rules = Rules { parse: parse_node, parts: (64, 2), part: check_segment };

struct Own {
    listpack_bytes: u32,
    first: u64,
    last: u64,
    /// 0: there is no directory, and the list is dense.
    root: u32,
    next: u32,
}

pub(super) fn check_packed(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_packed(payload, LIST_QUICKLIST, report, |reader| reader.string().map(|_| Ok(())));
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, OWN_BYTES, LIST_QUICKLIST, report);
    let Some((head, own)) = parse(payload) else { return };
    if own.first > own.last || own.first < POSITIONS_START || own.last >= POSITIONS_END {
        report.add(format_args!("its positions go from {:016x} to {:016x}", own.first, own.last));
    } else if own.root == 0 && own.last - own.first != head.count.saturating_sub(1).saturating_mul(STEP) {
        let what = format!(
            "it has {} elements and no directory, and lies from {:016x} to {:016x}",
            head.count, own.first, own.last
        );
        report.add(what);
    }
    if head.encoding != LIST_LISTPACK && own.listpack_bytes != 0 {
        report.add(format_args!("it states {} bytes of a listpack, and is none", own.listpack_bytes));
    }
    if own.root == 0 && own.next != 0 {
        report.add(format_args!("it has no directory, and node {} is to be the next one", own.next));
    }
    if own.root >= own.next && own.root > 0 {
        report.add(format_args!("the root of its directory is node {}, the next new one is {}", own.root, own.next));
    }
}

fn parse(payload: &[u8]) -> Option<(Head, Own)> {
    let (head, own) = collection::head(payload, OWN_BYTES)?;
    let u32_at = |at: usize| own[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    let u64_at = |at: usize| own[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    Some((
        head,
        Own { listpack_bytes: u32_at(0), first: u64_at(4), last: u64_at(12), root: u32_at(20), next: u32_at(24) },
    ))
}

/// Parses `level: u8`, then `start: u64 | count: u64 | link: u32` for each part.
fn parse_node(row: &[u8]) -> Option<Node> {
    let (level, parts) = row.split_first()?;
    let (parts, rest) = parts.as_chunks::<20>();
    let part = |bytes: &[u8; 20]| Part {
        key: bytes[..8].to_vec(),
        count: u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes")),
        link: u32::from_be_bytes(bytes[16..].try_into().expect("four bytes")),
    };
    let node = Node { level: *level, parts: parts.iter().map(part).collect() };
    let is_known = |part: &Part| part.count > 0 && (*level > 0 || part.link <= LOOSE);
    (rest.is_empty() && node.parts.iter().all(is_known)).then_some(node)
}

/// Checks a segment against the one before it; returns the defect.
fn check_segment(before: Option<&Part>, part: &Part) -> Option<String> {
    if part.link == LOOSE && part.count > LOOSE_MAX {
        return Some(format!("is loose and has {} elements", part.count));
    }
    let before = before?;
    if before.count + part.count < NEIGHBOURS_MIN {
        return Some(format!("and the one before have {} elements together", before.count + part.count));
    }
    let start = |part: &Part| part.key[..].try_into().map_or(0, u64::from_be_bytes);
    let goes_on = start(before).wrapping_add(before.count.wrapping_mul(STEP)) == start(part);
    (goes_on && before.link == DENSE && part.link == DENSE).then(|| "goes on where the one before ends".into())
}

pub(super) fn check_rows(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    let Some((head, own)) = parse(payload) else { return Ok(()) };
    let look = rows.look();
    let node = |number: u32| look.data(&(POSITIONS_END + u64::from(number)).to_be_bytes());
    let mut counting = match own.root {
        0 => None,
        root => Some(Counting::new(Tree::new(root, head.count, &node, &RULES, report)?, report)?),
    };
    let whole = counting.as_ref().and_then(Counting::first).filter(|part| part.count == head.count);
    if whole.is_some_and(|part| part.link == DENSE) {
        report.add("it has a directory that only says that it is dense");
    }
    let (mut count, mut nodes, mut listpack_bytes) = (0, 0, listpack::EMPTY_BYTES);
    let (mut first, mut last) = (None, None);
    while let Some((element, value)) = rows.data.next()? {
        let Ok(position) = element.try_into().map(u64::from_be_bytes) else {
            report.add(format_args!("an element's row has a key of {} bytes behind the object", element.len()));
            continue;
        };
        if position >= POSITIONS_END {
            nodes += 1;
            if position - POSITIONS_END >= u64::from(own.next) {
                report.add(format_args!(
                    "there is a row of node {}, the next new one is {}",
                    position - POSITIONS_END,
                    own.next
                ));
            }
            continue;
        }
        // The row's position: behind the one before, or at the beginning of its run; `None` where any position is
        // right.
        let right = match &mut counting {
            None if count == 0 => Some(own.first),
            None => last.map(|last: u64| last.wrapping_add(STEP)),
            Some(counting) => match counting.on_element(element, report)? {
                Some((part, 0)) if part.link == DENSE => part.key[..].try_into().ok().map(u64::from_be_bytes),
                Some((part, _)) if part.link == DENSE => last.map(|last| last.wrapping_add(STEP)),
                _ => None,
            },
        };
        if let Some(right) = right.filter(|right| *right != position) {
            report.add(format_args!("an element lies at position {position:016x}, where {right:016x} comes next"));
        }
        first = first.or(Some(position));
        last = Some(position);
        count += 1;
        listpack_bytes += listpack::entry_bytes(value);
    }
    if head.encoding == LIST_LISTPACK && own.listpack_bytes as usize != listpack_bytes {
        report.add(format_args!(
            "it states {} bytes of a listpack, which would take {listpack_bytes}",
            own.listpack_bytes
        ));
    }
    check_count(head.count, count, report);
    for (name, stated, found) in [("first", own.first, first), ("last", own.last, last)] {
        if let Some(found) = found.filter(|found| *found != stated) {
            report.add(format_args!("its {name} position is {stated:016x}, its {name} element lies at {found:016x}"));
        }
    }
    match counting {
        Some(counting) => counting.finish(nodes, report)?,
        None if nodes > 0 => report.add(format_args!("there are rows of {nodes} nodes, and it has no directory")),
        None => {}
    }
    rows.expect_no_scores(report)
}
