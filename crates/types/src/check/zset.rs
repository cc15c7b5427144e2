//! Sorted sets: docs/format/zset.md. Each member has two rows, one found by the member and one in order, and the latter
//! are counted by a tree once they are many.

use super::collection::{self, Distinct, check_count, hashed};
use super::objects::{Look, ObjectRows};
use super::place::{Report, Shown};
use super::tree::{Counting, Node, Part, Rules, Tree};
use crate::element::{HASH_BYTES, RESERVED_HASH};
use crate::packed::Packed;
use crate::value::encoding::{MASK, ZSET_LISTPACK, ZSET_SKIPLIST};
use haypile_store::base::BaseError;
use haypile_store::check::Agreement;
use haypile_store::row::element_hash_of;

/// Bytes of the head's own part: the next node's number; 0: there is no tree.
const OWN_BYTES: usize = 4;

/// The number of the root node.
const ROOT: u32 = 0;

/// The rules for nodes. The number of parts of a node, and of elements of a block, is for speed only: the format bounds
/// neither.
static RULES: Rules = Rules { parse: parse_node, parts: (usize::MAX, 1), part: |_, _| None };

/// A score as bytes that sort as scores do.
type Score = [u8; 8];

const MINUS_ZERO: Score = (!(1u64 << 63)).to_be_bytes();
const ZERO: Score = (1u64 << 63).to_be_bytes();

/// Returns where a score stands in the order, and the value of its row there: both zeros have one place, and the value
/// of the row keeps the sign of minus zero.
fn place(score: Score) -> (Score, &'static [u8]) {
    if score == MINUS_ZERO { (ZERO, &[1]) } else { (score, &[]) }
}

fn number(score: Score) -> f64 {
    let ordered = u64::from_be_bytes(score);
    f64::from_bits(if ordered >> 63 == 0 { !ordered } else { ordered ^ 1 << 63 })
}

fn is_listpack(encoding: u8) -> bool {
    encoding & MASK == ZSET_LISTPACK
}

pub(super) fn check_packed(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    let mut members = Distinct::default();
    let mut last = None;
    let is_listpack = Packed::parse(payload).is_ok_and(|packed| is_listpack(packed.encoding));
    collection::check_packed(payload, ZSET_SKIPLIST, report, |reader| {
        let member = reader.string()?;
        let score = reader.fixed::<8>()?;
        if number(score).is_nan() {
            return Ok(Err(format!("the score of {} is no number", Shown(member))));
        }
        if is_listpack && score == MINUS_ZERO {
            return Ok(Err(format!("the score of {} is minus zero, which a listpack does not keep", Shown(member))));
        }
        let at = (place(score).0, member);
        if last.replace(at).is_some_and(|last| last > at) {
            return Ok(Err(format!("{} is not where its score belongs", Shown(member))));
        }
        Ok(members.check(member))
    });
}

pub(super) fn check_head(payload: &[u8], report: &mut Report<'_, '_, '_>) {
    collection::check_head(payload, OWN_BYTES, ZSET_SKIPLIST, report);
}

/// Parses `level: u8 | n: u16 | counts: n of u32 at level 0, else u64 | children: n of u32, above level 0 | ends: n of
/// u16 | keys`.
fn parse_node(row: &[u8]) -> Option<Node> {
    let (&[level, high, low], rest) = row.split_first_chunk::<3>()?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (count_bytes, child_bytes) = if level == 0 { (4, 0) } else { (8, 4) };
    let (counts, rest) = rest.split_at_checked(length * count_bytes)?;
    let (children, rest) = rest.split_at_checked(length * child_bytes)?;
    let (ends, keys) = rest.split_at_checked(length * 2)?;
    let be = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let mut parts = Vec::with_capacity(length);
    let mut from = 0;
    for at in 0..length {
        let until = be(&ends[at * 2..][..2]) as usize;
        parts.push(Part {
            key: keys.get(from..until)?.to_vec(),
            count: be(&counts[at * count_bytes..][..count_bytes]),
            link: be(&children[at * child_bytes..][..child_bytes]) as u32,
        });
        from = until;
    }
    (from == keys.len()).then_some(Node { level, parts })
}

