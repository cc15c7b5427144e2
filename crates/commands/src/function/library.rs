//! Libraries as they are kept: facts of the data set, named `library/` and the library's name. docs/format/functions.md
//! has the bytes.

use crate::REDIS_VERSION;
use haypile_script::{Flags, Function, LibraryHead, LogLevel, functions_of};
use haypile_store::Facts;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const FACT: &[u8] = b"library/";

/// The version of the format of a fact. DO NOT CHANGE IT.
const VERSION: u8 = 1;

/// The length that stands for no description.
const NO_DESCRIPTION: u32 = u32::MAX;

/// The bits of flags, in the order of [`Flags::NAMES`]. DO NOT CHANGE THE ORDER.
fn bits_of(flags: &Flags) -> u8 {
    let names = flags.names();
    (0..Flags::NAMES.len()).filter(|bit| names.contains(&Flags::NAMES[*bit])).fold(0, |bits, bit| bits | 1 << bit)
}

fn flags_of(bits: u8) -> Flags {
    let mut flags = Flags::default();
    for (bit, name) in Flags::NAMES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1) {
        let is_known = flags.set(name.as_bytes());
        debug_assert!(is_known, "bit {bit}");
    }
    flags
}

/// A library of functions.
#[derive(Clone, Debug)]
pub struct Library {
    pub name: Vec<u8>,
    pub functions: Vec<Function>,
    /// The fact. It is the library's identity, too: one that is loaded again is another one.
    pub fact: Arc<[u8]>,
    /// The place of the code in it.
    code_at: usize,
    /// Bytes of the code's first line.
    pub head_bytes: usize,
}

impl Library {
    /// Makes a library of its code.
    ///
    /// # Errors
    /// The code is no library: Redis's reply.
    pub fn load(code: &[u8], head: LibraryHead) -> Result<Library, Vec<u8>> {
        let mut log = |level: LogLevel, text: &[u8]| {
            let (name, text) = (head.name.escape_ascii(), text.escape_ascii());
            match level {
                LogLevel::Debug | LogLevel::Verbose => tracing::debug!("library {name}: {text}"),
                LogLevel::Notice => tracing::info!("library {name}: {text}"),
                LogLevel::Warning => tracing::warn!("library {name}: {text}"),
            }
        };
        let functions = functions_of(REDIS_VERSION, code, head.bytes, &mut log)?;
        let mut fact = vec![VERSION];
        fact.extend_from_slice(&(functions.len() as u32).to_be_bytes());
        for Function { name, description, flags } in &functions {
            fact.push(bits_of(flags));
            fact.extend_from_slice(&(name.len() as u32).to_be_bytes());
            fact.extend_from_slice(name);
            let len = description.as_ref().map_or(NO_DESCRIPTION, |text| text.len() as u32);
            fact.extend_from_slice(&len.to_be_bytes());
            fact.extend_from_slice(description.as_deref().unwrap_or_default());
        }
        let code_at = fact.len();
        fact.extend_from_slice(code);
        Ok(Library { name: head.name, functions, fact: fact.into(), code_at, head_bytes: head.bytes })
    }

    /// Reads a fact; nothing where it is none of this format.
    fn parse(name: &[u8], fact: &Arc<[u8]>) -> Option<Library> {
        let mut rest: &[u8] = fact;
        let mut take = |len: usize| {
            let (taken, behind) = rest.split_at_checked(len)?;
            rest = behind;
            Some(taken)
        };
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u32::from_be_bytes);
        if take(1)? != [VERSION] {
            return None;
        }
        let count = number(take(4)?)?;
        let mut functions = Vec::new();
        for _ in 0..count {
            let flags = flags_of(take(1)?[0]);
            let len = number(take(4)?)?;
            let name = take(len as usize)?.to_vec();
            let description = match number(take(4)?)? {
                NO_DESCRIPTION => None,
                len => Some(take(len as usize)?.to_vec()),
            };
            functions.push(Function { name, description, flags });
        }
        let head_bytes = LibraryHead::of_library(rest).ok()?.bytes;
        let code_at = fact.len() - rest.len();
        Some(Library { name: name.to_vec(), functions, fact: fact.clone(), code_at, head_bytes })
    }

    pub fn code(&self) -> &[u8] {
        &self.fact[self.code_at..]
    }

    /// The name of the fact.
    pub fn fact_name(&self) -> Vec<u8> {
        [FACT, &self.name].concat()
    }
}

/// All libraries of one moment, and their functions by name.
#[derive(Clone, Debug, Default)]
pub struct Functions {
    libraries: BTreeMap<Vec<u8>, Arc<Library>>,
    /// The library of each function, and its position in it, by the name in lower case: names of functions are the same
    /// in either case.
    by_name: HashMap<Vec<u8>, (Arc<Library>, usize)>,
}

