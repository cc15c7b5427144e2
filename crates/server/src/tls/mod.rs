//! TLS: what connections are encrypted with, and the two kinds of connections that are.
//!
//! Certificates and keys are read at the start and by CONFIG SET, which exchanges them for connections that begin from
//! then on. Handshakes are done by the accepting thread (`handshake`), so that signatures delay no client of an event
//! loop; there a connection is two halves as without TLS (`halves`). Threads that may wait have `threads`.

mod suites;

mod files;
mod sessions;
mod trust;

pub mod halves;
pub mod handshake;
pub mod threads;

use arc_swap::ArcSwapOption;
use handshake::Failures;
use haypile_config::{AuthClients, Config, KeyFiles, Settings};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, Connection, RootCertStore, ServerConfig, SupportedCipherSuite};
use std::io::{self, Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;

/// Bytes of one record (RFC 8446, section 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;

/// Records that a connection keeps for the replies that are under way when it is to end.
const LAST_RECORDS: u64 = 1 << 18;

/// The reply to a CONFIG SET that names what cannot be used.
const REFUSED: &str = "Unable to update TLS configuration. Check server logs.";

/// The configuration of connections that begin.
pub struct Tls {
    server: ArcSwapOption<ServerConfig>,
    client: ArcSwapOption<ClientConfig>,
    /// The failures of clients' handshakes.
    pub failures: Failures,
}

impl Tls {
    /// Reads certificates and keys where a directive asks for TLS, and again whenever CONFIG SET changes one.
    ///
    /// # Errors
    /// A text for people that names the directive or the file.
    pub fn start(settings: &Settings) -> Result<Arc<Tls>, String> {
        let (server, client) = (ArcSwapOption::empty(), ArcSwapOption::empty());
        let tls = Arc::new(Tls { server, client, failures: Failures::default() });
        tls.configure(&settings.config())?;
        let configured = tls.clone();
        settings.listen(move |changed, _, next| {
            if !changed.iter().any(|directive| directive.name.starts_with("tls-")) {
                return Ok(());
            }
            configured.configure(next).map_err(|why| {
                tracing::error!("TLS is configured as before: {why}");
                REFUSED.into()
            })
        });
        Ok(tls)
    }

    fn configure(&self, config: &Config) -> Result<(), String> {
        let server =
            if config.tls.port > 0 || config.metrics_tls { Some(Arc::new(server_config(config)?)) } else { None };
        let is_client = config.tls.replication || config.tls.cluster;
        let client = if is_client { Some(Arc::new(client_config_of(config)?)) } else { None };
        self.server.store(server);
        self.client.store(client);
        Ok(())
    }

    /// The configuration of connections that come in.
    pub fn server(&self) -> Option<Arc<ServerConfig>> {
        self.server.load_full()
    }

    /// The configuration of connections to other servers.
    pub fn client(&self) -> Option<Arc<ClientConfig>> {
        self.client.load_full()
    }
}

/// The error where a directive asks for TLS and what it needs is just being taken away.
pub fn not_configured() -> io::Error {
    io::Error::other("there is no configuration of TLS")
}

/// Gives a session encrypted bytes, as many as it takes before what it has decrypted is read; returns their number.
fn feed(session: &mut Connection, bytes: &[u8]) -> io::Result<usize> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match session.read_tls(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            // Bytes that the session has decrypted have to be read first.
            Err(error) if error.kind() == ErrorKind::Other => break,
            Err(error) => return Err(error),
        }
        session.process_new_packets().map_err(|why| Error::new(ErrorKind::InvalidData, why))?;
    }
    Ok(bytes.len() - rest.len())
}

/// The number of records that a connection may encrypt: its keys are not renewed below TLS 1.3. Those that are left
/// behind the number are for what is under way.
fn records_max(suite: Option<SupportedCipherSuite>) -> u64 {
    match suite {
        Some(SupportedCipherSuite::Tls12(suite)) => suite.common.confidentiality_limit.saturating_sub(LAST_RECORDS),
        _ => u64::MAX,
    }
}

/// The number of records that encrypted bytes take.
fn records_of(bytes: usize) -> u64 {
    bytes.div_ceil(RECORD_BYTES_MAX) as u64
}

fn server_config(config: &Config) -> Result<ServerConfig, String> {
    let tls = &config.tls;
    let provider = Arc::new(suites::provider(&tls.ciphers, &tls.ciphersuites)?);
    let KeyFiles { cert: Some(cert), key: Some(key), key_pass } = &tls.server else {
        return Err("tls-port and metrics-tls need 'tls-cert-file' and 'tls-key-file'.".into());
    };
    let verifier: Arc<dyn ClientCertVerifier> = match tls.auth_clients {
        AuthClients::No => Arc::new(NoClientAuth),
        auth => {
            let roots = Arc::new(roots(config)?);
            let builder = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
            let builder = if auth == AuthClients::Optional { builder.allow_unauthenticated() } else { builder };
            builder.build().map_err(|why| format!("The authorities of clients cannot be used: {why}"))?
        }
    };
    let certified = files::certified(cert, key, key_pass, &provider)?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&suites::versions(&tls.protocols)?)
        .map_err(|why| format!("tls-protocols, tls-ciphers and tls-ciphersuites leave nothing: {why}"))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    server.ignore_client_order = tls.prefers_server_ciphers;
    server.session_storage = sessions::storage(tls.session_cache);
    if tls.session_cache.is_none() {
        server.send_tls13_tickets = 0;
    }
    Ok(server)
}

fn client_config_of(config: &Config) -> Result<ClientConfig, String> {
    let tls = &config.tls;
    let keys = if tls.client.cert.is_some() { &tls.client } else { &tls.server };
    let trusted = Trusted { roots: Some(roots(config)?), ciphers: &tls.ciphers, ciphersuites: &tls.ciphersuites };
    client_config(keys, trusted, &tls.protocols)
}

/// Trust in another server, and the ciphers for the connection.
pub struct Trusted<'a> {
    /// The trusted roots; None to trust every certificate.
    pub roots: Option<RootCertStore>,
    pub ciphers: &'a str,
    pub ciphersuites: &'a str,
}

/// The configuration of connections to other servers, which are shown this certificate if there is one.
///
/// # Errors
/// A text for people that names the directive or the file.
pub fn client_config(keys: &KeyFiles, trusted: Trusted<'_>, protocols: &str) -> Result<ClientConfig, String> {
    let provider = Arc::new(suites::provider(trusted.ciphers, trusted.ciphersuites)?);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&suites::versions(protocols)?)
        .map_err(|why| format!("The protocols and ciphers leave nothing: {why}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust::Verifier {
            roots: trusted.roots,
            provider: provider.clone(),
        }));
    match keys {
        KeyFiles { cert: Some(cert), key: Some(key), key_pass } => {
            let certified = files::certified(cert, key, key_pass, &provider)?;
            Ok(builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified))))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn roots(config: &Config) -> Result<RootCertStore, String> {
    let tls = &config.tls;
    if tls.ca_cert_file.is_none() && tls.ca_cert_dir.is_none() {
        return Err(
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, tls-replication or \
                    tls-auth-clients are enabled!"
                .into(),
        );
    }
    roots_of(tls.ca_cert_file.as_deref(), tls.ca_cert_dir.as_deref())
}

/// The authorities of a file and of the files of a directory.
///
/// # Errors
/// A text for people that names the file.
pub fn roots_of(file: Option<&Path>, dir: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = file {
        files::add_roots(file, &mut roots)?;
    }
    if let Some(dir) = dir {
        files::add_roots_of_dir(dir, &mut roots)?;
    }
    Ok(roots)
}
