//! The scripts and functions that run on the I/O pool, for SCRIPT KILL, FUNCTION KILL and FUNCTION STATS.

use haypile_commands::host::RunningFunction;
use haypile_commands::{Args, Error};
use haypile_store::Mode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// All scripts that run on the I/O pool.
#[derive(Default)]
pub(crate) struct Running(Mutex<Vec<Arc<RunningScript>>>);

/// The kinds of what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Script,
    Function,
}

/// A script that runs.
pub(crate) struct RunningScript {
    state: AtomicU8,
    kind: Kind,
    command: Vec<Vec<u8>>,
    started: Instant,
}

/// Arguments of a running command that are shown, and the bytes of each.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

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
        self.state.load(Ordering::Acquire) == KILLED
    }

    /// The error of a script that was told to end.
    pub fn killed_text(&self) -> String {
        let command = if self.kind == Kind::Function { "FUNCTION" } else { "SCRIPT" };
        format!("ERR Error running script: Script killed by user with {command} KILL.")
    }

    /// Goes to a state from the first one. Returns the state before.
    fn go(&self, to: u8) -> u8 {
        self.state.compare_exchange(CLEAN, to, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|state| state)
    }
}

/// A script's place among those that run, until its end.
pub(crate) struct Place<'a> {
    running: &'a Running,
    pub script: Arc<RunningScript>,
}

impl Running {
    /// Notes that a script runs, if it may run for long: event loops end theirs soon.
    pub fn begin(&self, mode: Mode, kind: Kind, args: Args<'_>) -> Option<Place<'_>> {
        (mode == Mode::Disk).then(|| {
            let shown = args.iter_from(0).take(ARGUMENTS_MAX);
            let command = shown.map(|word| word[..word.len().min(ARGUMENT_BYTES_MAX)].to_vec()).collect();
            let (state, started) = (AtomicU8::new(CLEAN), Instant::now());
            let script = Arc::new(RunningScript { state, kind, command, started });
            self.lock().push(script.clone());
            Place { running: self, script }
        })
    }

    /// Ends the scripts, or the functions, that have written nothing.
    ///
    /// # Errors
    /// None of the kind runs, or all that run have written.
    pub fn kill(&self, kind: Kind) -> Result<(), Error> {
        let running = self.lock();
        let mut of_kind = running.iter().filter(|script| script.kind == kind).peekable();
        if of_kind.peek().is_none() {
            return Err(Error::text(match (running.is_empty(), kind) {
                (true, _) => "NOTBUSY No scripts in execution right now.",
                (false, Kind::Script) => {
                    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
                }
                (false, Kind::Function) => {
                    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
                }
            }));
        }
        if of_kind.map(|script| script.kill()).fold(false, |any, killed| any | killed) {
            return Ok(());
        }
        Err(Error::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ))
    }

    /// The function that has run longest.
    pub fn function(&self) -> Option<RunningFunction> {
        let running = self.lock();
        let functions = running.iter().filter(|script| script.kind == Kind::Function);
        functions.min_by_key(|script| script.started).map(|script| RunningFunction {
            name: script.command.get(1).cloned().unwrap_or_default(),
            command: script.command.clone(),
            duration_ms: script.started.elapsed().as_millis() as u64,
        })
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
