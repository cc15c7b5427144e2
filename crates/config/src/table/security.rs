//! Passwords, users and encryption. Encryption is not there yet, so none may be asked for.

use super::Row;
use super::kinds::*;
use crate::kind::Kind;

pub(super) const ROWS: &[Row] = &[
    Row::used(
        "requirepass",
        TEXT,
        "\"\"",
        "Password of the default user, which clients have to give (`AUTH`, `HELLO`) before anything else; empty means none. Who is connected stays logged in. Lines `user default` and an `aclfile` come after it: as in Redis, it has no effect beside them.",
    )
    .sensitive(),
    Row::used(
        "aclfile",
        TEXT,
        "\"\"",
        "File of users and their rules (`ACL LOAD`, `ACL SAVE`), in the place of lines `user`.",
    )
    .immutable(),
    Row::used(
        "acl-pubsub-default",
        Kind::Choice(&[("allchannels", 1), ("resetchannels", 0)]),
        "resetchannels",
        "Channels of new users, and of new selectors.",
    ),
    Row::used("acllog-max-len", LONG, "128", "Entries that ACL LOG keeps."),
    Row::not_yet(
        "enable-module-command",
        Kind::Choice(&[("no", 0), ("yes", 1), ("local", 2)]),
        "no",
        "Whether MODULE may be called.",
    )
    .immutable(),
];

pub(super) const TLS: &[Row] = &[
    Row::not_yet("tls-port", PORT, "0", "Port for TLS."),
    Row::not_yet("tls-cert-file", TEXT, "\"\"", "Certificate of the server."),
    Row::not_yet("tls-key-file", TEXT, "\"\"", "Key of the server."),
    Row::not_yet("tls-key-file-pass", TEXT, "\"\"", "Password of the key.").sensitive(),
    Row::not_yet("tls-client-cert-file", TEXT, "\"\"", "Certificate for outgoing connections."),
    Row::not_yet("tls-client-key-file", TEXT, "\"\"", "Key for outgoing connections."),
    Row::not_yet("tls-client-key-file-pass", TEXT, "\"\"", "Password of that key.").sensitive(),
    Row::not_yet("tls-dh-params-file", TEXT, "\"\"", "Parameters of Diffie-Hellman."),
    Row::not_yet("tls-ca-cert-file", TEXT, "\"\"", "Certificates that are trusted."),
    Row::not_yet("tls-ca-cert-dir", TEXT, "\"\"", "Directory of certificates that are trusted."),
    Row::not_yet("tls-protocols", TEXT, "\"\"", "Versions of TLS."),
    Row::not_yet("tls-ciphers", TEXT, "\"\"", "Ciphers up to TLS 1.2."),
    Row::not_yet("tls-ciphersuites", TEXT, "\"\"", "Ciphers of TLS 1.3."),
    Row::not_yet("tls-replication", BOOL, "no", "TLS between replicas."),
    Row::not_yet("tls-cluster", BOOL, "no", "TLS between nodes of a cluster."),
    Row::harmless(
        "tls-auth-clients",
        Kind::Choice(&[("no", 0), ("yes", 1), ("optional", 2)]),
        "yes",
        "Whether clients need a certificate; without `tls-port` nobody is asked.",
    ),
    Row::harmless("tls-prefer-server-ciphers", BOOL, "no", "Whether the server's order of ciphers counts."),
    Row::harmless("tls-session-caching", BOOL, "yes", "Whether sessions can be resumed."),
    Row::harmless("tls-session-cache-size", COUNT, "20480", "Sessions that can be resumed."),
    Row::harmless("tls-session-cache-timeout", SECONDS, "300", "How long a session can be resumed."),
];
