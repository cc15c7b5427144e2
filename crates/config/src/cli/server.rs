//! The arguments of `haypile import` and `haypile export` that name a server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::slice::Iter;

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    /// The options of TLS; None if the connection is not encrypted.
    pub tls: Option<ServerTls>,
}

/// Trust in a server, and the certificate that it is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTls {
    pub ca_cert_file: Option<PathBuf>,
    pub ca_cert_dir: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Whether any certificate is trusted.
    pub insecure: bool,
}

const HOST: &str = "127.0.0.1";
const PORT: u16 = 6379;

/// The part of the help that both share.
pub(super) const TLS_HELP: &str = "\
With --tls the connection is encrypted, by the arguments of redis-cli: --cacert FILE or --cacertdir DIR, whose authorities are trusted,
--cert FILE and --key FILE, the certificate that the server is shown, and --insecure, which trusts whoever it is.
";

/// Arguments with a value.
const NAMES: [&str; 8] = ["--host", "--port", "--user", "--password", "--cacert", "--cacertdir", "--cert", "--key"];

/// The arguments that were given.
#[derive(Default)]
pub(super) struct Options {
    /// The values in the order of `NAMES`.
    values: [Option<OsString>; NAMES.len()],
    tls: bool,
    insecure: bool,
}

impl Options {
    /// Takes an argument, with its value from `rest`; whether it is one about a server.
    ///
    /// # Errors
    /// A sentence: its value is missing.
    pub fn take(&mut self, name: &str, rest: &mut Iter<'_, OsString>) -> Result<bool, String> {
        match name {
            "--tls" => self.tls = true,
            "--insecure" => self.insecure = true,
            name => {
                let Some(at) = NAMES.iter().position(|known| *known == name) else { return Ok(false) };
                self.values[at] = Some(rest.next().ok_or_else(|| format!("{name} needs a value."))?.clone());
            }
        }
        Ok(true)
    }

    /// Whether a server was named.
    pub fn name_a_server(&self) -> bool {
        self.values[0].is_some() || self.values[1].is_some()
    }

    /// Whether something was given that only a server has.
    pub fn are_given(&self) -> bool {
        self.tls || self.insecure || self.values.iter().any(Option::is_some)
    }

    /// Returns the server.
    ///
    /// # Errors
    /// A sentence: what was given makes no sense.
    pub fn server(self) -> Result<Server, String> {
        let Options { values, tls, insecure } = self;
        let [host, port, user, password, cacert, cacertdir, cert, key] = values;
        let text = |value: OsString| value.to_string_lossy().into_owned();
        let port = match port.map(text) {
            Some(port) => port.parse().map_err(|_| format!("{port} is no port."))?,
            None => PORT,
        };
        let [ca_cert_file, ca_cert_dir, cert, key] = [cacert, cacertdir, cert, key].map(|path| path.map(PathBuf::from));
        if cert.is_some() != key.is_some() {
            return Err("--cert and --key go together.".into());
        }
        let given = ServerTls { ca_cert_file, ca_cert_dir, cert, key, insecure };
        if !tls && given != ServerTls::default() {
            return Err("--cacert, --cacertdir, --cert, --key and --insecure are for --tls.".into());
        }
        let is_trusted = given.ca_cert_file.is_some() || given.ca_cert_dir.is_some() || insecure;
        if tls && !is_trusted {
            return Err("--tls needs --cacert, --cacertdir or --insecure.".into());
        }
        let host = host.map_or_else(|| HOST.to_owned(), text);
        Ok(Server { host, port, user: user.map(text), password: password.map(text), tls: tls.then_some(given) })
    }
}
