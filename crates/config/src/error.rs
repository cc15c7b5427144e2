//! The errors by which a configuration stops the start: where the line stands, the fault, and a way out.

use std::fmt;
use std::path::PathBuf;

/// The place of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    File { path: PathBuf, line: u32, text: String },
    Input { line: u32, text: String },
    CommandLine { text: String },
}

/// The error for a configuration that cannot be used. Displayed over several lines, in the form of Redis's fatal
/// configuration error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub origin: Option<Origin>,
    /// The fault; Redis's text where Redis refuses the same.
    pub message: String,
    /// A value that would be right.
    pub hint: Option<String>,
}

impl ConfigError {
    /// Returns an error at a line.
    pub fn at(origin: &Origin, message: impl Into<String>) -> ConfigError {
        ConfigError { origin: Some(origin.clone()), message: message.into(), hint: None }
    }

    /// Returns an error that no line is to blame for.
    pub fn new(message: impl Into<String>) -> ConfigError {
        ConfigError { origin: None, message: message.into(), hint: None }
    }

    /// Adds the hint.
    pub fn hint(mut self, hint: impl Into<String>) -> ConfigError {
        self.hint = Some(hint.into());
        self
    }
}

impl Origin {
    /// Returns the same place without the values of the line, which are secret.
    pub(crate) fn without_values(&self) -> Origin {
        let mut origin = self.clone();
        let (Origin::File { text, .. } | Origin::Input { text, .. } | Origin::CommandLine { text }) = &mut origin;
        let name = text.split_whitespace().next().unwrap_or_default();
        *text = format!("{name} (not shown)");
        origin
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Origin::File { path, line, .. } => write!(out, "{}, line {line}", path.display()),
            Origin::Input { line, .. } => write!(out, "standard input, line {line}"),
            Origin::CommandLine { .. } => write!(out, "the command line"),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        writeln!(out, "*** FATAL CONFIG FILE ERROR (Haypile {}) ***", env!("CARGO_PKG_VERSION"))?;
        match &self.origin {
            Some(Origin::File { path, line, text }) => {
                writeln!(out, "Reading the configuration file {}, at line {line}", path.display())?;
                writeln!(out, ">>> '{text}'")?;
            }
            Some(Origin::Input { line, text }) => {
                writeln!(out, "Reading the configuration from standard input, at line {line}")?;
                writeln!(out, ">>> '{text}'")?;
            }
            Some(Origin::CommandLine { text }) => {
                writeln!(out, "Reading the command line")?;
                writeln!(out, ">>> '--{text}'")?;
            }
            None => {}
        }
        write!(out, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(out, "\n{hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Returns the text of the operating system, without Rust's error number.
pub fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.into(),
        None => text,
    }
}
