//! Rows that are read from the disk at the same time for one session: those that the first command lacks, and those that
//! the commands behind it are going to lack. One after the other, each command of a pipeline would wait for its own.

use crate::engine::Engine;
use crate::pool::Task;
use crate::session::{Pending, What};
use crate::sync::lock;
use haypile_store::{Call, Mode, Pins, Store, TxnBuffers};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A key whose row is on the disk, as somebody is going to ask for it.
pub(crate) struct Wanted {
    pub name: Box<[u8]>,
    /// It is going to be written: its row has no place in the row cache.
    pub writes: bool,
}

/// The rows, and who waits for all of them.
pub(crate) struct Together {
    database: u32,
    wanted: Vec<Wanted>,
    /// Rows that are still to come.
    left: AtomicUsize,
    gathered: Mutex<Gathered>,
}

struct Gathered {
    pins: Pins,
    /// The command that goes on when everything is there.
    pending: Option<Box<Pending>>,
}

impl Together {
    pub fn new(database: u32, wanted: Vec<Wanted>, pending: Box<Pending>) -> Arc<Together> {
        let left = AtomicUsize::new(wanted.len());
        let gathered = Mutex::new(Gathered { pins: Pins::default(), pending: Some(pending) });
        Arc::new(Together { database, wanted, left, gathered })
    }

    /// A task for each row.
    pub fn tasks(self: &Arc<Self>) -> impl Iterator<Item = Task> {
        (0..self.wanted.len()).map(|at| Task::Row(self.clone(), at))
    }

    /// Reads one of the rows; with the last one comes the event. What cannot be read is left to the command to find out.
    pub fn read(&self, engine: &Engine, store: &Store, at: usize) -> Option<What> {
        let call = Call { now_ms: engine.now_ms(), seed: 0, database: self.database, mode: Mode::Load, pins: None };
        let mut txn = store.begin(TxnBuffers::default(), call);
        let wanted = &self.wanted[at];
        let key = txn.key(&wanted.name);
        let _ = if wanted.writes { txn.presence(&key).map(drop) } else { txn.meta(&key).map(drop) };
        let pins = txn.take_pins();
        txn.finish();
        let mut gathered = lock(&self.gathered);
        gathered.pins.add(pins);
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return None;
        }
        let mut pending = gathered.pending.take()?;
        pending.loads += 1;
        Some(What::Loaded(pending, std::mem::take(&mut gathered.pins)))
    }
}
