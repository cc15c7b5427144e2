//! Reads the directives of TLS.

use super::fields::Fields;
use crate::tls::{AuthClients, KeyFiles, SessionCache, Tls};
use std::path::PathBuf;

pub(super) fn read_tls(fields: &mut Fields, below_dir: &impl Fn(Option<PathBuf>) -> Option<PathBuf>) -> Tls {
    let caches = fields.bool("tls-session-caching");
    let cache = SessionCache {
        sessions: fields.int("tls-session-cache-size"),
        timeout_s: fields.int("tls-session-cache-timeout"),
    };
    Tls {
        port: fields.int("tls-port"),
        server: KeyFiles {
            cert: below_dir(fields.path("tls-cert-file")),
            key: below_dir(fields.path("tls-key-file")),
            key_pass: fields.text("tls-key-file-pass"),
        },
        client: KeyFiles {
            cert: below_dir(fields.path("tls-client-cert-file")),
            key: below_dir(fields.path("tls-client-key-file")),
            key_pass: fields.text("tls-client-key-file-pass"),
        },
        ca_cert_file: below_dir(fields.path("tls-ca-cert-file")),
        ca_cert_dir: below_dir(fields.path("tls-ca-cert-dir")),
        auth_clients: fields.choice("tls-auth-clients", AUTH_CLIENTS),
        user_of_common_name: fields.choice("tls-auth-clients-user", USERS_OF_CERTIFICATES),
        protocols: fields.printed("tls-protocols"),
        ciphers: fields.printed("tls-ciphers"),
        ciphersuites: fields.printed("tls-ciphersuites"),
        prefers_server_ciphers: fields.bool("tls-prefer-server-ciphers"),
        session_cache: caches.then_some(cache),
        replication: fields.bool("tls-replication"),
        cluster: fields.bool("tls-cluster"),
    }
}

const AUTH_CLIENTS: &[(&str, AuthClients)] =
    &[("no", AuthClients::No), ("yes", AuthClients::Yes), ("optional", AuthClients::Optional)];
const USERS_OF_CERTIFICATES: &[(&str, bool)] = &[("off", false), ("CN", true)];