impl Functions {
    pub fn of(facts: &Facts) -> Functions {
        let mut functions = Functions::default();
        for (name, fact) in facts.iter() {
            let Some(name) = name.strip_prefix(FACT) else { continue };
            match Library::parse(name, fact) {
                Some(library) => _ = functions.add(library),
                None => tracing::error!("the library {} cannot be read, and is left out", name.escape_ascii()),
            }
        }
        functions
    }

    /// Adds a library in the place of the one of its name.
    ///
    /// # Errors
    /// Another library has a function of the same name: Redis's reply. Nothing has changed.
    pub fn add(&mut self, library: Library) -> Result<(), Vec<u8>> {
        let library = Arc::new(library);
        let mut names: Vec<Vec<u8>> = Vec::new();
        for function in &library.functions {
            let name = function.name.to_ascii_lowercase();
            let is_other = self.by_name.get(&name).is_some_and(|(other, _)| other.name != library.name);
            if is_other || names.contains(&name) {
                return Err([b"ERR Function ", &function.name[..], b" already exists"].concat());
            }
            names.push(name);
        }
        self.remove(&library.name);
        self.by_name.extend(names.into_iter().enumerate().map(|(at, name)| (name, (library.clone(), at))));
        self.libraries.insert(library.name.clone(), library);
        Ok(())
    }

    /// Removes a library; nothing if there is none of this name.
    pub fn remove(&mut self, name: &[u8]) -> Option<Arc<Library>> {
        let removed = self.libraries.remove(name)?;
        self.by_name.retain(|_, (library, _)| library.name != name);
        Some(removed)
    }

    /// Returns a function by its name in either case, and its library.
    pub fn find(&self, name: &[u8]) -> Option<(&Arc<Library>, &Function)> {
        let (library, at) = match self.by_name.get(name) {
            Some(found) => found,
            None => self.by_name.get(&name.to_ascii_lowercase())?,
        };
        Some((library, &library.functions[*at]))
    }

    pub fn has_library(&self, name: &[u8]) -> bool {
        self.libraries.contains_key(name)
    }

    /// Returns the libraries in the order of their names.
    pub fn libraries(&self) -> impl ExactSizeIterator<Item = &Arc<Library>> {
        self.libraries.values()
    }

    /// The number of functions of all libraries.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Bytes of all libraries.
    pub fn bytes(&self) -> usize {
        self.libraries.values().map(|library| library.fact.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(text: &str) -> Result<Library, String> {
        let head = LibraryHead::of_library(text.as_bytes()).expect("right");
        Library::load(text.as_bytes(), head).map_err(|why| String::from_utf8_lossy(&why).into_owned())
    }

    #[test]
    fn a_library_is_read_as_it_was_written() {
        let text = "#!lua name=l\nredis.register_function('f', function() end) redis.register_function{function_name='G', \
                    callback=function() end, flags={'no-writes', 'allow-cross-slot-keys'}, description=''}";
        let made = library(text).expect("it loads");
        let read = Library::parse(b"l", &made.fact).expect("it is whole");
        assert_eq!((read.code(), read.head_bytes, &read.functions), (text.as_bytes(), 12, &made.functions));
        assert_eq!(read.functions[1].flags.names(), ["no-writes", "allow-cross-slot-keys"]);
        assert_eq!(read.functions[1].description, Some(Vec::new()));
        for len in 0..made.fact.len() - text.len() + 12 {
            let cut: Arc<[u8]> = made.fact[..len].into();
            assert!(Library::parse(b"l", &cut).is_none(), "{len}");
        }
    }

    #[test]
    fn names_of_functions_are_taken_once_in_either_case() {
        let mut functions = Functions::default();
        let f = "redis.register_function('f', function() end)";
        functions.add(library(&format!("#!lua name=a\n{f}")).expect("it loads")).expect("the first");
        let other = library("#!lua name=b\nredis.register_function('F', function() end)").expect("it loads");
        assert_eq!(functions.add(other.clone()), Err(b"ERR Function F already exists".to_vec()));
        assert_eq!(functions.find(b"F").map(|(library, _)| &library.name[..]), Some(&b"a"[..]));
        let again = library(&format!("#!lua name=a\n{}", f.replace("'f'", "'g'"))).expect("it loads");
        functions.add(again).expect("in its own place");
        assert!(functions.find(b"f").is_none() && functions.find(b"G").is_some());
        functions.add(other).expect("the name is free");
        assert_eq!((functions.len(), functions.libraries().len()), (2, 2));
        functions.remove(b"a");
        assert!(functions.find(b"g").is_none() && functions.find(b"f").is_some());
    }
}
