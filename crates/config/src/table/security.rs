//! Passwords, users and encryption.

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
    Row::used(
        "user-limit-policy",
        Kind::Choice(&[("delay", 0), ("refuse", 1)]),
        "delay",
        "Calls beyond `rate=` or `bandwidth=` of their user wait, or get the error `LIMIT`.",
    )
    .ours(),
    Row::not_yet(
        "enable-module-command",
        Kind::Choice(&[("no", 0), ("yes", 1), ("local", 2)]),
        "no",
        "Whether MODULE may be called.",
    )
    .immutable(),
];

pub(super) const TLS: &[Row] = &[
    Row::used(
        "tls-port",
        PORT,
        "0",
        "Port for clients that speak TLS; 0 means none. `port 0` beside it leaves no other way in.",
    ),
    Row::used(
        "tls-cert-file",
        TEXT,
        "\"\"",
        "Certificate of the server, with those between it and its authority (PEM).",
    )
    .volatile(),
    Row::used("tls-key-file", TEXT, "\"\"", "Key of that certificate (PEM).").volatile(),
    Row::used("tls-key-file-pass", TEXT, "\"\"", "Password of the key, if it is encrypted (PKCS #8).").sensitive(),
    Row::used(
        "tls-client-cert-file",
        TEXT,
        "\"\"",
        "Certificate for connections to other servers; without it that of the server.",
    )
    .volatile(),
    Row::used("tls-client-key-file", TEXT, "\"\"", "Key of that certificate.").volatile(),
    Row::used("tls-client-key-file-pass", TEXT, "\"\"", "Password of that key, if it is encrypted.").sensitive(),
    Row::harmless(
        "tls-dh-params-file",
        TEXT,
        "\"\"",
        "Parameters of Diffie-Hellman; keys are exchanged over elliptic curves only.",
    ),
    Row::used("tls-ca-cert-file", TEXT, "\"\"", "Authorities whose certificates are trusted (PEM).").volatile(),
    Row::used("tls-ca-cert-dir", TEXT, "\"\"", "Directory with files of such authorities.").volatile(),
    Row::used(
        "tls-protocols",
        TEXT,
        "\"\"",
        "Versions: `TLSv1.2`, `TLSv1.3`, or both, which is the default. Older ones are refused.",
    ),
    Row::used(
        "tls-ciphers",
        TEXT,
        "\"\"",
        "Ciphers of TLS 1.2 by OpenSSL's names, separated by `:`; `DEFAULT`, `HIGH` and `ALL` are all that there are, `!NAME` takes away.",
    ),
    Row::used("tls-ciphersuites", TEXT, "\"\"", "Ciphers of TLS 1.3, separated by `:`; empty means all."),
    Row::used("tls-replication", BOOL, "no", "TLS for the connection to the master."),
    Row::used("tls-cluster", BOOL, "no", "TLS for MIGRATE, and between nodes of a cluster."),
    Row::used(
        "tls-auth-clients",
        Kind::Choice(&[("no", 0), ("yes", 1), ("optional", 2)]),
        "yes",
        "Whether clients have to show a certificate of a trusted authority.",
    ),
    Row::used(
        "tls-auth-clients-user",
        Kind::Choice(&[("off", 0), ("CN", 1)]),
        "off",
        "Whether a client is logged in as the user whose name its certificate has as common name, as in Redis 8.6.",
    )
    .ours(),
    Row::used("tls-prefer-server-ciphers", BOOL, "no", "Whether the server's order of ciphers counts."),
    Row::used("tls-session-caching", BOOL, "yes", "Whether sessions can be resumed."),
    Row::used("tls-session-cache-size", COUNT, "20480", "Sessions that can be resumed."),
    Row::used("tls-session-cache-timeout", SECONDS, "300", "How long a session can be resumed."),
];
