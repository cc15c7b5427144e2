//! A certificate for the rows over TLS, which both servers show and redis-benchmark trusts.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::port::free_port;
use crate::server::Workplace;

/// The port and the files for connections over TLS.
pub struct Secured {
    /// The port for them.
    pub port: u16,
    pub cert: PathBuf,
    key: PathBuf,
}

impl Secured {
    /// Makes a certificate that has signed itself, in files of this place.
    pub fn new(place: &Workplace) -> Result<Secured> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).context("making a certificate")?;
        let secured = Secured { port: free_port()?, cert: place.file("cert.pem"), key: place.file("key.pem") };
        fs::write(&secured.cert, made.cert.pem()).context("writing a certificate")?;
        fs::write(&secured.key, made.signing_key.serialize_pem()).context("writing a key")?;
        Ok(secured)
    }

    /// Returns the directives of either server.
    pub fn directives(&self) -> String {
        let (port, cert, key) = (self.port, self.cert.display(), self.key.display());
        format!(
            "--tls-port {port} --tls-cert-file {cert} --tls-key-file {key} --tls-ca-cert-file {cert} --tls-auth-clients no"
        )
    }
}
