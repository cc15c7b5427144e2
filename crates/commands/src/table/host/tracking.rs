//! Client-side caching: what the client of the running command is told of.

/// The client's part in client-side caching.
pub trait Tracking {
    /// The options by which the client is told of keys that change; None if it is not.
    fn tracking(&self) -> Option<&TrackingOptions>;

    /// Whether CLIENT CACHING was called for the next command.
    fn caches_next(&self) -> bool;

    /// Whether the client that messages are redirected to has gone.
    fn redirect_is_broken(&self) -> bool;

    /// Whether there is a client of this id.
    fn has_client(&self, id: u64) -> bool;
}

/// The options by which a client is told of keys that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackingOptions {
    /// The client that gets the messages; 0 is the client itself.
    pub redirect: u64,
    pub mode: TrackingMode,
    /// The beginnings of the keys that the client is told of in the mode `Broadcast`, in order, none of them the
    /// beginning of another one.
    pub prefixes: Vec<Vec<u8>>,
    /// Whether the client is not told of its own changes.
    pub noloop: bool,
}

/// The keys that a client is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingMode {
    /// The keys that it has read.
    Default,
    /// The keys of the commands that it has announced by CLIENT CACHING YES.
    OptIn,
    /// The keys that it has read, but for commands that it has announced by CLIENT CACHING NO.
    OptOut,
    /// All keys with one of the prefixes.
    Broadcast,
}
