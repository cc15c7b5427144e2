//! The scripts that run on the I/O pool, for SCRIPT KILL.

use haypile_commands::Error;
use haypile_store::Mode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// All scripts that run on the I/O pool.
#[derive(Default)]
pub(crate) struct Running(Mutex<Vec<Arc<RunningScript>>>);

/// A script that runs.
pub(crate) struct RunningScript {
    /// Whether the script has changed something.
    pub has_written: AtomicBool,
    /// Whether the script is to end.
    pub is_killed: AtomicBool,
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
            let (has_written, is_killed) = (AtomicBool::new(false), AtomicBool::new(false));
            let script = Arc::new(RunningScript { has_written, is_killed });
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
        let mut any = false;
        for script in running.iter().filter(|script| !script.has_written.load(Ordering::Acquire)) {
            script.is_killed.store(true, Ordering::Release);
            any = true;
        }
        if any {
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
