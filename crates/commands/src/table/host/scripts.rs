//! Scripts and functions: SCRIPT and FUNCTION.

use crate::error::Result;
use crate::function::Functions;

/// A function that runs.
#[derive(Clone, Debug)]
pub struct RunningFunction {
    pub name: Vec<u8>,
    /// The command that runs it, with its arguments.
    pub command: Vec<Vec<u8>>,
    pub duration_ms: u64,
}

/// The cache of scripts.
pub trait Scripts {
    /// Whether the cache has a script of this name, in digits of either case.
    fn has_script(&self, name: &[u8]) -> bool;

    /// Compiles a script and returns its name: the SHA-1 of its text in hex digits.
    ///
    /// # Errors
    /// The text is no script.
    fn check_script(&self, text: &[u8]) -> Result<String>;

    /// The function that has run longest, of those that do not end at once.
    fn running_function(&self) -> Option<RunningFunction>;

    /// The functions of all libraries, without what a transaction has changed.
    fn functions(&self) -> Functions;
}
