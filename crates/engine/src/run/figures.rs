//! Figures that are slow to ask for, asked for by a thread of their own twice a second: those of the base, which waits
//! for ingestions and compactions to let go of its mutex, and how long syncs and flushes have taken lately. The thread
//! looks at the times of full compactions as well.

use crate::run::engine::Engine;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between two looks at the base's figures for INFO.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct Figures {
    of_base: Mutex<Vec<(&'static str, u64)>>,
    disk_bytes: AtomicU64,
    closing: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Figures {
    /// Begins to look; the first look is over when this returns.
    pub fn start(&self, engine: &Arc<Engine>) -> std::io::Result<()> {
        let mut flushes = 0;
        self.look(engine, &mut flushes);
        let engine = engine.clone();
        let thread = std::thread::Builder::new().name("figures".into()).spawn(move || {
            while !engine.figures.closing.load(Ordering::Acquire) {
                std::thread::park_timeout(INTERVAL);
                engine.figures.look(&engine, &mut flushes);
                engine.look_at_compactions();
            }
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            thread.thread().unpark();
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }

    pub fn of_base(&self) -> Vec<(&'static str, u64)> {
        self.of_base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes.load(Ordering::Relaxed)
    }

    fn look(&self, engine: &Engine, flushes: &mut u64) {
        let Some(store) = engine.store() else { return };
        let of_base = store.base_figures();
        self.disk_bytes.store(store.base_disk_bytes(), Ordering::Relaxed);
        *self.of_base.lock().unwrap_or_else(PoisonError::into_inner) = of_base;
        engine.statistics.event("log-sync", store.log().take_slowest_sync_us() * 1000);
        let own = store.own_figures();
        let figure = |name: &str| own.iter().find(|(_, known, _)| *known == name).map_or(0, |(.., value)| *value);
        let completed = figure("flushes_completed");
        // The count of flushes begins anew when the data were opened again.
        if std::mem::replace(flushes, completed) != completed && completed > 0 {
            engine.statistics.event("flush", figure("last_flush_us") * 1000);
        }
    }
}
