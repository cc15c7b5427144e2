//! The checks of what may lie in an archive, for a fuzz target and a seeded test.

use crate::catalog::{Catalog, Lane};
use crate::chain::Chain;
use crate::key::Key;
use crate::manifest::{Manifest, digest_of, is_inside};
use crate::names::ChunkName;
use crate::plan::{Target, holes, plan};
use crate::sealed::{Opener, Sealer};
use crate::surplus::surplus;
use haypile_log::{HistoryStart, Index, Origin};

/// Reads `data` as an encrypted object, which comes in pieces, and as texts: a key, manifests and names of chunks, as
/// the archive that they make, and the ways to its moments.
///
/// # Panics
/// Something is taken that is not what was written, leads outside of the data directory, or leads nowhere.
pub fn check_bytes(data: &[u8]) {
    let Some((piece, data)) = data.split_first() else { return };
    check_sealed(usize::from(*piece) + 1, data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Key::parse(text);
    let _ = Manifest::parse(text).map(|manifest| check_manifest(&manifest));
    check_catalog(&catalog_of(text));
}

fn check_sealed(piece: usize, data: &[u8]) {
    let key = Key::parse(&"5a".repeat(32)).expect("64 digits are a key");
    let open = |bytes: &[u8]| {
        let (mut opener, mut opened) = (Opener::new(&key, "files/x"), Vec::new());
        let mut take = |part: &[u8]| {
            opened.extend_from_slice(part);
            Ok::<_, String>(())
        };
        bytes.chunks(piece).try_for_each(|part| opener.add(part, &mut take))?;
        opener.end(&mut take)?;
        Ok::<_, String>(opened)
    };
    assert!(open(data).is_err(), "who does not have the key cannot seal");
    let sealed = Sealer::whole(&key, "files/x", data);
    assert_eq!(open(&sealed).as_deref(), Ok(data));
    assert!(open(&sealed[..sealed.len() - 1]).is_err(), "it is cut off");
    let mut damaged = sealed;
    let at = (piece * 31 + data.len()) % damaged.len();
    damaged[at] ^= 1;
    assert!(open(&damaged).is_err(), "byte {at} is another one");
}

fn check_manifest(manifest: &Manifest) {
    assert_eq!(Manifest::parse(&manifest.text()).as_ref(), Ok(manifest));
    assert!(manifest.files.iter().all(|file| is_inside(&file.path)), "a file leads outside");
    let (_, _, _) = (manifest.name(), manifest.object(), manifest.bytes());
}

/// Makes an archive of lines: names of chunks, and of the others manifests, which an empty line ends, with checksums
/// that are right.
fn catalog_of(text: &str) -> Catalog {
    let mut catalog = Catalog::default();
    let (names, others): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| ChunkName::parse(line).is_some());
    for body in others.join("\n").split("\n\n") {
        let body = format!("{}\n", body.trim_end_matches('\n'));
        let sealed = format!("{body}end {}\n", digest_of(body.as_bytes()));
        if let Ok(manifest) = Manifest::parse(&sealed) {
            check_manifest(&manifest);
            catalog.backups.push(manifest);
        }
    }
    for name in names.into_iter().filter_map(ChunkName::parse) {
        let starts = |backup: &Manifest| {
            let at = backup.histories.iter().position(|start| start.history == name.history)?;
            Some(Chain::new(&backup.histories[..=at]))
        };
        let alone = || Chain::new(&[HistoryStart { history: name.history, origin: Origin::Nothing }]);
        let chain = catalog.backups.iter().find_map(starts).unwrap_or_else(alone);
        catalog.lanes.entry(name.history).or_insert(Lane { chain, chunks: Vec::new() }).chunks.push(name);
    }
    catalog.lanes.values_mut().for_each(|lane| lane.chunks.sort());
    catalog
}

