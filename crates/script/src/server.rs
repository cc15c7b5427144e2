//! The server of a script, as the trait of what a script may ask.

use haypile_resp::{Args, Protocol, Reply};
use scoped_tls_hkt::scoped_thread_local;

/// The server behind a running script.
pub trait Server {
    /// Runs a command and returns its reply, which may be an error.
    ///
    /// # Errors
    /// The run ends here: no script can catch that.
    fn call(&mut self, args: Args<'_>) -> Result<Reply, Halted>;

    /// Sets the protocol in which later replies are shown to the script.
    fn set_protocol(&mut self, protocol: Protocol);

    /// Whether the script's user may run a command; nothing if there is no such command.
    fn permits(&mut self, args: Args<'_>) -> Option<bool>;

    /// Writes a line to the server's log.
    fn log(&mut self, level: LogLevel, text: &[u8]);

    /// Asks whether the run may go on, before something that may take long and cannot be interrupted, or that takes
    /// much memory.
    ///
    /// # Errors
    /// The run ends here.
    fn takes_long(&mut self) -> Result<(), Halted>;

    /// Asks whether the run may go on, every few thousand instructions.
    ///
    /// # Errors
    /// The run ends here.
    fn goes_on(&mut self) -> Result<(), Halted>;
}

/// The end of a run that its server has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halted {
    /// The run has no reply; its server knows why.
    Dropped,
    /// The script is answered with this error, its code first.
    Failed(String),
}

/// The levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

scoped_thread_local!(
    /// The server of the script that this thread runs.
    pub(crate) static mut SERVER: for<'a> &'a mut (dyn Server + 'a)
);
