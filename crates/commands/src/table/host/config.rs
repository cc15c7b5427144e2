//! The configuration: CONFIG GET and REWRITE.

/// The directives of the server.
pub trait Config {
    /// Name and value of each directive whose name matches one of the patterns, in the order of the configuration.
    fn config_get(&self, patterns: &[&[u8]]) -> Vec<(String, String)>;

    /// Whether the server was started with a configuration file, which CONFIG REWRITE writes.
    fn has_config_file(&self) -> bool;
}
