//! Authorities, their certificates in files, and clients over TLS that trust one.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::process::{Client, PATIENCE, Server, TempDir};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An authority, whose certificates lie in a directory.
pub struct Authority {
    pub dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in files.
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new() -> Authority {
        let dir = TempDir::new();
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority");
        let certificate = params.self_signed(&key).expect("it signs itself");
        fs::write(dir.path().join("ca.pem"), certificate.pem()).expect("it is new");
        Authority { dir, issuer: Issuer::new(params, key) }
    }

    pub fn file(&self) -> String {
        text(&self.dir.path().join("ca.pem"))
    }

    /// Makes a certificate with this common name.
    pub fn pair(&self, name: &str) -> Pair {
        let pair = Pair {
            cert: self.dir.path().join(format!("{name}.pem")),
            key: self.dir.path().join(format!("{name}.key")),
        };
        self.write(&pair, name);
        pair
    }

    pub fn write(&self, pair: &Pair, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        fs::write(&pair.cert, certificate.pem()).expect("the directory is there");
        fs::write(&pair.key, key.serialize_pem()).expect("the directory is there");
    }

    /// The directives of a server with a certificate of this authority.
    pub fn directives(&self, port: u16) -> Vec<String> {
        let server = self.pair("server");
        let port = port.to_string();
        let directives = [
            ("tls-port", port),
            ("tls-ca-cert-file", self.file()),
            ("tls-cert-file", text(&server.cert)),
            ("tls-key-file", text(&server.key)),
        ];
        directives.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }

    /// A client's trust, and the certificate that it shows.
    pub fn client(&self, shown: Option<&Pair>) -> Arc<ClientConfig> {
        self.client_of(shown, rustls::DEFAULT_VERSIONS)
    }

    /// The configuration of a client that speaks these versions only.
    pub fn client_of(&self, shown: Option<&Pair>, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file()).expect("it was written")).expect("it is an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("they are there")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName(roots)));
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(Pair { cert, key }) => {
                let chain = vec![CertificateDer::from_pem_file(cert).expect("it was written")];
                let key = PrivateKeyDer::from_pem_file(key).expect("it was written");
                builder.with_client_auth_cert(chain, key).expect("they go together")
            }
        };
        Arc::new(config)
    }
}

/// Trusts an authority whatever the server is called.
#[derive(Debug)]
struct AnyName(RootCertStore);

impl rustls::client::danger::ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(&parsed, &self.0, between, now, algorithms)?;
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

pub type Encrypted = Client<StreamOwned<ClientConnection, TcpStream>>;

pub fn connect(port: u16, config: &Arc<ClientConfig>) -> Encrypted {
    let tcp = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    tcp.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let name = ServerName::try_from("127.0.0.1").expect("it is an address");
    let session = ClientConnection::new(config.clone(), name).expect("the configuration is right");
    Client { socket: StreamOwned::new(session, tcp) }
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

pub fn start(dir: &Path, directives: &[String], more: &[&str]) -> Server {
    let all: Vec<&str> = directives.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Server::start(dir, &all)
}
