//! The allocator's statistics, and how it gives memory back.

use haypile_engine::Allocator;
use std::fmt::Write;
use tikv_jemalloc_ctl::{Access, AsName, arenas, background_thread, epoch, stats};

/// The allocator's figures, for INFO and MEMORY.
pub const JEMALLOC: Allocator = Allocator { figures, purge, report };

/// Returns `allocated`, `active`, `resident`: the bytes given out, the pages that they lie in, and all pages that are
/// the process's.
fn figures() -> [u64; 3] {
    // The statistics are renewed with the epoch; without them the figures are 0.
    let _ = epoch::advance();
    [stats::allocated::read(), stats::active::read(), stats::resident::read()]
        .map(|bytes| bytes.map_or(0, |bytes| bytes as u64))
}

/// How long freed memory is kept for reuse. A generation of the memtable is freed at once, and with jemalloc's default
/// a part of a small budget would be held twice.
const KEPT_MS: isize = 500;

/// Sets [`KEPT_MS`], for existing and future arenas, and starts a thread of jemalloc that enforces it.
///
/// Called once, after the process went to the background: threads do not come along there.
pub fn keep_little() -> Result<(), String> {
    let later = "arenas.dirty_decay_ms\0".to_string();
    let count = arenas::narenas::read().map_err(|error| error.to_string())?;
    for name in std::iter::once(later).chain((0..count).map(|arena| format!("arena.{arena}.dirty_decay_ms\0"))) {
        // An unused arena refuses the setting, and will have the value of future ones.
        if Access::<isize>::read(name.name()).is_ok() {
            Access::write(name.name(), KEPT_MS).map_err(|error| error.to_string())?;
        }
    }
    background_thread::write(true).map_err(|error| error.to_string())
}

/// The two ages at which an arena gives back what is not in use: setting one to 0 has it done at once.
const DECAYS: [&str; 2] = ["dirty_decay_ms", "muzzy_decay_ms"];

fn purge() -> Result<(), String> {
    let count = arenas::narenas::read().map_err(|error| error.to_string())?;
    for arena in 0..count {
        for decay in DECAYS {
            let name = format!("arena.{arena}.{decay}\0");
            // An unused arena has nothing to give back, and is an error. (Not `update`: that hands jemalloc one place
            // for the old value and the new one.)
            let Ok(before) = Access::<isize>::read(name.name()) else { continue };
            for decay_ms in [0, before] {
                Access::write(name.name(), decay_ms).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

/// Returns the figures as lines for people.
fn report() -> String {
    let [allocated, active, resident] = figures();
    let other = [stats::metadata::read(), stats::mapped::read(), stats::retained::read()];
    let [metadata, mapped, retained] = other.map(|bytes| bytes.map_or(0, |bytes| bytes as u64));
    let lines = [
        ("allocated", allocated, "given out"),
        ("active", active, "in pages that something given out lies in"),
        ("metadata", metadata, "of the allocator itself"),
        ("resident", resident, "in memory, unused pages that it keeps included"),
        ("mapped", mapped, "of addresses in use"),
        ("retained", retained, "of addresses kept for later, without memory"),
    ];
    let mut text = format!("jemalloc, {} arenas\n", arenas::narenas::read().unwrap_or_default());
    for (name, bytes, about) in lines {
        writeln!(text, "{name:>10} {bytes:>15} bytes {about}").expect("a String takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_memory_is_not_kept_for_long() {
        keep_little().expect("jemalloc can");
        let held = vec![1_u8; 100_000];
        for name in ["arenas.dirty_decay_ms\0", "arena.0.dirty_decay_ms\0"] {
            assert_eq!(Access::<isize>::read(name.name()), Ok(KEPT_MS), "{name}");
        }
        assert_eq!(background_thread::read(), Ok(true));
        drop(held);
    }

    #[test]
    fn a_purge_gives_back_what_is_not_in_use() {
        // The figures are the process's: other tests take and give some ten megabytes meanwhile.
        let held: Vec<Vec<u8>> = (0..4000).map(|number| vec![number as u8; 50_000]).collect();
        let [allocated, active, resident] = figures();
        assert!(
            allocated >= 200_000_000 && active >= allocated && resident >= active,
            "{allocated} {active} {resident}"
        );
        drop(held);
        purge().expect("jemalloc can");
        let [_, _, after] = figures();
        assert!(after + 150_000_000 < resident, "{resident} before, {after} after");
        assert!(report().contains("retained"));
    }
}
