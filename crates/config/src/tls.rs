//! The directives of TLS, as those see them who make keys and certificates of them.

use std::fmt;
use std::path::PathBuf;

/// The directives of TLS.
#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    /// The port for TLS; 0 for none.
    pub port: u16,
    pub server: KeyFiles,
    /// The key and certificate for connections to other servers; without a certificate `server` is used.
    pub client: KeyFiles,
    pub ca_cert_file: Option<PathBuf>,
    pub ca_cert_dir: Option<PathBuf>,
    pub auth_clients: AuthClients,
    /// Clients are logged in by the common name of their certificates.
    pub user_of_common_name: bool,
    /// Words separated by blanks; empty = all that there are.
    pub protocols: String,
    /// Names separated by colons; empty = all that there are.
    pub ciphers: String,
    pub ciphersuites: String,
    pub prefers_server_ciphers: bool,
    /// The cache of sessions; None if sessions are not resumed.
    pub session_cache: Option<SessionCache>,
    /// The connection to the master.
    pub replication: bool,
    /// MIGRATE, and connections between nodes of a cluster.
    pub cluster: bool,
}

/// A certificate and its key.
#[derive(Clone, PartialEq, Default)]
pub struct KeyFiles {
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// The password of the key; empty if the key is not encrypted.
    pub key_pass: Vec<u8>,
}

impl fmt::Debug for KeyFiles {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        // The password is nothing for logs.
        out.debug_struct("KeyFiles").field("cert", &self.cert).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Tells whether a change of this directive may have to wait, so that no event loop may make it: files are read, names
/// of hosts looked up.
pub fn may_wait(directive: &[u8]) -> bool {
    let listens = ["port", "bind"].iter().any(|name| directive.eq_ignore_ascii_case(name.as_bytes()));
    listens || directive.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(b"tls-"))
}

/// Sessions that can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionCache {
    pub sessions: usize,
    pub timeout_s: u32,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthClients {
    No,
    Yes,
    /// Clients may show a certificate, which has to be right then.
    Optional,
}

impl Tls {
    /// Whether anything needs a certificate of this server.
    pub fn is_used(&self) -> bool {
        self.port > 0 || self.replication || self.cluster
    }
}