fn check_catalog(catalog: &Catalog) {
    let made = catalog.backups.iter().flat_map(|backup| [backup.through, backup.applied]);
    let chunks = catalog.lanes.values().flat_map(|lane| lane.chunks.iter().map(|chunk| chunk.last));
    let indexes = made.chain(chunks).chain([Index(0), Index(u64::MAX)]).map(Target::Index);
    for target in indexes.chain([Target::Newest, Target::Time(0), Target::Time(u64::MAX)]) {
        let Ok(way) = plan(catalog, None, target) else { continue };
        let lasts: Vec<Index> = way.chunks.iter().map(|(_, last)| *last).collect();
        assert!(lasts.is_sorted_by(|a, b| a < b), "each chunk leads on");
        assert!(way.chunks.iter().all(|(chunk, last)| *last <= chunk.last && *last >= chunk.first));
    }
    if let Some((_, chain)) = catalog.newest() {
        let _ = holes(catalog, &chain);
    }
    for keep in 0..3 {
        let gone = surplus(catalog, keep, catalog.backups.first());
        assert!(catalog.backups.is_empty() || gone.backups.len() < catalog.backups.len(), "one backup stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::BackupFile;
    use haypile_log::History;
    use haypile_log::testing::Random;
    use std::path::Path;

    /// A backup and the chunks behind it, as lines.
    fn archive() -> String {
        let first = HistoryStart { history: History([1; 20]), origin: Origin::Nothing };
        let second = HistoryStart { history: History([2; 20]), origin: Origin::Fork(first.history, Index(40)) };
        let file = BackupFile { path: "base/1.sst".into(), bytes: 7, digest: digest_of(b"x") };
        let backup = |through: u64| Manifest {
            made_ms: through,
            through: Index(through),
            applied: Index(through - 10),
            histories: vec![first, second],
            files: vec![file.clone()],
        };
        let body = |through| backup(through).text().rsplit_once("end ").expect("it has an end").0.to_owned();
        let chunk = |history, first, last| {
            ChunkName { history, first: Index(first), last: Index(last), time_ms: last }.to_string()
        };
        let names = [chunk(first.history, 1, 45), chunk(second.history, 41, 80), chunk(second.history, 81, 90)];
        format!("{}\n{}\n{}\n", body(30), body(70), names.join("\n"))
    }

    #[test]
    fn whatever_lies_in_an_archive_does_no_harm() {
        let text = archive();
        let way = plan(&catalog_of(&text), None, Target::Newest).expect("the archive is whole");
        assert_eq!((way.through, way.chunks.len()), (Index(90), 2));
        let mut random = Random(7);
        let (mut backups, mut ways) = (0, 0);
        for _ in 0..5_000 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    3 => bytes.extend_from_within(at..),
                    0 => bytes[at] = b"0123456789abcdef \n/.-"[random.below(21) as usize],
                    1 => drop(bytes.drain(at..(at + random.below(60) as usize).min(bytes.len()))),
                    _ => bytes.insert(at, b"0 \n9"[random.below(4) as usize]),
                }
                bytes.push(b'\n');
            }
            let text = String::from_utf8(bytes).expect("it is ASCII");
            let catalog = catalog_of(&text);
            backups += catalog.backups.len();
            ways += usize::from(plan(&catalog, None, Target::Newest).is_ok());
            check_bytes(format!("\x20{text}").as_bytes());
        }
        assert!(backups > 3_000 && ways > 1_000, "{backups} backups, {ways} ways");
    }

    #[test]
    fn the_inputs_that_the_target_begins_with_are_what_lies_in_archives() {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
        let seeds = Path::new(&package).join("../../fuzz/archive/seeds/archive");
        let bytes = |name: &str| std::fs::read(seeds.join(name)).expect("it is there");
        let text = |name: &str| String::from_utf8(bytes(name)).expect("it is a text")[1..].to_owned();
        for name in ["manifest", "manifest-loaded", "manifest-empty"] {
            assert!(Manifest::parse(&text(name)).is_ok(), "{name}");
        }
        let newest = |name: &str| plan(&catalog_of(&text(name)), None, Target::Newest);
        for (name, last) in [("backups", 70), ("archive", 90), ("loaded", 200)] {
            assert_eq!(newest(name).expect("it is whole").through, Index(last), "{name}");
        }
        let hole = catalog_of(&text("hole"));
        assert!(!holes(&hole, &hole.backups[0].chain()).is_empty());
        assert!(text("chunks").lines().chain([&text("chunk")[..]]).all(|name| ChunkName::parse(name).is_some()));
        assert!(Key::parse(&text("key")).is_ok());
        assert!(["sealed", "sealed-empty"].iter().all(|name| bytes(name)[1..].starts_with(b"haypsea1")));
        let all = std::fs::read_dir(&seeds).expect("it is a folder").map(|entry| entry.expect("it is there").path());
        all.for_each(|path| check_bytes(&std::fs::read(path).expect("it is a file")));
    }

    #[test]
    fn indexes_end_where_numbers_do() {
        let text = archive().replace("through 70", &format!("through {}", u64::MAX));
        assert_eq!(catalog_of(&text).backups.len(), 1);
        let text = archive().replace("through 70", &format!("through {}", u64::MAX - 1));
        let text = text.replace("00000000000000000090", &(u64::MAX - 1).to_string());
        assert!(catalog_of(&text).backups.iter().any(|backup| backup.through == Index(u64::MAX - 1)));
        check_bytes(format!("\x20{text}").as_bytes());
        let line = archive().lines().find(|line| line.starts_with("file ")).expect("there is one").to_owned();
        let large = line.replace(" 7 ", &format!(" {} ", u64::MAX / 2 + 1));
        let text = archive().replace(&line, &format!("{large}\n{large}"));
        assert_eq!(catalog_of(&text).backups, []);
        let name = format!("log/{}/{:020}-{}-{:014}.log", "01".repeat(20), 1, u64::MAX, 9);
        assert_eq!(ChunkName::parse(&name), None);
    }
}
