//! Scripts: SCRIPT.

use crate::error::Result;

/// The cache of scripts.
pub trait Scripts {
    /// Whether the cache has a script of this name, in digits of either case.
    fn has_script(&self, name: &[u8]) -> bool;

    /// Compiles a script and returns its name: the SHA-1 of its text in hex digits.
    ///
    /// # Errors
    /// The text is no script.
    fn check_script(&self, text: &[u8]) -> Result<String>;
}
