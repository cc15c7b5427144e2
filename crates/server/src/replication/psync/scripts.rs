//! The scripts of a master that sends EVALSHA to replicas: Redis 2.8 to 4, and 5 and 6 on demand. Files of 4.0 to 6.2
//! have them in fields of their own; an older master sends the text again behind each load. Here they are in memory
//! alone, so that after a restart they come with a load of all data.

use crate::import::Scripts;
use haypile_engine::Engine;
use std::collections::BTreeSet;

/// The most scripts for which all data are loaded: the first such load brings all scripts, as a rule.
const LOADS_MAX: usize = 64;

/// Puts the scripts of a master's data into the cache.
pub fn load(engine: &Engine, scripts: &Scripts) {
    for text in &scripts.texts {
        if let Err(why) = engine.load_script(text) {
            tracing::warn!("a script of the master cannot be loaded: {why}");
        }
    }
    if scripts.left_out > 0 {
        tracing::warn!("{} scripts of the master have no room here", scripts.left_out);
    }
}

/// Returns whether a command was refused because its script is not there.
pub fn lacks_script(why: &str) -> bool {
    why.starts_with("NOSCRIPT")
}

/// The scripts for which a master was asked for all of its data.
#[derive(Default)]
pub struct Asked {
    /// The version of the master.
    version: u64,
    names: BTreeSet<Vec<u8>>,
    /// The names for which a load is to come.
    awaited: BTreeSet<Vec<u8>>,
}

impl Asked {
    /// Notes that a master of this version is to send all of its data for these scripts; returns false if it has done
    /// so already, or very often, and so another load would not help.
    pub fn note(&mut self, version: u64, names: BTreeSet<Vec<u8>>) -> bool {
        if self.version != version {
            *self = Asked { version, ..Asked::default() };
        }
        let is_new = !names.is_subset(&self.names) && self.names.len() + names.len() <= LOADS_MAX;
        if is_new {
            self.awaited.extend(names.difference(&self.names).cloned());
            self.names.extend(names);
        }
        is_new
    }

    /// Notes that a load from a master of this version is in place, or cannot be held; returns whether it was for
    /// scripts.
    pub fn end_load(&mut self, version: u64) -> bool {
        !std::mem::take(&mut self.awaited).is_empty() && self.version == version
    }

    /// Notes that a load from a master of this version has failed for now, as where the disk is full: for its scripts
    /// another one is asked for when they are missed again. Returns whether it was for scripts.
    pub fn put_off_load(&mut self, version: u64) -> bool {
        let awaited = std::mem::take(&mut self.awaited);
        self.names.retain(|name| !awaited.contains(name));
        !awaited.is_empty() && self.version == version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_is_asked_once_for_each_script_and_not_for_ever() {
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<BTreeSet<_>>();
        let mut asked = Asked::default();
        assert!(!asked.note(1, names(&[])));
        assert!(asked.note(1, names(&["a"])) && !asked.note(1, names(&["a"])));
        assert!(asked.note(1, names(&["a", "b"])) && !asked.note(1, names(&["b"])));
        assert!(asked.note(2, names(&["a"])), "it is another master");
        let loads = (0..1000).filter(|number: &u32| asked.note(2, names(&[&number.to_string()]))).count();
        assert_eq!(loads, LOADS_MAX - 1);
    }

    #[test]
    fn a_load_for_scripts_is_told_from_others() {
        let names = || BTreeSet::from([b"a".to_vec()]);
        let mut asked = Asked::default();
        assert!(!asked.end_load(0));
        assert!(asked.note(1, names()) && asked.end_load(1) && !asked.end_load(1));
        assert!(!asked.note(1, names()) && !asked.end_load(1), "no load is to come");
        assert!(!asked.put_off_load(1) && !asked.note(1, names()), "nor has one failed");
        assert!(asked.note(2, names()) && !asked.end_load(3), "the load is another master's");
    }

    #[test]
    fn a_load_that_had_no_room_is_asked_for_again() {
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<BTreeSet<_>>();
        let mut asked = Asked::default();
        assert!(asked.note(1, names(&["a"])) && asked.end_load(1));
        for _ in 0..2 * LOADS_MAX {
            assert!(asked.note(1, names(&["a", "b"])) && asked.put_off_load(1));
        }
        assert!(!asked.note(1, names(&["a"])), "a load did not bring it");
        assert!(asked.note(1, names(&["b"])) && asked.end_load(1) && !asked.note(1, names(&["b"])));
    }
}
