//! No circle of imports is larger than one folder. Files that name each other have to be read together; a folder is
//! what one reads together.

use crate::source::{Source, closing, crates, folder_of_children, is_word, names, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Stands for the path of a name that is another crate's.
const OTHER_CRATE: &str = "::";

/// The modules of a crate, and what each of them names.
struct Modules {
    sources: Vec<Source>,
    /// Files by module path.
    by_path: BTreeMap<Vec<String>, usize>,
    /// The items that each file re-exports, by name.
    exports: Vec<BTreeMap<String, Vec<String>>>,
}

impl Modules {
    fn of(sources: Vec<Source>) -> Modules {
        let path = |source: &Source| -> Vec<String> {
            let folder = folder_of_children(&source.path);
            folder.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let by_path = sources.iter().enumerate().map(|(at, source)| (path(source), at)).collect();
        let mut modules = Modules { sources, by_path, exports: Vec::new() };
        modules.exports = (0..modules.sources.len()).map(|file| modules.exports_of(file)).collect();
        modules
    }

    fn module(&self, file: usize) -> Vec<String> {
        let found = self.by_path.iter().find(|(_, at)| **at == file);
        found.map(|(path, _)| path.clone()).unwrap_or_default()
    }

    /// Returns the names of other modules that a file exports by `pub use`.
    fn exports_of(&self, file: usize) -> BTreeMap<String, Vec<String>> {
        let all = uses(&self.sources[file].code).into_iter().filter(|(public, _)| *public);
        // Names of other crates lead nowhere.
        let absolute = |path: &[String]| self.absolute(file, path).unwrap_or_else(|| vec![OTHER_CRATE.to_owned()]);
        all.filter_map(|(_, path)| Some((path.last()?.clone(), absolute(&path)))).collect()
    }

    /// A path from the crate's root, if it names something of the crate.
    fn absolute(&self, file: usize, path: &[String]) -> Option<Vec<String>> {
        let module = self.module(file);
        let (first, rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => module,
            "super" => module[..module.len().checked_sub(1)?].to_vec(),
            child => {
                let mut base = module;
                base.push(child.to_owned());
                self.by_path.contains_key(&base).then_some(())?;
                base
            }
        };
        for part in rest {
            if part == "super" { _ = base.pop() } else { base.push(part.clone()) }
        }
        Some(base)
    }

    /// The file that an absolute path leads to, through re-exports.
    fn file(&self, path: &[String], depth: usize) -> Option<usize> {
        if path.first().is_some_and(|first| first == OTHER_CRATE) {
            return None;
        }
        let mut length = path.len();
        while !self.by_path.contains_key(&path[..length]) {
            length = length.checked_sub(1)?;
        }
        let file = self.by_path[&path[..length]];
        match path.get(length).and_then(|name| self.exports[file].get(name)) {
            Some(exported) if depth < 8 && exported[..] != path[..=length] => self.file(exported, depth + 1),
            _ => Some(file),
        }
    }

    /// Which files a file names.
    fn named_by(&self, file: usize) -> BTreeSet<usize> {
        let code = &self.sources[file].code;
        // A re-export names nothing for whoever reads the file itself: the one who imports it does.
        let used = uses(code).into_iter().filter(|(public, _)| !public).map(|(_, path)| path);
        let all = used.chain(paths(code)).filter_map(|path| self.absolute(file, &path));
        let mut named: BTreeSet<usize> = all.filter_map(|path| self.file(&path, 0)).collect();
        // The root puts the crate together: it has no place in a circle.
        named.retain(|&other| other != file && !self.module(other).is_empty());
        named
    }

    /// The circles: files that all lead to each other, more than one of them.
    fn circles(&self) -> Vec<Vec<usize>> {
        let count = self.sources.len();
        let named: Vec<BTreeSet<usize>> = (0..count).map(|file| self.named_by(file)).collect();
        let reached: Vec<BTreeSet<usize>> = (0..count).map(|file| reach(&named, file)).collect();
        let mut circles = BTreeSet::new();
        for file in 0..count {
            let circle: Vec<usize> =
                reached[file].iter().copied().filter(|&other| reached[other].contains(&file)).collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// Whether one folder, other than the crate's root, has all these files. A folder's own file belongs to it, and to
    /// the folder that it lies in.
    fn is_one_folder(&self, circle: &[usize]) -> bool {
        let homes = |file: usize| -> BTreeSet<String> {
            let path = &self.sources[file].path;
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let above = folder.rsplit_once('/').map_or("", |(above, _)| above);
            let own = folder_of_children(path);
            let outer = if path.ends_with("/mod.rs") { above } else { folder };
            [folder.to_owned(), outer.to_owned(), own].into_iter().filter(|home| !home.is_empty()).collect()
        };
        let shared = circle.iter().map(|&file| homes(file)).reduce(|some, other| &some & &other);
        shared.is_some_and(|shared| !shared.is_empty())
    }
}

fn reach(named: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        next.extend(named[file].iter().copied().filter(|&other| reached.insert(other)));
    }
    reached
}

/// The paths of all `use` items, and whether each is a re-export.
fn uses(code: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        if at > 0 && is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        let end = code[at..].find(';').map_or(code.len(), |length| at + length);
        let line = code[..at].rfind(['\n', ';', '{', '}']).map_or(0, |begin| begin + 1);
        let public = code[line..at].trim_start().starts_with("pub");
        let mut paths = Vec::new();
        expand(&code[at + 4..end], &[], &mut paths);
        found.extend(paths.into_iter().map(|path| (public, path)));
    }
    found
}

/// Writes out a tree of a `use` item.
fn expand(tree: &str, before: &[String], out: &mut Vec<Vec<String>>) {
    let (mut depth, mut begin) = (0, 0);
    let mut branches = Vec::new();
    for (at, byte) in tree.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                branches.push(&tree[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    branches.push(&tree[begin..]);
    for branch in branches.into_iter().map(str::trim).filter(|branch| !branch.is_empty()) {
        let (path, group) = match branch.find('{') {
            Some(opens) => (&branch[..opens], Some(&branch[opens + 1..closing(branch, opens)])),
            None => (branch.split(" as ").next().unwrap_or_default(), None),
        };
        let parts = path.split("::").map(str::trim).filter(|part| !part.is_empty() && *part != "*");
        let path: Vec<String> = before.iter().cloned().chain(parts.map(str::to_owned)).collect();
        match group {
            Some(group) => expand(group, &path, out),
            None => out.push(path),
        }
    }
}

/// The paths outside of `use` items.
fn paths(code: &str) -> Vec<Vec<String>> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let begin = at;
        let is_part = |at: usize| {
            is_word(bytes[at]) || bytes[at..].starts_with(b"::") || at > begin && bytes[at - 1..].starts_with(b"::")
        };
        while at < bytes.len() && is_part(at) {
            at += 1;
        }
        let word = &code[begin..at];
        // A group of names belongs to a `use` item, which says more than where the group begins.
        let is_group = word.ends_with("::") && bytes.get(at) == Some(&b'{');
        if word.contains("::") && !word.starts_with("::") && !is_group {
            found.push(word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
        }
        at = at.max(begin + 1);
    }
    found
}

#[test]
fn no_circle_of_imports_is_larger_than_a_folder() {
    let mut wrong = Vec::new();
    for name in names() {
        let modules = Modules::of(sources(&name));
        let circles = modules.circles();
        let larger = circles.iter().filter(|circle| !modules.is_one_folder(circle)).max_by_key(|circle| circle.len());
        if let Some(circle) = larger {
            let files: Vec<&str> = circle.iter().map(|&file| modules.sources[file].path.as_str()).collect();
            wrong.push(format!("{name}: a circle of {} files: {files:?}", files.len()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// ARCHITECTURE.md says how many files the largest circle of each crate has: a circle that grows is a decision.
#[test]
fn circles_are_as_large_as_the_architecture_says() {
    let page = std::fs::read_to_string(crates().join("../ARCHITECTURE.md")).expect("it is there");
    let mut wrong = Vec::new();
    for name in names() {
        let largest = Modules::of(sources(&name)).circles().iter().map(Vec::len).max().unwrap_or(1);
        let place = format!(" in `{name}`");
        let mut places = page.match_indices(&place).map(|(at, _)| &page[..at]);
        let stated = places.find_map(|before| before.rsplit([' ', '\n']).next()?.parse().ok()).unwrap_or(1);
        if largest != stated {
            wrong.push(format!("{name}: the largest circle has {largest} files, ARCHITECTURE.md says {stated}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The floors of the engine, the lowest first: what their paths begin with.
const FLOORS: [&str; 6] = ["sync.rs", "keys/", "clients/", "run/", "info/", "engine.rs"];

#[test]
fn no_floor_of_the_engine_names_a_higher_one() {
    let modules = Modules::of(sources("engine"));
    let path = |file: usize| modules.sources[file].path.as_str();
    let floor = |file: usize| FLOORS.iter().position(|floor| path(file).starts_with(floor));
    let mut wrong = Vec::new();
    for file in (0..modules.sources.len()).filter(|&file| path(file) != "lib.rs") {
        assert!(floor(file).is_some(), "{} has a floor", path(file));
        let higher = modules.named_by(file).into_iter().filter(|&named| floor(named) > floor(file));
        wrong.extend(higher.map(|named| format!("{} names {}", path(file), path(named))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_are_found_in_all_their_forms() {
    let source = |path: &str, code: &str| Source { path: path.to_owned(), code: code.to_owned(), texts: Vec::new() };
    let modules = Modules::of(vec![
        source("lib.rs", "mod a;\nmod b;\npub use b::c::Shown;"),
        source("a.rs", "use crate::{Shown, x};\n"),
        source("b/mod.rs", "pub(crate) mod c;\npub(crate) use c::Told;\nfn f() { c::g(); }"),
        source("b/c.rs", "fn g() { super::f(); let x = crate::a::X; std::mem::take(y) }"),
        source("d.rs", "use crate::b::{self, Told as Other, c::{self, Shown}};"),
        source("e.rs", "use crate::b::{Told};"),
    ]);
    let named = |file: usize| {
        modules.named_by(file).into_iter().map(|at| modules.sources[at].path.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(named(1), ["b/c.rs"]);
    assert_eq!(named(2), ["b/c.rs"]);
    assert_eq!(named(3), ["a.rs", "b/mod.rs"]);
    assert_eq!(named(4), ["b/mod.rs", "b/c.rs"]);
    assert_eq!(named(5), ["b/c.rs"], "what leads through a re-export names no more than that");
    assert_eq!(modules.circles(), [vec![1, 2, 3]]);
    assert!(!modules.is_one_folder(&[1, 2, 3]) && modules.is_one_folder(&[2, 3]));
}
