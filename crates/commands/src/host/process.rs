//! The process: SHUTDOWN, and what DEBUG does to it.

use crate::error::Result;

/// The process that the server is.
pub trait Process {
    /// Begins to shut the server down; the connection gets no reply if that works.
    fn shutdown(&mut self, how: Shutdown) -> Result<()>;

    /// Takes a shutdown that is under way back.
    fn abort_shutdown(&mut self) -> Result<()>;

    /// Which clients may call DEBUG.
    fn debug_access(&self) -> DebugAccess;

    /// Sets whether expired keys are removed although no command asks for them.
    fn set_active_expire(&mut self, is_on: bool);

    /// Writes a line to the server's log.
    fn log_line(&mut self, text: &[u8]);

    /// Ends the process as a bug would.
    fn crash(&mut self, why: &str);
}

/// What SHUTDOWN's options ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// SAVE or NOSAVE; nothing if neither was given. What was acknowledged is kept either way.
    pub save: Option<bool>,
    /// Without waiting for replicas that lag behind.
    pub now: bool,
    /// Even if something fails on the way.
    pub force: bool,
}

/// Which clients may call DEBUG: `enable-debug-command`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DebugAccess {
    #[default]
    No,
    Yes,
    /// Clients on the same host.
    Local,
}
