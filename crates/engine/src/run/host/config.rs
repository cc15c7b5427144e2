//! The configuration: CONFIG GET, SET and REWRITE.

use crate::clients::acts::Act;
use crate::run::engine::Engine;
use crate::run::host::Desk;
use haypile_commands::host::{Config, ConfigError};
use haypile_commands::{Error, Result};
use haypile_store::Stop;

impl Config for Desk<'_, '_> {
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)> {
        let found = self.state.acts.get_config(&self.engine.settings, patterns).into_iter();
        found.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())).collect()
    }

    fn config_set(&mut self, pairs: &[(&[u8], &[u8])]) -> std::result::Result<(), ConfigError> {
        self.state.acts.set_config(&self.engine.settings, pairs).map_err(config_error)
    }

    fn config_rewrite(&mut self) -> Result<()> {
        if self.engine.process.config_file.is_none() {
            return Err(without_file());
        }
        if !self.may_wait {
            return Err(Error::Stop(Stop::Long));
        }
        self.state.acts.add(Act::RewriteConfig);
        Ok(())
    }
}

fn without_file() -> Error {
    Error::text("ERR The server is running without a config file")
}

impl Engine {
    /// CONFIG REWRITE, on a thread that may wait for the disk.
    pub(crate) fn rewrite_config(&self) -> Result<()> {
        let file = self.process.config_file.as_ref().ok_or_else(without_file)?;
        match self.settings.rewrite(file) {
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

/// The settings answer with the whole text of the reply; the command makes it from its parts.
fn config_error(text: String) -> ConfigError {
    let parts = text
        .strip_prefix("ERR CONFIG SET failed (possibly related to argument '")
        .and_then(|rest| rest.split_once("') - "));
    match parts {
        Some((name, reason)) => ConfigError::Refused { name: name.into(), reason: reason.into() },
        None => {
            ConfigError::Unknown(text.rsplit_once("- '").map_or("", |(_, name)| name.trim_end_matches('\'')).into())
        }
    }
}
