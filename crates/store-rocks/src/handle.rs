//! The open database: its users, and its end. Reads take a latch that is shared by few threads, so that they do not
//! meet on one cache line; closing takes all of them.

use haypile_store::base::BaseError;
use parking_lot::{Condvar, Mutex, RwLock};
use rust_rocksdb::DB;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Latches over which the reading threads are spread: more than workers and I/O pool threads on a usual machine.
const STRIPES: usize = 32;

/// How long `close` waits for uses of the database to end (a reclaim that is being stopped, a view that nobody
/// dropped).
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The open database, alive as long as an `Arc` of it. Fields are dropped in order: files first, then the signal.
pub(crate) struct Open {
    pub(crate) db: DB,
    _gone: Signal,
}

struct Signal(Arc<Gone>);

#[derive(Default)]
struct Gone {
    gone: Mutex<bool>,
    changed: Condvar,
}

impl Drop for Signal {
    fn drop(&mut self) {
        *self.0.gone.lock() = true;
        self.0.changed.notify_all();
    }
}

/// One latch per group of threads, each on its own cache line.
#[repr(align(128))]
struct Stripe(RwLock<Option<Arc<Open>>>);

pub(crate) struct Handle {
    stripes: Box<[Stripe]>,
    gone: Arc<Gone>,
}

impl Handle {
    pub(crate) fn new(db: DB) -> (Self, Arc<Open>) {
        let gone = Arc::new(Gone::default());
        let open = Arc::new(Open { db, _gone: Signal(gone.clone()) });
        let stripes = (0..STRIPES).map(|_| Stripe(RwLock::new(Some(open.clone())))).collect();
        (Handle { stripes, gone }, open)
    }

    /// Runs `read` on the database. For short reads only, because closing waits for them.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&DB) -> Result<T, BaseError>) -> Result<T, BaseError> {
        match &*self.stripes[stripe()].0.read() {
            Some(open) => read(&open.db),
            None => Err(closed()),
        }
    }

    /// Holds the database open. For long uses: closing tells background work to stop and then waits for it.
    pub(crate) fn share(&self) -> Result<Arc<Open>, BaseError> {
        self.stripes[stripe()].0.read().clone().ok_or_else(closed)
    }

    /// Closes the database to new uses. The first caller gets it, to stop its work; later ones get nothing.
    pub(crate) fn take(&self) -> Option<Arc<Open>> {
        let mut taken = None;
        for stripe in &self.stripes {
            taken = stripe.0.write().take().or(taken);
        }
        taken
    }

    /// Waits until the database is unused and its files are closed; returns false after `CLOSE_WAIT`.
    pub(crate) fn wait_gone(&self) -> bool {
        let mut gone = self.gone.gone.lock();
        !self.gone.changed.wait_while_for(&mut gone, |gone| !*gone, CLOSE_WAIT).timed_out()
    }
}

fn closed() -> BaseError {
    BaseError::Failed("the base is closed".into())
}

/// Returns the calling thread's latch.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    MINE.with(|mine| *mine)
}
