//! The configuration: CONFIG GET and REWRITE.

use crate::run::engine::Engine;
use crate::run::host::SessionHost;
use haypile_commands::host::Config;
use haypile_commands::{Error, Result};

impl Config for SessionHost<'_, '_> {
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let found = self.state.acts.get_config(&self.engine.settings, patterns).into_iter();
        found.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())).collect()
    }

    fn has_config_file(&self) -> bool {
        self.engine.process.config_file.is_some()
    }
}

impl Engine {
    /// Carries CONFIG REWRITE out, on a thread that may wait for the disk.
    pub(crate) fn rewrite_config(&self) -> Result<()> {
        let file = self.process.config_file.as_ref().expect("the command has looked for it");
        match self.settings.rewrite(file, || self.user_lines()) {
            Ok(()) => {
                tracing::info!("CONFIG REWRITE has written {}", file.display());
                Ok(())
            }
            Err(why) => {
                tracing::warn!("CONFIG REWRITE failed: {why}");
                Err(Error::text(format!("ERR Rewriting config file: {why}")))
            }
        }
    }
}
