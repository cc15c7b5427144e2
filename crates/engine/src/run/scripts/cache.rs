//! The cache of scripts: their texts by the SHA-1 of them.
//!
//! SCRIPT LOAD puts a script there until SCRIPT FLUSH; EVAL does, too, but of those only the newest stay, as in Redis
//! 7.4: programs that put values into the text of their scripts would fill the memory. The scripts of a master's
//! commands are kept apart: an old Redis sends a text once, and the name alone from then on. Those that it has named
//! stay longer than those of which it has sent the text alone, as it does each time where its clients do.

use crate::clients::statistics::counters::Count;
use crate::run::scripts::running::Running;
use crate::run::scripts::slow::Slow;
use haypile_script::{Shebang, sha1_hex};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Scripts that only EVAL has put into the cache, and that stay.
const EVALUATED_MAX: usize = 500;

/// Scripts that a master's commands have put into the cache, and that stay: a Redis says as many by their names alone.
const REPEATED_MAX: usize = 10_000;

/// Scripts of which a master has sent the text alone, and that stay however many it has named: a name may be to come.
const SENT_MIN: usize = 1000;

/// Bytes of the texts of these scripts: as many scripts as may stay, of six kilobytes each.
const REPEATED_BYTES_MAX: usize = 64 << 20;

/// A script.
#[derive(Debug)]
pub(crate) struct Script {
    /// The SHA-1 of the text, in 40 hex digits of lower case.
    pub name: Box<str>,
    pub text: Arc<[u8]>,
    pub shebang: Shebang,
}

impl Script {
    /// Reads a script's first line, which may be wrong: the reply.
    fn new(name: String, text: &[u8]) -> Result<Arc<Script>, Vec<u8>> {
        let shebang = Shebang::of_script(text)?;
        Ok(Arc::new(Script { name: name.into(), text: text.into(), shebang }))
    }
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
    pub slow: Slow,
}

#[derive(Default)]
struct Cache {
    scripts: HashMap<Box<str>, Kept>,
    /// The names of those that EVAL has put here, the oldest first, each once.
    evaluated: VecDeque<Box<str>>,
    /// The names of those of which a master's commands have brought the text alone, the oldest first; one that was in
    /// use gets a second turn.
    sent: VecDeque<Box<str>>,
    /// The names of those that a master's commands have named, in the same order.
    named: VecDeque<Box<str>>,
    /// Bytes of the texts of `sent` and `named`.
    repeated_bytes: usize,
}

struct Kept {
    script: Arc<Script>,
    is_loaded: bool,
    /// Invariant: the name is in `Cache::evaluated`.
    is_evaluated: bool,
    /// Invariant: the name is in `Cache::sent` or `Cache::named`, by this.
    of_master: Option<Way>,
    /// Whether a master's command has run the script since its turn to leave these.
    is_in_use: AtomicBool,
}

/// The way in which a master's commands refer to a script.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Sent,
    Named,
}

