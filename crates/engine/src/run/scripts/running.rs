//! The scripts that run on the I/O pool, for SCRIPT KILL.

use haypile_commands::Error;
use haypile_store::Mode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All scripts that run on the I/O pool.
#[derive(Default)]
pub(crate) struct Running(Mutex<Vec<Arc<RunningScript>>>);

/// A script that runs.
#[derive(Default)]
pub(crate) struct RunningScript(AtomicU8);

/// The states of a script: only from the first can it come to another.
const CLEAN: u8 = 0;
const WRITTEN: u8 = 1;
const KILLED: u8 = 2;

impl RunningScript {
    /// Notes that the script is about to write; false if it is to end instead.
    pub fn begin_write(&self) -> bool {
        self.go(WRITTEN) != KILLED
    }

    /// Tells the script to end; false if it has written.
    fn kill(&self) -> bool {
        self.go(KILLED) != WRITTEN
    }

    pub fn is_killed(&self) -> bool {
        self.0.load(Ordering::Acquire) == KILLED
    }

    /// Goes to a state from the first one. Returns the state before.
    fn go(&self, to: u8) -> u8 {
        self.0.compare_exchange(CLEAN, to, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|state| state)
    }
}

/// A script's place among those that run, until its end.
pub(crate) struct Place<'a> {
    running: &'a Running,
    pub script: Arc<RunningScript>,
}

impl Running {
    /// Notes that a script runs, if it may run for long: event loops end theirs soon.
    pub fn begin(&self, mode: Mode) -> Option<Place<'_>> {
        (mode == Mode::Disk).then(|| {
            let script = Arc::<RunningScript>::default();
            self.lock().push(script.clone());
            Place { running: self, script }
        })
    }

    /// Ends the scripts that have written nothing.
    ///
    /// # Errors
    /// None runs, or all that run have written.
    pub fn kill(&self) -> Result<(), Error> {
        let running = self.lock();
        if running.is_empty() {
            return Err(Error::text("NOTBUSY No scripts in execution right now."));
        }
        if running.iter().map(|script| script.kill()).fold(false, |any, killed| any | killed) {
            return Ok(());
        }
        Err(Error::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<RunningScript>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.running.lock().retain(|other| !Arc::ptr_eq(other, &self.script));
    }
}
