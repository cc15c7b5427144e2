//! The configuration: CONFIG GET, SET and REWRITE.

use crate::error::Result;

/// The directives of the server.
pub trait Config {
    /// Name and value of each directive whose name matches one of the patterns, in the order of the configuration.
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)>;

    /// Sets all of the directives, or none of them.
    fn config_set(&mut self, pairs: &[(&[u8], &[u8])]) -> std::result::Result<(), ConfigError>;

    /// Writes the directives into the configuration file.
    ///
    /// # Errors
    /// There is no such file; or [`Stop::Long`](haypile_store::Stop::Long) on an event loop, which must not wait for the
    /// disk: the engine runs the command on the I/O pool.
    fn config_rewrite(&mut self) -> Result<()>;
}

/// Why CONFIG SET changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No directive has this name.
    Unknown(String),
    /// The value does not fit, the directive was given twice or cannot be set while the server runs.
    Refused { name: String, reason: String },
}
