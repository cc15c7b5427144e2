//! The cache of scripts: their texts by the SHA-1 of them.
//!
//! SCRIPT LOAD puts a script there until SCRIPT FLUSH; EVAL does, too, but of those only the newest stay, as in Redis
//! 7.4: programs that put values into the text of their scripts would fill the memory.

use crate::clients::statistics::counters::Count;
use crate::run::scripts::running::Running;
use haypile_script::{Shebang, sha1_hex};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Scripts that only EVAL has put into the cache, and that stay.
const EVALUATED_MAX: usize = 500;

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    /// The SHA-1 of the text, in 40 hex digits of lower case.
    pub name: Box<str>,
    pub text: Arc<[u8]>,
    pub shebang: Shebang,
}

/// The scripts of a server.
#[derive(Default)]
pub(crate) struct Scripts {
    cache: RwLock<Cache>,
    /// The number of times that the cache was emptied: what threads keep is of one of these.
    flushes: AtomicU64,
    /// Bytes of the texts in the cache.
    bytes: AtomicUsize,
    /// Bytes that the interpreters of all threads take.
    pub interpreter_bytes: AtomicUsize,
    /// Scripts that have left the cache because EVAL has put newer ones there.
    pub evicted: Count,
    pub running: Running,
}

#[derive(Default)]
struct Cache {
    scripts: HashMap<Box<str>, Kept>,
    /// The names of those that only EVAL has put here, the oldest first.
    evaluated: VecDeque<Box<str>>,
}

struct Kept {
    script: Arc<Script>,
    is_loaded: bool,
}

impl Scripts {
    /// Returns the script of a text, which is in the cache from now on.
    ///
    /// # Errors
    /// The first line is wrong; the reply.
    pub fn of_text(&self, text: &[u8]) -> Result<Arc<Script>, Vec<u8>> {
        let name = sha1_hex(text);
        if let Some(script) = self.get(&name) {
            return Ok(script);
        }
        let shebang = Shebang::of_script(text)?;
        let script = Arc::new(Script { name: name.into(), text: text.into(), shebang });
        Ok(self.keep(script, false))
    }

    /// Puts a script into the cache until the cache is emptied.
    pub fn load(&self, text: &[u8]) {
        if let Ok(script) = self.of_text(text) {
            self.keep(script, true);
        }
    }

    /// Returns the script of a name, in hex digits of either case.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        /// Digits of a name.
        const DIGITS: usize = 40;
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() == DIGITS)?;
        self.get(name).or_else(|| self.get(&name.to_ascii_lowercase()))
    }

    fn get(&self, name: &str) -> Option<Arc<Script>> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.scripts.get(name).map(|kept| kept.script.clone())
    }

    fn keep(&self, script: Arc<Script>, is_loaded: bool) -> Arc<Script> {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = cache.scripts.get_mut(&script.name) {
            kept.is_loaded |= is_loaded;
            return kept.script.clone();
        }
        self.bytes.fetch_add(script.text.len(), Ordering::Relaxed);
        cache.scripts.insert(script.name.clone(), Kept { script: script.clone(), is_loaded });
        if !is_loaded {
            cache.evaluated.push_back(script.name.clone());
        }
        while cache.evaluated.len() > EVALUATED_MAX {
            let Some(oldest) = cache.evaluated.pop_front() else { break };
            if cache.scripts.get(&oldest).is_some_and(|kept| !kept.is_loaded) {
                let gone = cache.scripts.remove(&oldest);
                let bytes = gone.map_or(0, |kept| kept.script.text.len());
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.evicted.add_shared(1);
            }
        }
        script
    }

    /// Empties the cache.
    pub fn flush(&self) {
        let dropped = {
            let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
            self.flushes.fetch_add(1, Ordering::Relaxed);
            self.bytes.store(0, Ordering::Relaxed);
            std::mem::take(&mut *cache)
        };
        drop(dropped);
    }

    /// The number of times that the cache was emptied.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// The number of scripts in the cache, and the bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        (cache.scripts.len(), self.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn loaded_scripts_stay_and_of_the_others_the_newest() {
        let scripts = Scripts::default();
        let text = |number: usize| format!("return {number}").into_bytes();
        let has = |number: usize| scripts.find(sha1_hex(&text(number)).to_uppercase().as_bytes()).is_some();
        scripts.load(&text(0));
        scripts.of_text(&text(1)).expect("it is right");
        scripts.load(&text(1));
        for number in 2..EVALUATED_MAX + 3 {
            scripts.of_text(&text(number)).expect("it is right");
        }
        assert!(has(0) && has(1) && !has(2) && has(3) && has(EVALUATED_MAX + 2));
        let (count, bytes) = scripts.size();
        assert_eq!((count, scripts.evicted.get()), (EVALUATED_MAX + 2, 1));
        assert!(bytes > 9 * count && bytes < 11 * count, "{bytes}");
        scripts.flush();
        assert!(!has(0) && scripts.size() == (0, 0) && scripts.flushes() == 1);
        assert_eq!(
            scripts.of_text(b"#!lua flags=x\n").expect_err("no flag"),
            b"ERR Unexpected flag in script shebang: x"
        );
        assert!(scripts.find(b"short").is_none());
    }
}
