//! The checks of what a server that knows no DUMP answers, for the fuzz target `elements` and a seeded test.

use super::elements::{Elements, after, head_of, put_elements, put_stream};
use super::replies::{is_unknown, time_ms};
use haypile_rdb::testing::Piece;
use haypile_rdb::{Event, Key, Kind, Sink, VERSION, Writer, read_file};
use haypile_resp::Reply;
use haypile_resp::decode::decode;

/// The types of values, without that of strings.
const KINDS: [Kind; 5] = [Kind::List, Kind::Set, Kind::Zset, Kind::Hash, Kind::Stream];

/// Takes `data` as a page of a value and what is known beside it: as replies, and as lines that replies are made of.
///
/// # Panics
/// A file has something else than the replies say, or cannot be read.
pub fn check_replies(data: &[u8]) {
    let Some(([kind, cut], data)) = data.split_first_chunk() else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    check_value(kind, || made(kind, data), usize::from(*cut));
    let replies = || {
        let (page, bytes) = decode(data).ok().flatten()?;
        Some((page, decode(&data[bytes..]).ok().flatten().map_or(Reply::Null, |(info, _)| info)))
    };
    let Some((page, info)) = replies() else { return };
    for reply in [page, info] {
        let (_, _) = (is_unknown(&reply), time_ms(&reply));
    }
    check_value(kind, || replies().expect("it is the same again"), usize::from(*cut));
}

/// Makes a page of lines, and behind an empty line what XINFO says.
pub fn made(kind: Kind, data: &[u8]) -> (Reply, Reply) {
    let at = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let (page, info) = (&data[..at], data.get(at + 2..).unwrap_or_default());
    let bulks =
        |text: &[u8], end: u8| Reply::array(text.split(|byte| *byte == end).map(|word| Reply::bulk(word.to_vec())));
    let entry = |line: &[u8]| {
        let (id, fields) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
        let fields = fields.get(1..).map_or(Reply::Array(Vec::new()), |fields| bulks(fields, b' '));
        Reply::array([Reply::bulk(id.to_vec()), fields])
    };
    let page = match kind {
        Kind::Stream => Reply::array(page.split(|byte| *byte == b'\n').map(entry)),
        _ => bulks(page, b'\n'),
    };
    (page, bulks(info, b'\n'))
}

/// Takes a page as a whole and in two parts, and writes what it has.
fn check_value(kind: Kind, replies: impl Fn() -> (Reply, Reply), cut: usize) {
    let (page, info) = replies();
    let Some(elements) = Elements::of(kind, page) else { return };
    if let (Reply::Array(mut first), _) = replies() {
        assert!(elements.len() <= first.len());
        let second = first.split_off((cut & !1).min(first.len()));
        let parts = [first, second].map(|part| Elements::of(kind, Reply::Array(part)));
        let parts = parts.into_iter().map(|part| part.expect("a part of a page is one"));
        assert_eq!(parts.fold(Elements::none(kind), Elements::with), elements, "page by page");
    }
    if let Some((written, expected)) = written(kind, &elements, &info) {
        assert_eq!(read(kind, &written), expected, "the file has what the server said");
    }
}

/// Returns a file with the elements, and what it has to have; `None` where they cannot be written.
fn written(kind: Kind, elements: &Elements, info: &Reply) -> Option<(Vec<u8>, Vec<Piece>)> {
    let key = Key { name: b"k", kind, deadline_ms: None, idle_s: None, frequency: None, position: 0 };
    let mut writer = Writer::file(Vec::new(), VERSION).expect("memory takes all");
    let score =
        |text: &[u8]| String::from_utf8(text.to_vec()).ok()?.parse::<f64>().ok().filter(|score| !score.is_nan());
    let pieces = match elements {
        Elements::Stream(entries) => {
            let head = head_of(entries, info);
            assert!(entries.iter().all(|(id, _)| *id <= head.last && after(*id).is_none_or(|after| after > *id)));
            put_stream(&mut writer, &key, entries, &head).expect("memory takes all");
            let entries = entries.iter().map(|(id, fields)| Piece::Entry(*id, fields.clone()));
            entries.chain([Piece::Stream(haypile_rdb::StreamHead { groups: 0, ..head })]).collect()
        }
        _ if elements.len() == 0 => return None,
        elements => {
            let pieces = pieces(kind, elements, score);
            let has_written = put_elements(&mut writer, &key, elements).expect("memory takes all");
            assert_eq!(has_written, pieces.is_some(), "each score is a number");
            pieces?
        }
    };
    Some((writer.end().expect("memory takes all"), pieces))
}