pub(super) fn check_rows(
    payload: &[u8],
    rows: &mut ObjectRows<'_, '_>,
    report: &mut Report<'_, '_, '_>,
) -> Result<(), BaseError> {
    let Some((head, own)) = collection::head(payload, OWN_BYTES) else { return Ok(()) };
    let next_node = own.try_into().map_or(0, u32::from_be_bytes);
    let (look, hash_seed) = (rows.look(), rows.hash_seed);
    let (mut by_member, mut by_score) = (Agreement::default(), Agreement::default());
    let (mut members, mut nodes, mut scores) = (0, 0, 0);
    while let Some((element, score)) = rows.data.next()? {
        if let Some(number) = node_number(element) {
            nodes += 1;
            if number >= next_node {
                report.add(format_args!("there is a row of node {number}, the next new one is {next_node}"));
            }
            continue;
        }
        let Some(member) = hashed(element, hash_seed, report) else { continue };
        members += 1;
        match <Score>::try_from(score) {
            Ok(score) if !number(score).is_nan() => {
                if score == MINUS_ZERO && is_listpack(head.encoding) {
                    let member = Shown(member);
                    report.add(format_args!("the score of {member} is minus zero, which a listpack does not keep"));
                }
                let (place, sign) = place(score);
                by_member.add(&[&place, sign, member]);
            }
            _ => report.add(format_args!("the score of member {} is no number: {}", Shown(member), Shown(score))),
        }
    }
    check_count(head.count, members, report);
    let node = |number: u32| look.data(&[RESERVED_HASH.to_be_bytes(), number.to_be_bytes()].concat());
    let mut counting = match next_node {
        0 => None,
        _ => Some(Counting::new(Tree::new(ROOT, head.count, &node, &RULES, report)?, report)?),
    };
    while let Some((element, sign)) = rows.score.next()? {
        let Some((place, member)) = element.split_first_chunk::<8>() else {
            report.add(format_args!("a score's row has a key of {} bytes behind the object", element.len()));
            continue;
        };
        scores += 1;
        by_score.add(&[place, sign, member]);
        if let Some(counting) = &mut counting {
            counting.on_element(element, report)?;
        }
    }
    match counting {
        Some(counting) => counting.finish(nodes, report)?,
        None if nodes > 0 => report.add(format_args!("there are rows of {nodes} nodes, and it has no tree")),
        None => {}
    }
    if by_member != by_score {
        report.add(format_args!("there are {members} members and {scores} rows of scores, and they do not agree"));
        explain(look, hash_seed, report)?;
    }
    Ok(())
}

/// Returns the number of a node's row.
fn node_number(element: &[u8]) -> Option<u32> {
    let (hash, number) = element.split_first_chunk::<HASH_BYTES>()?;
    if u32::from_be_bytes(*hash) == RESERVED_HASH { number.try_into().ok().map(u32::from_be_bytes) } else { None }
}

/// Reports which members lack their score's row, and which rows of scores their member.
fn explain(look: Look<'_>, hash_seed: Option<u64>, report: &mut Report<'_, '_, '_>) -> Result<(), BaseError> {
    look.each_data(|element, score| {
        let Ok(score) = <Score>::try_from(score) else { return Ok(()) };
        let Some(member) = element.get(HASH_BYTES..).filter(|_| node_number(element).is_none()) else { return Ok(()) };
        let (place, sign) = place(score);
        match look.score(&[&place, member].concat())? {
            None => report.add(format_args!("member {} has no row at its score {}", Shown(member), number(score))),
            Some(found) if found != sign => {
                report.add(format_args!("the sign of the zero of member {} is not that of its score", Shown(member)));
            }
            Some(_) => {}
        }
        Ok(())
    })?;
    look.each_score(|element, _| {
        let Some((score, member)) = element.split_first_chunk::<8>() else { return Ok(()) };
        let Some(hash) = hash_seed.map(|seed| element_hash_of(member, seed)) else { return Ok(()) };
        let stated = look.data(&[&hash.to_be_bytes(), member].concat())?;
        match stated.map(|stated| <Score>::try_from(&stated[..])) {
            None => report.add(format_args!(
                "there is a row at score {} for {}, which is no member",
                number(*score),
                Shown(member)
            )),
            Some(Ok(stated)) if place(stated).0 != *score => {
                let (at, stated) = (number(*score), number(stated));
                report.add(format_args!(
                    "there is a row at score {at} for member {}, whose score is {stated}",
                    Shown(member)
                ));
            }
            Some(_) => {}
        }
        Ok(())
    })
}