/// The reason why a script is in the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Evaluated,
    Loaded,
    Repeated(Way),
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
        Ok(self.keep(Script::new(name, text)?, Reason::Evaluated))
    }

    /// Returns the script of a text in a master's command, which is kept for those that say its name alone.
    ///
    /// # Errors
    /// The first line is wrong; the reply.
    pub fn of_master_text(&self, text: &[u8]) -> Result<Arc<Script>, Vec<u8>> {
        let name = sha1_hex(text);
        match self.find_for(name.as_bytes(), Way::Sent) {
            Some(script) => Ok(script),
            None => Ok(self.keep(Script::new(name, text)?, Reason::Repeated(Way::Sent))),
        }
    }

    /// Puts a script into the cache until the cache is emptied.
    pub fn load(&self, text: &[u8]) {
        if let Ok(script) = self.of_text(text) {
            self.keep(script, Reason::Loaded);
        }
    }

    /// Returns the script of a name, in hex digits of either case.
    pub fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        /// Digits of a name.
        const DIGITS: usize = 40;
        let name = std::str::from_utf8(name).ok().filter(|name| name.len() == DIGITS)?;
        self.get(name).or_else(|| self.get(&name.to_ascii_lowercase()))
    }

    /// Returns the script of a name in a master's command, for which it is kept from now on.
    pub fn find_of_master(&self, name: &[u8]) -> Option<Arc<Script>> {
        self.find_for(name, Way::Named)
    }

    fn find_for(&self, name: &[u8], way: Way) -> Option<Arc<Script>> {
        let script = self.find(name)?;
        let is_kept = {
            let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
            let kept = cache.scripts.get(&script.name).filter(|kept| kept.of_master >= Some(way));
            kept.inspect(|kept| kept.is_in_use.store(true, Ordering::Relaxed)).is_some()
        };
        Some(if is_kept { script } else { self.keep(script, Reason::Repeated(way)) })
    }

    fn get(&self, name: &str) -> Option<Arc<Script>> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.scripts.get(name).map(|kept| kept.script.clone())
    }

    fn keep(&self, script: Arc<Script>, reason: Reason) -> Arc<Script> {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let cache = &mut *cache;
        let way = if let Reason::Repeated(way) = reason { Some(way) } else { None };
        let has_place = cache.scripts.get(&script.name).is_some_and(|kept| kept.of_master.is_some());
        if way.is_some() && !has_place {
            self.make_room(cache, script.text.len());
        }
        let is_new = !cache.scripts.contains_key(&script.name);
        let kept = cache.scripts.entry(script.name.clone()).or_insert_with(|| Kept {
            script,
            is_loaded: false,
            is_evaluated: false,
            of_master: None,
            is_in_use: AtomicBool::new(false),
        });
        let script = kept.script.clone();
        kept.is_loaded |= reason == Reason::Loaded;
        if let Some(way) = way.filter(|way| kept.of_master < Some(*way)) {
            match kept.of_master.replace(way) {
                None => cache.repeated_bytes += script.text.len(),
                Some(_) => cache.sent.retain(|name| *name != script.name),
            }
            let names = if way == Way::Named { &mut cache.named } else { &mut cache.sent };
            names.push_back(script.name.clone());
        }
        if is_new {
            self.bytes.fetch_add(script.text.len(), Ordering::Relaxed);
            if reason == Reason::Evaluated {
                kept.is_evaluated = true;
                cache.evaluated.push_back(script.name.clone());
            }
        }
        while cache.evaluated.len() > EVALUATED_MAX {
            let Some(oldest) = cache.evaluated.pop_front() else { break };
            let Some(kept) = cache.scripts.get_mut(&oldest) else { continue };
            kept.is_evaluated = false;
            self.drop_unused(cache, &oldest);
        }
        script
    }

    /// Has older scripts leave those of a master's commands until another one, of so many bytes, has its place.
    fn make_room(&self, cache: &mut Cache, bytes: usize) {
        while cache.sent.len() + cache.named.len() >= REPEATED_MAX || cache.repeated_bytes + bytes > REPEATED_BYTES_MAX
        {
            let is_of_sent = cache.sent.len() > SENT_MIN || cache.named.is_empty();
            let names = if is_of_sent { &mut cache.sent } else { &mut cache.named };
            let Some(oldest) = names.pop_front() else { break };
            let Some(kept) = cache.scripts.get_mut(&oldest) else { continue };
            if std::mem::take(kept.is_in_use.get_mut()) {
                names.push_back(oldest);
                continue;
            }
            kept.of_master = None;
            cache.repeated_bytes -= kept.script.text.len();
            self.drop_unused(cache, &oldest);
        }
    }

    /// Drops a script unless it stays for another reason.
    fn drop_unused(&self, cache: &mut Cache, name: &str) {
        if cache.scripts.get(name).is_some_and(|kept| !kept.is_loaded && !kept.is_evaluated && kept.of_master.is_none())
        {
            let gone = cache.scripts.remove(name);
            let bytes = gone.map_or(0, |kept| kept.script.text.len());
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.evicted.add_shared(1);
        }
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

    #[test]
    fn scripts_of_a_master_stay_whatever_clients_run_and_those_in_use_the_longest() {
        let scripts = Scripts::default();
        let text = |number: usize| format!("return {number}").into_bytes();
        let name = |number: usize| sha1_hex(&text(number));
        let has = |number: usize| scripts.find(name(number).as_bytes()).is_some();
        scripts.of_text(&text(1)).expect("it is right");
        for number in 0..2 * EVALUATED_MAX {
            scripts.of_master_text(&text(number)).expect("it is right");
        }
        let clients = 1_000_000..1_000_000 + 2 * EVALUATED_MAX;
        clients.for_each(|number| _ = scripts.of_text(&text(number)).expect("it is right"));
        assert!((0..2 * EVALUATED_MAX).all(has));
        for number in 2 * EVALUATED_MAX..REPEATED_MAX + 10 {
            assert!(scripts.find_of_master(name(0).as_bytes()).is_some());
            scripts.of_master_text(&text(number)).expect("it is right");
        }
        assert!(has(0) && !has(1) && !has(10) && has(11) && has(REPEATED_MAX + 9));
        assert_eq!(scripts.size().0, REPEATED_MAX + EVALUATED_MAX);
    }

    #[test]
    fn scripts_that_a_master_has_named_outlast_those_that_came_as_text_alone() {
        let scripts = Scripts::default();
        let text = |number: usize| format!("return {number}").into_bytes();
        let name = |number: usize| sha1_hex(&text(number));
        let has = |number: usize| scripts.find(name(number).as_bytes()).is_some();
        let send = |number: usize| _ = scripts.of_master_text(&text(number)).expect("it is right");
        send(0);
        assert!(scripts.find_of_master(name(0).to_uppercase().as_bytes()).is_some());
        (1..3 * REPEATED_MAX).for_each(send);
        assert!(has(0) && !has(1) && !has(2 * REPEATED_MAX) && has(2 * REPEATED_MAX + 1));
        assert_eq!(scripts.size().0, REPEATED_MAX);
        // However many are named, those that have just come stay for a while.
        for number in 3 * REPEATED_MAX..4 * REPEATED_MAX {
            send(number);
            assert!(scripts.find_of_master(name(number).as_bytes()).is_some());
        }
        (4 * REPEATED_MAX..4 * REPEATED_MAX + SENT_MIN).for_each(send);
        assert!((4 * REPEATED_MAX..4 * REPEATED_MAX + SENT_MIN).all(has) && !has(0));
        assert_eq!(scripts.size().0, REPEATED_MAX);
    }

    #[test]
    fn a_script_of_both_a_master_and_clients_stays_as_long_as_one_of_them_keeps_it() {
        let scripts = Scripts::default();
        let text = |number: usize| format!("return {number}").into_bytes();
        let has = |number: usize| scripts.find(sha1_hex(&text(number)).as_bytes()).is_some();
        scripts.of_text(&text(0)).expect("it is right");
        (0..=REPEATED_MAX).for_each(|number| _ = scripts.of_master_text(&text(number)).expect("it is right"));
        assert!(has(0), "of those of EVAL it is the newest");
        let others = 1_000_000..1_000_000 + EVALUATED_MAX;
        others.for_each(|number| _ = scripts.of_text(&text(number)).expect("it is right"));
        assert!(!has(0) && has(1) && has(1_000_000));
        assert_eq!(scripts.size().0, REPEATED_MAX + EVALUATED_MAX);
    }

    #[test]
    fn large_scripts_of_a_master_take_the_places_of_older_ones() {
        let scripts = Scripts::default();
        let text = |number: usize| format!("return {number}{}", " ".repeat(REPEATED_BYTES_MAX / 4)).into_bytes();
        let load = |number: usize| scripts.of_master_text(&text(number)).expect("it is right").name.clone();
        let names: Vec<_> = (0..5).map(load).collect();
        let has = |at: usize| scripts.find(names[at].as_bytes()).is_some();
        assert!(!has(0) && !has(1) && has(2) && has(3) && has(4));
        assert!(scripts.size().1 <= REPEATED_BYTES_MAX);
        scripts.flush();
        assert!(scripts.of_master_text(&text(0)).is_ok() && has(0) && scripts.size().0 == 1);
    }
}