/// Returns the elements as parts of a value; `None` if a score is none.
fn pieces(kind: Kind, elements: &Elements, score: impl Fn(&[u8]) -> Option<f64>) -> Option<Vec<Piece>> {
    let element = |bytes: &Vec<u8>| Piece::Element(bytes.clone());
    match elements {
        Elements::List(all) => Some(all.iter().map(element).collect()),
        Elements::Set(all) => Some(all.iter().map(element).collect()),
        Elements::Pairs(all) if kind == Kind::Zset => {
            all.iter().map(|(member, text)| Some(Piece::Scored(member.clone(), score(text)?))).collect()
        }
        Elements::Pairs(all) => {
            Some(all.iter().map(|(field, value)| Piece::Field(field.clone(), value.clone(), None)).collect())
        }
        Elements::Stream(_) => None,
    }
}

/// Reads the parts of a file's only value.
fn read(kind: Kind, file: &[u8]) -> Vec<Piece> {
    struct Parts(Kind, Vec<Piece>);
    impl Sink for Parts {
        type Error = ();

        fn take(&mut self, event: Event<'_>) -> Result<(), ()> {
            match event {
                Event::Key(key) => assert_eq!((key.name, key.kind), (&b"k"[..], self.0)),
                Event::Part(part) => self.1.extend(Piece::of(part)),
                _ => {}
            }
            Ok(())
        }
    }
    let mut parts = Parts(kind, Vec::new());
    read_file(file, &mut parts).expect("what was written can be read");
    parts.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use haypile_log::testing::Random;
    use haypile_rdb::StreamId;

    #[test]
    fn a_file_has_what_the_server_says_whatever_that_is() {
        const LINES: [&str; 10] = ["a", "1", "-inf", "x y", "5-2 f v", "5-3 f v g w", "6-0 f v", "7-1 f", "9", "nan"];
        const INFO: &str = "\n\nlast-generated-id\n9-9\nentries-added\n12\ngroups\n1\nmax-deleted-entry-id\n3-3";
        let mut random = Random(5);
        let (mut taken, mut files) = (0, 0);
        for _ in 0..10_000 {
            let kind = random.below(5) as u8;
            let mut lines: Vec<&str> = (0..=random.below(6)).map(|_| LINES[random.below(10) as usize]).collect();
            if random.below(2) == 0 {
                lines.sort();
            }
            let mut data = (lines.join("\n") + INFO).into_bytes();
            for _ in 0..random.below(3) {
                let at = random.below(data.len() as u64) as usize;
                data[at] = b"0-9 \n\xffe."[random.below(8) as usize];
            }
            let (page, info) = made(KINDS[usize::from(kind)], &data);
            if let Some(elements) = Elements::of(KINDS[usize::from(kind)], page) {
                taken += 1;
                files += usize::from(written(KINDS[usize::from(kind)], &elements, &info).is_some());
            }
            check_replies(&[&[kind, random.below(9) as u8][..], &data].concat());
            let mut reply = Vec::new();
            made(Kind::Stream, &data).0.encode(haypile_resp::Protocol::Resp2, &mut reply);
            check_replies(&[&[4, 3], &reply[..]].concat());
        }
        assert!(taken > 5_000 && files > 3_000, "{taken} were taken, {files} written");
        let ids = [StreamId { ms: 1, seq: 1 }, StreamId { ms: 2, seq: 0 }];
        let (page, info) = made(Kind::Stream, format!("1-1 f v\n2-0 f w{INFO}").as_bytes());
        let Some(Elements::Stream(entries)) = Elements::of(Kind::Stream, page) else { panic!("it is a stream") };
        let head = head_of(&entries, &info);
        assert_eq!(
            (head.first, head.last, head.entries_added, head.groups),
            (ids[0], StreamId { ms: 9, seq: 9 }, 12, 1)
        );
    }
}
