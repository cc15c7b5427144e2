//! The process: SHUTDOWN, and what DEBUG does to it.

/// The process that the server is.
pub trait Process {
    /// Which clients may call DEBUG.
    fn debug_access(&self) -> DebugAccess;
}

/// The options of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// SAVE or NOSAVE; nothing if neither was given. What was acknowledged is kept either way.
    pub save: Option<bool>,
    /// Whether the server stops without waiting for replicas that lag behind.
    pub now: bool,
    /// Whether the server stops even if something fails on the way.
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
